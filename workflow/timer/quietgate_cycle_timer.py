"""A timer inside SGLang's scheduler: draft, verify and extend milliseconds of every cycle.

It runs in the user's own SGLang environment, so it needs nothing but the standard library and the
torch that is there. This folder on PYTHONPATH is the whole installation: from SGLang 0.5.11 the
entry point beside this file (`sglang.srt.plugins`) calls `register`; for 0.5.3 to 0.5.10, which
have no plugins, `sitecustomize` does. It is off unless both variables are set:

    EAGLE3_PROFILE=1
    QUIETGATE_CYCLES=/path/cycles.%p.jsonl      (%p: the rank's process id)

Each rank writes one JSON line per cycle, and one line per worker class saying which hooks attached
and which did not. Times are GPU times between CUDA events that are asked for later and never waited
for; without CUDA they are wall-clock times of the calls.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import json
import os
import re
import sys
import time
from collections import deque
from functools import lru_cache
from pathlib import Path

SWITCH = "EAGLE3_PROFILE"
PATH = "QUIETGATE_CYCLES"
# A result that never comes back (its request was aborted) must not hold up the lines behind it.
PATIENCE = 16
_RANK = re.compile(rb"sglang::scheduler\S*_TP(\d+)")

EAGLE = "sglang.srt.speculative."
# Module -> (worker, [(class, method names of which one exists, what it is)]).
WORKERS = {
    EAGLE + "eagle_worker_v2": (
        "v2",
        [
            ("EagleDraftWorker", ("draft",), "draft"),
            ("EAGLEWorkerV2", ("verify",), "verify"),
            ("EagleDraftWorker", ("_draft_extend_for_decode",), "extend"),
            ("EAGLEWorkerV2", ("forward_batch_generation",), "cycle"),
            ("EAGLEWorkerV2", ("on_verify_complete_cpu",), "accepted"),
        ],
    ),
    EAGLE + "eagle_worker": (
        "v1",
        [
            ("EAGLEWorker", ("draft",), "draft"),
            ("EAGLEWorker", ("verify",), "verify"),
            ("EAGLEWorker", ("forward_draft_extend_after_decode",), "extend"),
            (
                "EAGLEWorker",
                ("forward_batch_generation", "forward_batch_speculative_generation"),
                "cycle",
            ),
        ],
    ),
    "sglang.srt.managers.tp_worker": (
        "decode",
        [("TpModelWorker", ("forward_batch_generation",), "decode")],
    ),
}


class Clock:
    """Moments on the GPU's time line where there is CUDA, else on the wall clock."""

    def __init__(self):
        import torch

        self._cuda = torch.cuda if torch.cuda.is_available() else None
        self.name = "cuda" if self._cuda else "cpu"

    def capturing(self):
        """Whether a CUDA graph is being captured: events recorded now would be of the graph."""
        return bool(self._cuda and self._cuda.is_current_stream_capturing())

    def now(self):
        """This moment, on the current stream."""
        if not self._cuda:
            return time.perf_counter()
        event = self._cuda.Event(enable_timing=True)
        event.record()
        return event

    def passed(self, moment):
        """Whether the GPU has reached the moment; never waits."""
        return moment.query() if self._cuda else True

    def ms(self, start, end):
        """Milliseconds between two moments that have passed."""
        return start.elapsed_time(end) if self._cuda else 1e3 * (end - start)


class Timer:
    """The cycles of one process: the one being launched, and those the GPU still works on."""

    def __init__(self, path):
        self._path = path
        self._file = None
        self._clock = None
        self._open = None  # the cycle whose call is on the stack
        self._previous_start = None  # start of the cycle before it, if nothing came between
        self._pending = deque()
        self._unanswered = deque()  # cycles whose accepted counts come with a later call
        self.accepts_later = False

    def write(self, line):
        """Append one JSON line; a full disk must not stop the server."""
        try:
            if self._file is None:
                path = Path(self._path.replace("%p", str(os.getpid())))
                self._file = path.open("a", buffering=1)  # open for the life of the process
            self._file.write(json.dumps(line) + "\n")
        except OSError:
            pass

    @property
    def clock(self):
        """Made at first use: torch must not be imported or asked for CUDA before SGLang does."""
        if self._clock is None:
            self._clock = Clock()
        return self._clock

    def stage(self, name, call):
        """Run one stage of the cycle; outside a cycle (prefill, capture) just run it."""
        if self._open is None or self.clock.capturing():
            return call()
        start = self.clock.now()
        result = call()
        self._open["stages"][name] = (start, self.clock.now())
        return result

    def verify(self, call):
        """The verify stage; worker v1 returns the accepted counts with it."""
        result = self.stage("verify", call)
        if self._open is not None and isinstance(result, tuple):
            for part in result:
                counts = getattr(part, "accept_length_per_req_cpu", None)
                if counts is not None:
                    self._open["accepted"] = [int(n) for n in counts]
        return result

    def cycle(self, worker, batch, call):
        """Run one call of the worker: a cycle if it verifies, else a prefill."""
        if self._open is not None or self.clock.capturing():
            return call()
        requests = getattr(batch, "reqs", None)
        cycle = self._open = {
            "event": "cycle",
            "t": time.time(),
            "bs": len(requests) if requests is not None else None,
            "tp_rank": _tp_rank(worker),
            "accepted": None,
            "stages": {},
            "start": self.clock.now(),
        }
        try:
            result = call()
        finally:
            self._open = None
        self._finish(cycle, "verify" in cycle["stages"])
        return result

    def decode(self, worker, batch, call):
        """A decode forward without speculation is a cycle of its own."""
        mode = getattr(batch, "forward_mode", None)
        if self._open is not None or self.clock.capturing():
            return call()
        if getattr(mode, "name", None) != "DECODE":
            self._previous_start = None
            return call()
        lengths = getattr(batch, "seq_lens", None)
        start = self.clock.now()
        result = call()
        cycle = {
            "event": "cycle",
            "t": time.time(),
            "bs": len(lengths) if lengths is not None else None,
            "tp_rank": _tp_rank(worker),
            "accepted": None,
            "stages": {"decode": (start, self.clock.now())},
            "start": start,
        }
        self._finish(cycle, True)
        return result

    def accepted(self, counts):
        """Worker v2 tells how many drafts were right when their result reaches the CPU."""
        if self._unanswered:
            self._unanswered.popleft()["accepted"] = [int(n) for n in counts]
        self.flush()

    def _finish(self, cycle, decoded):
        if not decoded:
            self._previous_start = None
            return
        cycle["previous"] = self._previous_start
        self._previous_start = cycle["start"]
        cycle["end"] = self.clock.now()
        self._pending.append(cycle)
        if self.accepts_later and "verify" in cycle["stages"]:
            self._unanswered.append(cycle)
        self.flush()

    def flush(self):
        """Write the cycles that are complete, in order."""
        while self._pending:
            cycle = self._pending[0]
            waiting = cycle["accepted"] is None and any(c is cycle for c in self._unanswered)
            if waiting and len(self._pending) > PATIENCE:
                self._unanswered.popleft()
                waiting = False
            if waiting or not self.clock.passed(cycle["end"]):
                return
            self._pending.popleft()
            self.write(self._line(cycle))

    def _line(self, cycle):
        line = {k: cycle[k] for k in ("event", "t", "bs", "tp_rank", "accepted")}
        for name, (start, end) in cycle["stages"].items():
            line[name + "_ms"] = self.clock.ms(start, end)
        line["worker_ms"] = self.clock.ms(cycle["start"], cycle["end"])
        previous = cycle["previous"]
        # From the start of the cycle before to the start of this one: the whole cycle, gaps included.
        line["cycle_ms"] = self.clock.ms(previous, cycle["start"]) if previous is not None else None
        line["clock"] = self.clock.name
        return line


