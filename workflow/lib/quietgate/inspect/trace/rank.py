"""One rank's trace file: its kernels, its communication, its spans.

Where the profiler put the spans on the GPU time line, a kernel belongs to the span that holds its
start on the same stream. Where there are CPU spans alone, it belongs to the span in which it was
launched: correlation ids join a launch, or the launch of a whole CUDA graph, to its kernels.
A trace without a GPU has spans and nothing else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from quietgate.errors import BadInput
from quietgate.inspect.trace import communication, names, spans
from quietgate.inspect.trace.columns import Columns
from quietgate.inspect.trace.identity import identity
from quietgate.inspect.trace.spans import Floats, Ints, KernelColumns, SpanTable
from quietgate.inspect.trace.stream import Event, TraceFile

# SGLang's merged profile marks every event with its rank: "[TP00-DP01] 4711" stands for process 4711.
_RANK_IN_PID = re.compile(r"\[([A-Z]+\d+(?:-[A-Z]+\d+)*)\] |(?i:(rank[ _:-]?\d+)\b)")
# Among so many events of a block, one is marked where any is: process names may come first.
_LOOKED_AT = 64


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
    """What one file says of one rank; `summary` is plain JSON, `problem` one line for the person."""

    summary: dict[str, Any]
    collectives: Collectives
    problem: str | None = None


def read_ranks(path: Path) -> list[RankTrace]:
    """Read one trace file: one rank, or several in SGLang's merged profile; BadInput for what is no trace."""
    trace = TraceFile(path)
    every: dict[str, Columns] = {}
    for events in trace.blocks():
        for label, part in _by_rank(events).items():
            every.setdefault(label, Columns()).add(part)
    used = {n: c for n, c in every.items() if c.start or c.cpu.stage or c.threads}
    if not used:
        totals = _kernel_totals(trace.meta)
        if totals is None:
            raise BadInput(f"{path}: no kernel, launch or span in it; is it a torch profiler trace?")
        return [_of_totals(trace, totals)]
    ranks = [_summarised(trace, columns) for columns in used.values()]
    for label, rank in zip(used, ranks, strict=True):
        if place := re.search(r"(?i)(?:TP|rank[ _:-]?)(\d+)", label):
            rank.summary["rank"] = int(place[1])
    return ranks


def _by_rank(events: list[Event]) -> dict[str, list[Event]]:
    """The events by the rank that their process names; in a file of one rank none does."""
    if not any(isinstance(e.pid, str) and _RANK_IN_PID.match(e.pid) for e in events[:_LOOKED_AT]):
        return {"": events}
    parts: dict[str, list[Event]] = {}
    for event in events:
        found = _RANK_IN_PID.match(str(event.pid))
        parts.setdefault((found[1] or found[2]) if found else "", []).append(event)
    return parts


def _summarised(trace: TraceFile, columns: Columns) -> RankTrace:
    texts = list(columns.names)
    start, dur = np.array(columns.start), np.array(columns.dur)
    name = np.array(columns.name, dtype=np.int64)
    communicating = np.array([names.communication_class(t) is not None for t in texts], dtype=bool)
    communicates = communicating[name] if len(name) else np.zeros(0, dtype=bool)
    table, kernels, source = _belonging(columns, start, dur, communicates)
    problem = None
    if len(columns.devices) > 1:
        # Streams of several GPUs have the same numbers: which kernels a span holds cannot be told.
        table = SpanTable()
        problem = (
            f"{trace.path}: kernels of {len(columns.devices)} GPUs in one trace: totals are over them, "
            "stages are left out; profile each rank in a file of its own"
        )
    elif len(dur) and not dur.any():
        problem = f"{trace.path}: none of its {len(dur)} kernels has a duration"
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
    summary = identity(trace) | {
        "kernels": {"count": len(start), "ms": kernel_ms, "busy_ms": _busy_ms(start, dur)},
        "copies": {"count": columns.copies, "ms": columns.copy_us / 1e3},
        "communication": communication.of_events(columns, texts, name, dur, kernel_ms),
        "span_source": source if found else None,
        "spans": spans.summary(found, source),
        "cycle_ms": spans.cycle_ms(found),
    }
    return RankTrace(summary, collectives, problem)


def _belonging(
    columns: Columns, start: Floats, dur: Floats, communicates: Any
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
    kernel_ms = sum(us for _, us in totals) / 1e3
    summary = identity(trace) | {
        "kernels": {"count": None, "ms": kernel_ms, "busy_ms": None},
        "copies": {"count": None, "ms": None},
        "communication": communication.of_totals(totals, kernel_ms),
        "span_source": None,
        "spans": {},
        "cycle_ms": None,
    }
    return RankTrace(summary, Collectives([], np.zeros(0), np.zeros(0), np.zeros(0, dtype=np.int64), [], []))
