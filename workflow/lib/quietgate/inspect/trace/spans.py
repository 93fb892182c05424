"""Spans of the stages, and the kernel time that belongs to each.

A span's own duration is stretched by the profiler wherever work is launched from the CPU; the
kernels inside it are not. So kernel time is what a stage costs, and the extent from the first
kernel's start to the last one's end is kernel time plus gaps. The same of the CUDA graphs replayed
in it (`replay_ms`) is hardly stretched: a graph's kernels are launched all at once.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from quietgate.inspect.trace import names

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# The first cycles under the profiler still warm its buffers: steady values leave them out.
TRIMMED_CYCLES = 2


@dataclass
class SpanTable:
    """Spans of one time line (the GPU's or the CPU's) as columns, in the order of the file."""

    stage: list[str] = field(default_factory=list)
    label: list[str] = field(default_factory=list)
    alone: list[bool] = field(default_factory=list)
    start_us: array[float] = field(default_factory=lambda: array("d"))
    dur_us: array[float] = field(default_factory=lambda: array("d"))
    line: array[int] = field(default_factory=lambda: array("q"))
    occurrence: list[int | None] = field(default_factory=list)

    def add(self, name: str, start: float, dur: float, line: int, occurrence: int | None) -> None:
        """Keep a span if its name is a stage's; `occurrence` joins its pieces on several streams."""
        kind = names.span(name)
        if kind is None:
            return
        self.stage.append(kind[0])
        self.label.append(name)
        self.alone.append(kind[1])
        self.start_us.append(start)
        self.dur_us.append(dur)
        self.line.append(line)
        self.occurrence.append(occurrence)

    def counted(self) -> list[int]:
        """The spans that count, by start: a step inside `draft` counts only where that is absent."""
        outer = {s for s, alone in zip(self.stage, self.alone, strict=True) if alone}
        # Beside verify spans, a decode step is one forward of the draft model.
        inside = {"decode"} if "verify" in outer else set()
        return sorted(
            (
                i
                for i, stage in enumerate(self.stage)
                if stage not in inside and (self.alone[i] or stage not in outer)
            ),
            key=self.start_us.__getitem__,
        )


@dataclass
class Occurrence:
    """One span of a stage with the kernels that belong to it, all in microseconds."""

    stage: str
    label: str
    start: float
    end: float
    kernel_us: float = 0.0
    communication_us: float = 0.0
    first: float = float("inf")
    last: float = float("-inf")
    replay_us: float = 0.0

    @property
    def extent_us(self) -> float | None:
        """From the first kernel's start to the last one's end; None without kernels."""
        return self.last - self.first if self.last > self.first else None


@dataclass(frozen=True)
class KernelColumns:
    """Kernels as columns, with the time line and moment by which they belong to a span."""

    start: Floats
    dur: Floats
    communicates: npt.NDArray[np.bool_]
    line: Ints
    moment: Floats
    # The launch that started each kernel; a launch of several kernels is the replay of a CUDA graph.
    launch: Ints


def occurrences(table: SpanTable, kernels: KernelColumns | None) -> tuple[list[Occurrence], Ints]:
    """The spans that count with their kernels, by start; and which of them each kernel is in (-1: none)."""
    span_of = np.full(0 if kernels is None else len(kernels.start), -1, dtype=np.int64)
    by_line = _lines(kernels)
    found: dict[tuple[str, Any], Occurrence] = {}
    number: dict[tuple[str, Any], int] = {}
    for i in table.counted():
        start, end = table.start_us[i], table.start_us[i] + table.dur_us[i]
        key = (table.stage[i], ("at", i) if table.occurrence[i] is None else table.occurrence[i])
        one = found.setdefault(key, Occurrence(table.stage[i], table.label[i], start, end))
        number.setdefault(key, len(number))
        one.start, one.end = min(one.start, start), max(one.end, end)
        if kernels is None or table.line[i] not in by_line:
            continue
        order, moments = by_line[table.line[i]]
        low, high = np.searchsorted(moments, (start - 0.002, end), side="left")
        inside = order[low:high]
        if not len(inside):
            continue
        span_of[inside] = number[key]
        durations = kernels.dur[inside]
        one.kernel_us += float(durations.sum())
        one.communication_us += float(durations[kernels.communicates[inside]].sum())
        one.replay_us += _replay_us(kernels, inside)
        one.first = min(one.first, float(kernels.start[inside].min()))
        one.last = max(one.last, float((kernels.start[inside] + durations).max()))
    every = list(found.values())
    by_start = sorted(range(len(every)), key=lambda i: every[i].start)
    place = np.full(len(every) + 1, -1, dtype=np.int64)  # the last one is that of no span
    place[by_start] = np.arange(len(every))
    return [every[i] for i in by_start], place[span_of]


