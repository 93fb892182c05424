"""One rank's trace file: its kernels, its communication, its spans.

Where the profiler put the spans on the GPU time line, a kernel belongs to the span that holds its
start on the same stream. Where there are CPU spans alone, it belongs to the span in which it was
launched: correlation ids join a launch, or the launch of a whole CUDA graph, to its kernels.
A trace without a GPU has spans and nothing else.
"""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from quietgate.errors import BadInput
from quietgate.inspect.trace import names, spans
from quietgate.inspect.trace.spans import Floats, Ints, KernelColumns, SpanTable
from quietgate.inspect.trace.stream import Event, TraceFile, args_of

_RANK_IN_NAME = re.compile(r"(?:^|-)(TP|DP|PP|EP)-(\d+)(?=[-.])")
# SGLang's merged profile marks every event with its rank: "[TP00-DP01] 4711" stands for process 4711.
_RANK_IN_PID = re.compile(r"\[([A-Z]+\d+(?:-[A-Z]+\d+)*)\] ")
_PART_IN_NAME = re.compile(r"-(EXTEND|DECODE|PREFILL)(?=[.-])")

KERNEL = frozenset({"kernel", "Kernel"})
LAUNCH = frozenset({"cuda_runtime", "cuda_driver", "Runtime", "hip_runtime", "privateuse1_runtime"})
COPY = frozenset({"gpu_memcpy", "gpu_memset", "Memcpy", "Memset"})


@dataclass
class Collectives:
    """The communication kernels of a rank, by start: what the ranks are compared by."""

    name: list[str]
    start: Floats
    dur: Floats
    # Per kernel the span that it is in (-1: none); per span its stage, and whether its values are steady.
    span: Ints
    stages: list[str]
    steady: list[bool]


@dataclass
class RankTrace:
    """What one file says; `summary` is plain JSON."""

    summary: dict[str, Any]
    collectives: Collectives


class _Columns:
    """The events of a file that are kept, as columns; names once."""

    def __init__(self) -> None:
        self.start, self.dur = array("d"), array("d")
        self.correlation, self.stream, self.name = array("q"), array("q"), array("q")
        self.names: dict[str, int] = {}
        self.shapes: dict[str, Counter[tuple[int, int]]] = {}
        self.gpu, self.cpu = SpanTable(), SpanTable()
        self.launch_correlation, self.launch_line = array("q"), array("q")
        self.launch_at = array("d")
        self.copies, self.copy_us = 0, 0.0
        self.threads: dict[int | str, int] = {}

    def add(self, events: list[Event]) -> None:
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
        self.start.append(event.ts)
        self.dur.append(event.dur)
        self.correlation.append(args.correlation)
        self.stream.append(stream if isinstance(stream, int) else -1)
        self.name.append(self.names.setdefault(event.name, len(self.names)))
        if args.grid and args.block and names.communication_class(event.name):
            shapes = self.shapes.setdefault(event.name, Counter())
            shapes[args.grid[0], args.block[0]] += 1


def read_ranks(path: Path) -> list[RankTrace]:
    """Read one trace file: one rank, or several in SGLang's merged profile; BadInput for what is no trace."""
    trace = TraceFile(path)
    every: dict[str, _Columns] = {}
    for events in trace.blocks():
        for label, part in _by_rank(events).items():
            every.setdefault(label, _Columns()).add(part)
    used = {n: c for n, c in every.items() if c.start or c.cpu.stage or c.threads}
    if not used:
        totals = _kernel_totals(trace.meta)
        if totals is None:
            raise BadInput(f"{path}: no kernel, launch or span in it; is it a torch profiler trace?")
        return [_of_totals(trace, totals)]
    ranks = [_summarised(trace, columns) for columns in used.values()]
    for label, rank in zip(used, ranks, strict=True):
        if place := re.search(r"TP(\d+)", label):
            rank.summary["rank"] = int(place[1])
    return ranks


