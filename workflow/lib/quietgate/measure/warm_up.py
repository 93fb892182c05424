"""Warm-up at the benchmark's own concurrency, until the server's speed has become steady.

Each warm-up pass sends the same prompts with an emptied prefix cache, so passes differ only in the
server's state. A pass is judged by its cycle time and not by tok/s alone: how many drafts are
accepted differs from text to text, what a cycle costs does not. The server is steady when the cycle
times of the last passes vary by less than a tolerance (their coefficient of variation), the rule of
Georges, Buytaert and Eeckhout, "Statistically rigorous Java performance evaluation", OOPSLA 2007;
their window of ten iterations is shortened to two or three whole passes, because a pass is a mean
over hundreds of cycles already. What was run is kept with the phase "warm_up" and never mixed with
the timed passes; a server that does not become steady in time is reported as such, not refused.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from quietgate.measure import passes
from quietgate.measure.client import Sampling
from quietgate.measure.prompts import Prompt, enough
from quietgate.wording import counted

# Passes that must agree. Two are enough to see that nothing is still being compiled or captured.
WINDOW = 2


def until_steady(
    base_url: str,
    prompts: Sequence[Prompt],
    sampling: Sampling,
    concurrency: int,
    *,
    timeout_s: float = 300.0,
    stall_s: float | None = None,
    max_passes: int = 5,
    tolerance: float = 0.03,
    window: int = WINDOW,
    max_s: float = 300.0,
    per_stream: int = 1,
    check: Callable[[], None] | None = None,
) -> dict[str, Any]:
    """Warm the server up with `concurrency` streams.

    Args:
        timeout_s: limit of one request, `stall_s` of silence in it.
        max_passes: passes at most; `max_s`: no new pass begins after so many seconds.
        tolerance: coefficient of variation of the last `window` cycle times that counts as steady.
        per_stream: requests of each stream in one pass.

    Returns:
        concurrency, steady, why (None where steady), tokens_per_s and cycle_ms of each pass,
        passes (entries as in benchmark.json), requests (lines of requests.jsonl), seconds.
    """
    chosen = enough(prompts, concurrency * per_stream)
    done: list[dict[str, Any]] = []
    requests: list[dict[str, Any]] = []
    began = time.monotonic()
    why = f"not steady within {counted(max_passes, 'pass')} (variation above {100 * tolerance:g} %)"
    steady = False
    for number in range(1, max_passes + 1):
        if time.monotonic() - began > max_s:
            why = f"not steady within {max_s:g} s ({counted(number - 1, 'pass')})"
            break
        flushed = passes.flush_cache(base_url)
        result = passes.send(
            base_url,
            chosen,
            sampling,
            concurrency=concurrency,
            repeat=number,
            timeout_s=timeout_s,
            stall_s=stall_s,
            check=check,
            phase="warm_up",
        )
        summary = passes.summarise(
            result.requests, concurrency, number, result.wall_s, result.client_cpu_s, flushed
        )
        done.append(summary)
        requests += [{**line, "repeat": 0} for line in result.requests]
        if summary["status"] != "passed":
            why = summary["problems"][0]
            break
        variation = coefficient_of_variation([s["cycle_ms"] for s in done[-window:]])
        if len(done) >= window and variation <= tolerance:
            steady = True
            break
    return {
        "concurrency": concurrency,
        "steady": steady,
        "why": None if steady else why,
        "tokens_per_s": [s["output_tokens_per_s"] for s in done],
        "cycle_ms": [s["cycle_ms"] for s in done],
        "passes": done,
        "requests": requests,
        "seconds": time.monotonic() - began,
    }


def coefficient_of_variation(values: Sequence[float]) -> float:
    """Standard deviation over mean; 0 for a single value."""
    if len(values) < 2:
        return 0.0
    return statistics.stdev(values) / statistics.mean(values)