def _replay_us(kernels: KernelColumns, inside: Ints) -> float:
    """From the first kernel's start to the last one's end of each graph replayed among some kernels."""
    inside = inside[kernels.launch[inside] > 0]
    _, of, count = np.unique(kernels.launch[inside], return_inverse=True, return_counts=True)
    if not len(count) or count.max() < 2:
        return 0.0
    start = kernels.start[inside]
    first, last = np.full(len(count), np.inf), np.full(len(count), -np.inf)
    np.minimum.at(first, of, start)
    np.maximum.at(last, of, start + kernels.dur[inside])
    return float((last - first)[count > 1].sum())


def _lines(kernels: KernelColumns | None) -> dict[int, tuple[Ints, Floats]]:
    if kernels is None:
        return {}
    lines: dict[int, tuple[Ints, Floats]] = {}
    for line in np.unique(kernels.line):
        mine = np.flatnonzero(kernels.line == line)
        order = mine[np.argsort(kernels.moment[mine], kind="stable")]
        lines[int(line)] = (order, kernels.moment[order])
    return lines


def summary(found: list[Occurrence], source: str) -> dict[str, Any]:
    """Per stage: count, mean kernel and communication time, and the steady medians.

    The means are over every span of the stage. `steady` leaves out the first cycles and those
    draft-extend spans that belong to a prefill; its medians are what a cycle costs.
    """
    with_kernels = source != "cpu_spans"
    stages: dict[str, Any] = {}
    lasting = steady(found)
    for stage in names.STAGES:
        every = [o for o in found if o.stage == stage]
        if not every:
            continue
        labels: dict[str, int] = {}
        for o in every:
            labels[o.label] = labels.get(o.label, 0) + 1
        kept = [o for o in lasting if o.stage == stage]
        stages[stage] = {
            "count": len(every),
            "kernel_ms_per_span": _mean_ms([o.kernel_us for o in every]) if with_kernels else None,
            "communication_ms_per_span": (
                _mean_ms([o.communication_us for o in every]) if with_kernels else None
            ),
            "span_ms_median": _median_ms([o.end - o.start for o in every]),
            "labels": labels,
            "steady": {
                "count": len(kept),
                "kernel_ms": _median_ms([o.kernel_us for o in kept]) if with_kernels else None,
                "communication_ms": (
                    _median_ms([o.communication_us for o in kept]) if with_kernels else None
                ),
                "extent_ms": _median_ms([e for o in kept if (e := o.extent_us) is not None]),
                "replay_ms": _median_ms([o.replay_us for o in kept if o.replay_us > 0]),
                "span_ms": _median_ms([o.end - o.start for o in kept]),
            },
        }
    return stages


def cycle_ms(found: list[Occurrence]) -> float | None:
    """The median time between the starts of consecutive cycles under the profiler.

    A cycle starts where its verify does (without speculation: its decode step); intervals that
    hold a prefill are left out.
    """
    stage = "verify" if any(o.stage == "verify" for o in found) else "decode"
    intervals: list[float] = []
    last: float | None = None
    for o in found:
        if o.stage == "prefill":
            last = None
        elif o.stage == stage:
            if last is not None:
                intervals.append(o.start - last)
            last = o.start
    return _median_ms(intervals[TRIMMED_CYCLES - 1 :] or intervals)


def steady(found: list[Occurrence]) -> list[Occurrence]:
    """Without the first cycles and without those draft-extend spans that belong to a prefill."""
    kept: list[Occurrence] = []
    seen: dict[str, int] = {}
    previous = ""
    for o in found:
        of_prefill = o.stage == "draft_extend" and previous in ("prefill", "")
        if o.stage != "draft_extend" or previous != "prefill":
            previous = o.stage
        seen[o.stage] = seen.get(o.stage, 0) + (not of_prefill)
        if not of_prefill and (seen[o.stage] > TRIMMED_CYCLES or o.stage == "prefill"):
            kept.append(o)
    # A trace of very few cycles has nothing to spare: keep all of them rather than none.
    for stage in {o.stage for o in found} - {o.stage for o in kept}:
        kept += [o for o in found if o.stage == stage]
    return kept


def _mean_ms(values_us: list[float]) -> float | None:
    return float(np.mean(values_us)) / 1e3 if values_us else None


def _median_ms(values_us: list[float]) -> float | None:
    return float(np.median(values_us)) / 1e3 if values_us else None