def _by_rank(events: list[Event]) -> dict[str, list[Event]]:
    """The events by the rank that their process names; in a file of one rank none does."""
    if not events or not isinstance(events[0].pid, str) or not _RANK_IN_PID.match(events[0].pid):
        return {"": events}
    parts: dict[str, list[Event]] = {}
    for event in events:
        found = _RANK_IN_PID.match(str(event.pid))
        parts.setdefault(found[1] if found else "", []).append(event)
    return parts


def _summarised(trace: TraceFile, columns: _Columns) -> RankTrace:
    texts = list(columns.names)
    start, dur = np.array(columns.start), np.array(columns.dur)
    name = np.array(columns.name, dtype=np.int64)
    communicating = np.array([names.communication_class(t) is not None for t in texts], dtype=bool)
    communicates = communicating[name] if len(name) else np.zeros(0, dtype=bool)
    table, kernels, source = _belonging(columns, start, dur, communicates)
    found, span_of = spans.occurrences(table, kernels)
    lasting = {id(o) for o in spans.steady(found)}
    order = np.flatnonzero(communicates)
    order = order[np.argsort(start[order], kind="stable")]
    collectives = Collectives(
        name=[names.short(texts[i]) for i in name[order]],
        start=start[order],
        dur=dur[order],
        span=span_of[order] if len(span_of) else np.full(len(order), -1, dtype=np.int64),
        stages=[o.stage for o in found],
        steady=[id(o) in lasting for o in found],
    )
    kernel_ms = float(dur.sum()) / 1e3
    summary = _identity(trace) | {
        "kernels": {"count": len(start), "ms": kernel_ms, "busy_ms": _busy_ms(start, dur)},
        "copies": {"count": columns.copies, "ms": columns.copy_us / 1e3},
        "communication": _communication(columns, texts, name, dur, kernel_ms),
        "span_source": source if found else None,
        "spans": spans.summary(found, source),
        "cycle_ms": spans.cycle_ms(found),
    }
    return RankTrace(summary, collectives)


def _belonging(
    columns: _Columns, start: Floats, dur: Floats, communicates: Any
) -> tuple[SpanTable, KernelColumns | None, str]:
    """The spans to use, and by which line and moment a kernel belongs to one of them."""
    wanted = np.array(columns.correlation, dtype=np.int64)
    if columns.gpu.stage:
        stream = np.array(columns.stream, dtype=np.int64)
        return columns.gpu, KernelColumns(start, dur, communicates, stream, start, wanted), "gpu_spans"
    if not columns.launch_at or not columns.start:
        return columns.cpu, None, "cpu_spans"
    launches = np.array(columns.launch_correlation, dtype=np.int64)
    order = np.argsort(launches, kind="stable")
    at = np.minimum(np.searchsorted(launches[order], wanted), len(order) - 1)
    launch = order[at]
    known = launches[launch] == wanted
    line = np.where(known, np.array(columns.launch_line, dtype=np.int64)[launch], -1)
    moment = np.array(columns.launch_at)[launch]
    return columns.cpu, KernelColumns(start, dur, communicates, line, moment, wanted), "launches"


def _busy_ms(start: Floats, dur: Floats) -> float:
    """Time during which at least one kernel ran: overlapping streams counted once."""
    if not len(start):
        return 0.0
    order = np.argsort(start, kind="stable")
    begin, end = start[order], (start + dur)[order]
    reached = np.maximum.accumulate(end)
    gaps = np.maximum(begin[1:] - reached[:-1], 0.0).sum()
    return float(reached[-1] - begin[0] - gaps) / 1e3


def _communication(
    columns: _Columns, texts: list[str], name: Any, dur: Floats, kernel_ms: float
) -> dict[str, Any]:
    counts = np.bincount(name, minlength=len(texts)) if len(name) else np.zeros(0, dtype=np.int64)
    sums = np.bincount(name, weights=dur, minlength=len(texts)) if len(name) else np.zeros(0)
    by_kernel: dict[str, Any] = {}
    by_class: dict[str, Any] = {}
    for number, text in enumerate(texts):
        kind = names.communication_class(text)
        if kind is None:
            continue
        count, ms = int(counts[number]), float(sums[number]) / 1e3
        entry = by_kernel.setdefault(names.short(text), _kernel_entry(text, kind))
        entry["count"] += count
        entry["ms"] += ms
        shapes = columns.shapes.get(text, Counter())
        entry["grids"] = sorted({*entry["grids"], *(grid for grid, _ in shapes)})
        entry["blocks"] = sorted({*entry["blocks"], *(block for _, block in shapes)})
        total = by_class.setdefault(kind, {"count": 0, "ms": 0.0})
        total["count"] += count
        total["ms"] += ms
    ms = math.fsum(entry["ms"] for entry in by_class.values())
    return {
        "count": sum(entry["count"] for entry in by_class.values()),
        "ms": ms,
        "share": ms / kernel_ms if kernel_ms else None,
        "by_class": by_class,
        "by_kernel": by_kernel,
    }


