"""What each source says about a cycle: draft, verify, extend, decode and cycle milliseconds.

Four sources, best first: SGLang's stage timer (GPU time between events, in the timed passes), the
per-cycle timer (the same, cycle by cycle, with the cycle itself), the torch trace (kernel time, in a
pass of its own), arithmetic from the timed requests (the cycle alone). Each quantity is a number or
null, and every null has its reason beside it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

from quietgate.inspect.metrics import since, timer_has

QUANTITIES = ("draft_ms", "verify_ms", "extend_ms", "decode_ms", "cycle_ms")
STAGES = ("draft_ms", "verify_ms", "extend_ms")

NO_SPECULATION = "no speculation: a cycle is one decode forward"
SPECULATION = "under speculation every decode forward is a verify"

Source = dict[str, Any]


def empty(why: str) -> Source:
    """A source that has nothing, for one reason."""
    return dict.fromkeys(QUANTITIES) | {"why": dict.fromkeys(QUANTITIES, why)}


def source(values: dict[str, float | None], why: dict[str, str], **more: Any) -> Source:
    """A source with every quantity; those without a value keep a reason, the others none."""
    full = {name: values.get(name) for name in QUANTITIES}
    missing = {name: why.get(name, "not measured") for name in QUANTITIES if full[name] is None}
    return full | {"why": missing} | more


def _by_grid(steps: int) -> dict[str, str]:
    """The reasons that follow from the number of steps alone."""
    if steps:
        return {"decode_ms": SPECULATION}
    return dict.fromkeys(STAGES, NO_SPECULATION)


def device_timer(windows: list[dict[str, Any]], steps: int, version: str | None) -> Source:
    """SGLang's stage timer over the windows of one concurrency: the median over their repeats."""
    timed = [w for w in windows if w.get("source") == "device_timer"]
    if not timed:
        whys = [w["why"] for w in windows if w.get("why")]
        return empty(whys[0] if whys else "no window of the stage timer")
    why = {"cycle_ms": "the timer covers stages, not the cycle"} | _timer_holes(steps, version)
    values: dict[str, float | None] = {}
    for stage in ("draft", "verify", "extend", "decode"):
        name = f"{stage}_ms"
        seen = [w["ms_per_pass"][stage] for w in timed if stage in w.get("ms_per_pass", {})]
        if seen and bool(steps) != (stage == "decode"):
            values[name] = median(seen)
    problems = sorted({p for w in timed for p in w.get("problems", [])})
    eager = [w["ms_per_pass"]["decode"] for w in timed if "decode" in w.get("ms_per_pass", {})]
    if steps and eager and "draft_ms" not in values:
        # The target does no decode under speculation: these are forwards of the draft model, which
        # SGLang calls so where no graph is replayed.
        values["draft_ms"] = median(eager)
        problems.append("draft_ms is the time of the draft model's eager decode forwards")
    return source(values, why | _by_grid(steps), windows=len(timed), problems=problems)


def _timer_holes(steps: int, version: str | None) -> dict[str, str]:
    named = f"SGLang {version}" if version else "this SGLang"
    holes = {
        stage: f"{named} does not time it (from {since(stage.removesuffix('_ms'))})"
        for stage in STAGES
        if timer_has(stage.removesuffix("_ms"), version) is not True
    }
    absent = "the timer has no such stage here: it wraps the replay of CUDA graphs alone"
    holes = dict.fromkeys((*STAGES, "decode_ms"), absent) | holes
    if steps == 1 and timer_has("draft", version) is not False:
        holes["draft_ms"] = "no draft graph at one step, and the timer wraps graph replays alone"
    return holes


def trace(found: dict[str, Any] | None, why: str | None, steps: int) -> Source:
    """Kernel time inside the spans of the profiler pass; on a CPU the spans themselves.

    `kind` says which: "kernels" (not stretched by the profiler) or "spans" (stretched).
    """
    if found is None:
        return empty(why or "no trace")
    spans = found["spans"]
    kernels = any(s["steady"]["kernel_ms"] is not None for s in spans.values())
    field = "kernel_ms" if kernels else "span_ms"
    values: dict[str, float | None] = {}
    extents: dict[str, float | None] = {}
    replays: dict[str, float | None] = {}
    names = {"draft": "draft", "verify": "verify", "draft_extend": "extend", "decode": "decode"}
    for span, stage in names.items():
        if span in spans and (steps or stage == "decode"):
            values[f"{stage}_ms"] = spans[span]["steady"][field]
            extents[f"{stage}_ms"] = spans[span]["steady"]["extent_ms"]
            replays[f"{stage}_ms"] = spans[span]["steady"]["replay_ms"]
    if steps:
        values.pop("decode_ms", None)
    absent = "the trace has no span of it"
    reasons = dict.fromkeys(QUANTITIES, absent) | {
        "cycle_ms": "the profiler stretches the cycle; its own is under `profiler`"
    }
    return source(
        values,
        reasons | _by_grid(steps),
        kind="kernels" if kernels else "spans",
        extents=extents,
        replays=replays,
        problems=found["problems"],
    )


def requests(passes: list[dict[str, Any]]) -> Source:
    """Arithmetic from the timed requests of one concurrency: the cycle, the median over repeats."""
    cycles = [p["cycle_ms"] for p in passes if p.get("cycle_ms")]
    whole = "requests see whole cycles, not stages"
    why = dict.fromkeys(QUANTITIES, whole) | {"cycle_ms": "no timed request gives a cycle"}
    return source({"cycle_ms": median(cycles) if cycles else None}, why)


def tokens_per_cycle(passes: list[dict[str, Any]], steps: int) -> float | None:
    """Of timed passes, the median over them; 1 without speculation, by definition."""
    if not steps:
        return 1.0
    seen = [p["tokens_per_cycle"] for p in passes if p.get("tokens_per_cycle") is not None]
    return median(seen) if seen else None


def cycle_timer(files: Iterable[Path], windows: list[dict[str, Any]], steps: int) -> Source | None:
    """The per-cycle timer's lines, the median over cycles and then over ranks; None without any.

    Only cycles inside the windows count (warm-up and the profiler pass are timed too), where the
    windows say when they were.
    """
    times = [(w["from_epoch_s"], w["to_epoch_s"]) for w in windows if w.get("from_epoch_s")]
    ranks: list[dict[str, float]] = []
    missing: list[str] = []
    cycles = 0
    for file in files:
        lines = [_line(text) for text in file.read_text(errors="replace").splitlines()]
        for line in lines:
            missing += line.get("missing", [])
        timed = [
            line
            for line in lines
            if line.get("event") == "cycle"
            and (not times or any(start <= line.get("t", math.nan) <= end for start, end in times))
        ]
        cycles = max(cycles, len(timed))
        rank = {
            name: median(seen)
            for name in QUANTITIES
            if (seen := [line[name] for line in timed if isinstance(line.get(name), int | float)])
        }
        if rank:
            ranks.append(rank)
    if not ranks:
        return None
    values: dict[str, float | None] = {
        name: median(seen) for name in QUANTITIES if (seen := [r[name] for r in ranks if name in r])
    }
    why = dict.fromkeys(QUANTITIES, "the hook did not attach or was not called")
    problems = [f"hook did not attach: {name}" for name in sorted(set(missing))]
    return source(values, why | _by_grid(steps), cycles=cycles, problems=problems)


def _line(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:  # the last line of a killed rank
        return {}
    return found if isinstance(found, dict) else {}
