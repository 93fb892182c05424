"""SGLang's own stage timer over exactly one timed pass: stage seconds, decode passes, counters.

The timer (SGLANG_ENABLE_METRICS_DEVICE_TIMER=1 with --enable-metrics) adds the GPU time between
CUDA events around each stage to a counter. It has no events on a CPU, none before SGLang 0.5.11,
and a stage that a release does not time is absent: each hole is null with the reason beside it.
"""

from __future__ import annotations

import time
from typing import Any

from quietgate.errors import BadInput
from quietgate.inspect import metrics
from quietgate.inspect.metrics import STAGE_OF_CATEGORY, Rank, Snapshot
from quietgate.measure import exchange

TIMEOUT_S = 10.0

NO_TIMER = (
    f"/metrics has no {metrics.TIMER}: SGLANG_ENABLE_METRICS_DEVICE_TIMER is not set, SGLang is "
    f"older than {metrics.since('verify')}, or the device has no CUDA events"
)
IDLE_TIMER = "the stage timer did not advance in this window"


def snapshot(base_url: str, timeout_s: float = TIMEOUT_S) -> Snapshot:
    """Read `/metrics` now; where that fails, an empty reading that says why."""
    try:
        answer = exchange.get(f"{base_url}/metrics", timeout_s)
    except exchange.Unanswered as e:
        return Snapshot(why=f"/metrics gave no answer ({e})", read_at=time.time())
    if answer.status != 200:
        why = f"/metrics answered {answer.status}: the server runs without --enable-metrics"
        return Snapshot(why=why, read_at=time.time())
    try:
        found = metrics.parse(answer.text, f"{base_url}/metrics")
    except BadInput as e:
        return Snapshot(why=str(e), read_at=time.time())
    empty = None if found.samples else "/metrics is empty"
    return Snapshot(found.samples, empty, time.time())


def window(before: Snapshot, after: Snapshot, wall_s: float, concurrency: int, repeat: int) -> dict[str, Any]:
    """What the counters grew by between two readings around one timed pass.

    `seconds` and `passes` are the median over ranks (all ranks run the same batches; under data
    parallelism each its own); `ms_per_pass` is taken rank by rank before the median, so that ranks
    with different numbers of passes are not mixed.
    """
    entry: dict[str, Any] = {
        "concurrency": concurrency,
        "repeat": repeat,
        "wall_s": wall_s,
        "from_epoch_s": before.read_at,
        "to_epoch_s": after.read_at,
        "source": None,
        "why": before.why or after.why,
        "seconds": {},
        "passes": {},
        "ms_per_pass": {},
        "seconds_by_rank": {},
        "counters": {},
        "problems": [],
    }
    if entry["why"]:
        return entry
    seconds, wrong = metrics.difference(metrics.stage_seconds(before), metrics.stage_seconds(after))
    passes, wrong_passes = metrics.difference(metrics.passes(before), metrics.passes(after))
    entry["problems"] = sorted({*wrong, *wrong_passes})
    entry["counters"] = metrics.counters(before, after)
    entry["passes"] = _middle_over_ranks(passes)
    if entry["problems"]:
        entry["why"] = entry["problems"][0]
        return entry
    if not any(value > 0 for kinds in seconds.values() for value in kinds.values()):
        timed = bool(metrics.stage_seconds(after))
        entry["why"] = IDLE_TIMER if timed else NO_TIMER
        return entry
    entry["source"] = "device_timer"
    entry["seconds"] = _middle_over_ranks(seconds)
    entry["seconds_by_rank"] = {metrics.rank_name(r): kinds for r, kinds in sorted(seconds.items())}
    entry["ms_per_pass"] = _ms_per_pass(seconds, passes)
    eager = entry["passes"].get("decode_none", 0.0)
    if eager:
        # The timer wraps the replay of a CUDA graph; an eager forward is timed otherwise or not.
        entry["problems"].append(
            f"{eager:.0f} decode passes ran without a CUDA graph: their stages may be missing"
        )
    return entry


def record(windows: list[dict[str, Any]]) -> dict[str, Any]:
    """The own fields of stages.json from all windows of a launch."""
    timed = [w for w in windows if w["source"] == "device_timer"]
    whys = [w["why"] for w in windows if w["why"]]
    why = None if timed else (whys[0] if whys else "no timed window")
    return {"source": "device_timer" if timed else None, "why": why, "windows": windows}


def _middle_over_ranks(by_rank: dict[Rank, dict[str, float]]) -> dict[str, float]:
    kinds = sorted({kind for found in by_rank.values() for kind in found})
    return {
        kind: middle
        for kind in kinds
        if (middle := metrics.middle(f[kind] for f in by_rank.values() if kind in f)) is not None
    }


def _ms_per_pass(
    seconds: dict[Rank, dict[str, float]], passes: dict[Rank, dict[str, float]]
) -> dict[str, float]:
    """Milliseconds per decode pass of each stage that belongs to a cycle."""
    per_stage: dict[str, list[float]] = {}
    for rank, kinds in seconds.items():
        cycles = metrics.decode_passes(passes.get(rank, {}))
        if not cycles:
            continue
        for category, value in kinds.items():
            stage = STAGE_OF_CATEGORY.get(category, category)
            if stage in ("prefill", "idle"):
                continue
            per_stage.setdefault(stage, []).append(1000.0 * value / cycles)
    return {
        stage: middle
        for stage, values in sorted(per_stage.items())
        if (middle := metrics.middle(values)) is not None
    }