def _kernel_entry(text: str, kind: str) -> dict[str, Any]:
    """A communication kernel: grid size is evidence of channels, block size of threads."""
    return {
        "class": kind,
        "collective": names.collective(text),
        "tree": names.tree(text),
        "count": 0,
        "ms": 0.0,
        "grids": [],
        "blocks": [],
    }


def _identity(trace: TraceFile) -> dict[str, Any]:
    """Which rank of what: from torch's own header, else from the file's name."""
    info = trace.meta.get("distributedInfo")
    if isinstance(info, str):
        try:
            info = msgspec.json.decode(info.replace("'", '"'))
        except msgspec.DecodeError:
            info = None
    info = info if isinstance(info, dict) else {}
    in_name = dict(_RANK_IN_NAME.findall(trace.path.name))
    part = _PART_IN_NAME.search(trace.path.name)
    rank = info.get("rank")
    if not isinstance(rank, int):
        rank = int(in_name["TP"]) if "TP" in in_name else None
    devices = trace.meta.get("deviceProperties")
    devices = devices if isinstance(devices, list) else []
    gpus = sorted({str(d["name"]) for d in devices if isinstance(d, dict) and "name" in d})
    return {
        "file": trace.path.name,
        "rank": rank,
        "part": part.group(1).lower() if part else None,
        "world_size": info.get("world_size"),
        "gpus": gpus,
        # The NCCL that torch was built with. What ran may be another (a preloaded library): only
        # NCCL's own log and the process's maps know.
        "nccl_torch_was_built_with": info.get("nccl_version"),
        "with_stack": bool(trace.meta.get("with_stack")),
        "json_mb": trace.json_bytes / 1e6,
    }


def _kernel_totals(meta: dict[str, Any]) -> list[tuple[str, float]] | None:
    """Totals per kernel (`[[name, microseconds], ...]`) that someone drew from a trace, or None."""
    for value in meta.values():
        if not isinstance(value, list) or not value:
            continue
        if all(
            isinstance(v, list) and len(v) == 2 and isinstance(v[0], str) and isinstance(v[1], int | float)
            for v in value
        ):
            return [(v[0], float(v[1])) for v in value]
    return None


def _of_totals(trace: TraceFile, totals: list[tuple[str, float]]) -> RankTrace:
    by_kernel: dict[str, Any] = {}
    by_class: dict[str, Any] = {}
    for text, us in totals:
        kind = names.communication_class(text)
        if kind is None:
            continue
        entry = by_kernel.setdefault(names.short(text), _kernel_entry(text, kind) | {"count": None})
        entry["ms"] += us / 1e3
        total = by_class.setdefault(kind, {"count": None, "ms": 0.0})
        total["ms"] += us / 1e3
    kernel_ms = sum(us for _, us in totals) / 1e3
    ms = math.fsum(entry["ms"] for entry in by_class.values())
    summary = _identity(trace) | {
        "kernels": {"count": None, "ms": kernel_ms, "busy_ms": None},
        "copies": {"count": None, "ms": None},
        "communication": {
            "count": None,
            "ms": ms,
            "share": ms / kernel_ms if kernel_ms else None,
            "by_class": by_class,
            "by_kernel": by_kernel,
        },
        "span_source": None,
        "spans": {},
        "cycle_ms": None,
    }
    return RankTrace(summary, Collectives([], np.zeros(0), np.zeros(0), np.zeros(0, dtype=np.int64), [], []))