def _tp_rank(worker):
    """The tensor-parallel rank, from the worker or the process's title; None where there is one."""
    rank = getattr(worker, "tp_rank", None)
    return _titled_rank() if rank is None else rank


@lru_cache(maxsize=1)
def _titled_rank():
    try:
        found = _RANK.search(Path("/proc/self/cmdline").read_bytes())
    except OSError:
        return None
    return int(found.group(1)) if found else None


def _around(timer, original, role):
    """The method that stands in for `original`."""
    if role == "verify":

        def hooked(self, *args, **kwargs):
            return timer.verify(lambda: original(self, *args, **kwargs))

    elif role == "accepted":

        def hooked(self, counts, *args, **kwargs):
            result = original(self, counts, *args, **kwargs)
            timer.accepted(counts)
            return result

    elif role in ("cycle", "decode"):
        run = timer.cycle if role == "cycle" else timer.decode

        def hooked(self, batch, *args, **kwargs):
            return run(self, batch, lambda: original(self, batch, *args, **kwargs))

    else:

        def hooked(self, *args, **kwargs):
            return timer.stage(role, lambda: original(self, *args, **kwargs))

    hooked.__name__ = getattr(original, "__name__", role)
    hooked.__wrapped__ = original
    hooked.quietgate = role
    return hooked


def attach(timer, module):
    """Hook the worker classes of an imported module; say which hooks attached and which did not."""
    worker, hooks = WORKERS[module.__name__]
    attached, missing = [], []
    for class_name, methods, role in hooks:
        owner = getattr(module, class_name, None)
        found = next((m for m in methods if owner is not None and m in vars(owner)), None)
        if found is None:
            missing.append(f"{module.__name__}.{class_name}.{methods[0]}")
            continue
        original = vars(owner)[found]
        if not hasattr(original, "quietgate"):
            setattr(owner, found, _around(timer, original, role))
        attached.append(f"{class_name}.{found}")
        if role == "accepted":
            timer.accepts_later = True
    line = {"event": "hooks", "worker": worker, "pid": os.getpid(), "t": time.time()}
    timer.write(line | {"attached": attached, "missing": missing})


class _Finder(importlib.abc.MetaPathFinder):
    """Hooks the worker modules right after they are imported, wherever that happens."""

    def __init__(self, timer):
        self.timer = timer

    def find_spec(self, name, path=None, target=None):
        """The real spec with a loader that attaches the hooks; None for all other modules."""
        if name not in WORKERS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self.timer)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, loader, timer):
        self._loader, self._timer = loader, timer

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        self._loader.exec_module(module)
        _attach_safely(self._timer, module)


def _attach_safely(timer, module):
    try:
        attach(timer, module)
    except Exception as e:  # the server must run, timed or not; the file says why it is not
        missing = [f"{module.__name__}: {type(e).__name__}: {e}"]
        timer.write({"event": "hooks", "pid": os.getpid(), "attached": [], "missing": missing})


def register():
    """Install the timer in this process, once; nothing unless switched on."""
    path = os.environ.get(PATH)
    if os.environ.get(SWITCH, "0") in ("", "0") or not path:
        return
    if any(isinstance(f, _Finder) for f in sys.meta_path):
        return
    timer = Timer(path)
    sys.meta_path.insert(0, _Finder(timer))
    for name in WORKERS:
        if name in sys.modules:
            _attach_safely(timer, sys.modules[name])
