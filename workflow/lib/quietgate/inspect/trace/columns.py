"""The events of one rank that are kept, as columns: kernels, launches, spans, copies."""

from __future__ import annotations

from array import array
from collections import Counter

from quietgate.inspect.trace import names
from quietgate.inspect.trace.spans import SpanTable
from quietgate.inspect.trace.stream import Event, args_of

KERNEL = frozenset({"kernel", "Kernel"})
LAUNCH = frozenset(
    {"cuda_runtime", "cuda_driver", "Runtime", "hip_runtime", "xpu_runtime", "privateuse1_runtime"}
)
COPY = frozenset({"gpu_memcpy", "gpu_memset", "Memcpy", "Memset"})


class Columns:
    """The events of a rank that are kept, as columns in the order of the file; times in microseconds.

    Attributes:
        start, dur, correlation, stream, name: of each kernel; `name` is an index into `names`.
        names: the kernels' names, once each, with their index.
        shapes: by name of a communication kernel, how often it ran with (blocks in x, threads in x).
        gpu, cpu: the stages' spans on the GPU's time line and on the CPU's.
        launch_correlation, launch_line, launch_at: of each launch its id, its thread, its moment.
        devices: the GPUs that the kernels ran on.
        copies, copy_us: how many copies, and their time.
        threads: the CPU's threads, by the order in which they appear.
    """

    def __init__(self) -> None:
        self.start, self.dur = array("d"), array("d")
        self.correlation, self.stream, self.name = array("q"), array("q"), array("q")
        self.names: dict[str, int] = {}
        self.shapes: dict[str, Counter[tuple[int, int]]] = {}
        self.gpu, self.cpu = SpanTable(), SpanTable()
        self.launch_correlation, self.launch_line = array("q"), array("q")
        self.launch_at = array("d")
        self.devices: set[int | str] = set()
        self.copies, self.copy_us = 0, 0.0
        self.threads: dict[int | str, int] = {}

    def add(self, events: list[Event]) -> None:
        """Keep what these events of the rank say."""
        for event in events:
            cat = event.cat
            if cat in KERNEL:
                self._kernel(event)
            elif cat in LAUNCH:
                correlation = args_of(event).correlation
                if correlation >= 0:
                    self.launch_correlation.append(correlation)
                    self.launch_at.append(event.ts)
                    self.launch_line.append(self._thread(event))
            elif cat == "gpu_user_annotation":
                line = event.tid if isinstance(event.tid, int) else -1
                self.gpu.add(event.name, event.ts, event.dur, line, args_of(event).external)
            elif cat == "user_annotation":
                self.cpu.add(event.name, event.ts, event.dur, self._thread(event), None)
            elif cat in COPY:
                self.copies += 1
                self.copy_us += event.dur

    def _thread(self, event: Event) -> int:
        return self.threads.setdefault(event.tid, len(self.threads))

    def _kernel(self, event: Event) -> None:
        args = args_of(event)
        stream = args.stream if args.stream >= 0 else event.tid
        self.devices.add(event.pid)
        self.start.append(event.ts)
        self.dur.append(event.dur)
        self.correlation.append(args.correlation)
        self.stream.append(stream if isinstance(stream, int) else -1)
        self.name.append(self.names.setdefault(event.name, len(self.names)))
        if args.grid and args.block and names.communication_class(event.name):
            shapes = self.shapes.setdefault(event.name, Counter())
            shapes[args.grid[0], args.block[0]] += 1
