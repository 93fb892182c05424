"""Where two sources measured the same quantity: by how much they differ."""

from __future__ import annotations

from statistics import median
from typing import Any

from quietgate.analyse.time_sources import STAGES, Source

# Two sources that measure one quantity and differ by more than this are named.
TOLERANCE = 0.05


def _comparison(
    quantity: str, a: tuple[str, float | None], b: tuple[str, float | None], note: str
) -> dict[str, Any] | None:
    if a[1] is None or b[1] is None or a[1] == 0:
        return None
    difference = b[1] / a[1] - 1.0
    return {
        "quantity": quantity,
        "a": a[0],
        "b": b[0],
        "a_value": a[1],
        "b_value": b[1],
        "relative_difference": difference,
        "above_tolerance": abs(difference) > TOLERANCE,
        "note": note,
    }


def comparisons(
    sources: dict[str, Source],
    passes: list[dict[str, Any]],
    windows: list[dict[str, Any]],
    requests: list[dict[str, Any]],
    concurrency: int,
    steps: int,
) -> list[dict[str, Any]]:
    """Every quantity that two sources measured, with their relative difference (b / a - 1)."""
    timer, trace = sources["device_timer"], sources["trace"]
    cycle = sources["requests"]["cycle_ms"]
    pairs = [_timer_and_trace(name, timer, trace) for name in (*STAGES, "decode_ms")]
    per_cycle = sources.get("cycle_timer")
    if per_cycle is not None:
        # Seen on a GPU that waits for its processor: 0.46 ms of verify by the one, 1.26 ms by the other.
        why = "the per-cycle timer's events stand around the whole call: time that the GPU waits in it counts"
        pairs += [
            _comparison(name, ("device_timer", timer[name]), ("cycle_timer", per_cycle[name]), why)
            for name in (*STAGES, "decode_ms")
        ]
        pairs.append(_comparison("cycle_ms", ("requests", cycle), ("cycle_timer", per_cycle["cycle_ms"]), ""))
    pairs.append(_server_rate(passes))
    pairs.append(_cycle_count(windows, requests, concurrency, steps))
    return [p for p in pairs if p is not None]


def _timer_and_trace(name: str, timer: Source, trace: Source) -> dict[str, Any] | None:
    """SGLang's timer stands around the replay of a stage's graph, so that is what it is compared with.

    Of draft and extend a graph is a part: half of the span's kernels are launched one by one beside it.
    """
    replayed = trace.get("replays", {}).get(name)
    if replayed is not None:
        note = (
            "the replay of the stage's CUDA graph, gaps included: the timer's events wait for its launch too,"
            " and under the profiler ranks wait longer for each other in it"
        )
        return _comparison(name, ("device_timer", timer[name]), ("trace", replayed), note)
    note = "kernel time plus gaps of the same span; under the profiler gaps grow"
    extent = trace.get("extents", {}).get(name)
    return _comparison(name, ("device_timer", timer[name]), ("trace", extent), note)


def _server_rate(passes: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Decode tok/s by the client's chunks and by the server; both are medians over the same requests."""
    known = [p for p in passes if p.get("server_decode_tokens_per_s") and p.get("decode_tokens_per_s")]
    if not known:
        return None
    client = median(p["decode_tokens_per_s"] for p in known)
    server = median(p["server_decode_tokens_per_s"] for p in known)
    note = "the server's own decode throughput against the client's chunks"
    return _comparison("decode_tokens_per_s", ("requests", client), ("server", server), note)


def _cycle_count(
    windows: list[dict[str, Any]], requests: list[dict[str, Any]], concurrency: int, steps: int
) -> dict[str, Any] | None:
    """Decode passes the server counted against the cycles its requests report (one stream only)."""
    if concurrency != 1 or not steps:
        return None
    counted = sum(
        n
        for w in windows
        if w["concurrency"] == concurrency
        for mode, n in w.get("passes", {}).items()
        if mode.startswith("decode")
    )
    reported = sum(r.get("spec_verify_ct") or 0 for r in requests)
    note = "the overlap scheduler runs a pass or two beyond the end of each request"
    a, b = ("requests", float(reported)), ("server", counted or None)
    return _comparison("cycles", a, b, note)
