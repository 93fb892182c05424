"""Can a result be believed? Each check names what is wrong, with its numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from quietgate.wording import counted

Result = dict[str, Any]

_MAY_BE_ABSENT = (
    "backend",
    "completed",
    "requested",
    "output_tokens_per_s",
    "accept_length",
    "duration_s",
    "request_rate",
    "max_concurrency",
)
# Everything else is a number, or the file is damaged there.
_TEXTS = {
    "backend", "model", "tag", "dataset_name", "request_rate", "requested_from", "sglang_version", "cut",
    "complete", "flush_cache", "name", "benchmark", "baseline", "accept_length_over",
}  # fmt: skip
_ABSURD = 1e18
_TOLERANCE = 0.02
_WHOLE = 0.99  # above this share, the first token may have come with the last
_OVERLOADED = 0.5  # median TTFT above this share of the median latency: requests queue


def judge(result: Result) -> None:
    """Make a result complete JSON (null for what it lacks) and add `plausible` and `problems`."""
    twice = [f"{key} stands in it twice, with different values" for key in result.pop("twice", ())]
    missing_line = result.pop("missing_line", "end")
    problems = [*_not_numbers(result), *dict.fromkeys(twice)]
    for key in _MAY_BE_ABSENT:
        result.setdefault(key, None)
    if cut := result.get("cut"):
        problems.append(cut)
    else:
        problems += _incomplete(result, missing_line)
        problems += _contradictions(result)
        problems += _latencies(result)
        problems += _acceptance(result)
    if result["completed"] and isinstance(result.get("input_tokens"), int):
        result["input_tokens_per_request"] = result["input_tokens"] / result["completed"]
    result["plausible"] = not problems
    result["problems"] = problems


def _not_numbers(result: Result) -> Iterable[str]:
    """Infinity is a request rate; anywhere else it, nan, a text or an absurd number is no value."""
    for key, value in list(result.items()):
        if key == "request_rate" and value == math.inf:
            result[key] = "inf"
        elif (
            value is not None
            and not (key in _TEXTS and isinstance(value, str | bool))
            and not _is_number(value)
        ):
            result[key] = None
            yield f"{key} is {str(value)[:40]!r}, no number"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _ABSURD


def _incomplete(result: Result, missing_line: str) -> Iterable[str]:
    completed, requested, failed = result["completed"], result["requested"], result.get("failed")
    if (
        isinstance(completed, int)
        and isinstance(requested, int)
        and completed > requested
        and result.get("requested_from") == "command"
    ):
        requested = result["requested"] = result["requested_from"] = None  # of another run's command
    if completed == 0:
        yield "no request succeeded"
    elif isinstance(completed, int) and isinstance(requested, int) and completed < requested:
        source = " (by its file name)" if result.get("requested_from") == "file name" else ""
        yield f"only {completed} of {requested} requests{source} completed ({completed / requested:.1%})"
    elif failed:
        yield f"{counted(failed, 'request')} failed"
    if not result.get("complete", True):
        yield f"the block is cut: its {missing_line} line is missing"
    if result["output_tokens_per_s"] is None and result.get("prefill_tokens_per_s") is None:
        yield "no output throughput in it"
    elif result["output_tokens_per_s"] == 0:
        yield "output throughput is 0"
    if result["duration_s"] == 0:
        yield "duration is 0 s"


def _contradictions(result: Result) -> Iterable[str]:
    duration = result["duration_s"]
    if not duration:
        return
    for total, rate, what in (
        ("output_tokens", "output_tokens_per_s", "output throughput"),
        ("completed", "requests_per_s", "request throughput"),
        ("input_tokens", "input_tokens_per_s", "input throughput"),
    ):
        count, logged = result.get(total), result.get(rate)
        if count and logged and abs(count / duration - logged) > _TOLERANCE * logged + 0.006:
            yield f"{what} {logged} does not fit {count} in {duration} s ({count / duration:.2f}/s)"
    if result.get("output_tokens") and result.get("output_tokens_retokenized") == 0:
        yield "0 tokens when tokenized again: the texts of the answers were not collected"


def _latencies(result: Result) -> Iterable[str]:
    if result["completed"] == 0:
        result.update({key: None for key in result if key.endswith("_ms")})  # of nothing, and so not 0
        return
    times = [k for k in result if k.endswith("_ttft_ms")]
    if times and result.get("output_tokens_per_s") and all(not result[k] for k in times):
        for key in times:
            result[key] = None  # not measured, and not zero
        yield "TTFT of 0.00 ms is missing, not zero (answers were not streamed)"
    for kind in ("_itl_ms", "_tpot_ms"):
        times = [k for k in result if k.endswith(kind)]
        if all(not result[k] for k in times):  # answers of one token, or not streamed
            result.update(dict.fromkeys(times))
    ttft, latency = result.get("median_ttft_ms"), result.get("median_e2e_latency_ms")
    single_tokens = (result.get("output_tokens") or math.inf) <= (result["completed"] or 0)
    if ttft and latency and ttft > _OVERLOADED * latency and ttft > 1000 and not single_tokens:
        kind = "overloaded, or not streamed" if ttft > _WHOLE * latency else "overloaded"
        yield (
            f"{kind}: the median request waits {ttft / 1000:.1f} s for its first token, "
            f"of {latency / 1000:.1f} s"
        )


def _acceptance(result: Result) -> Iterable[str]:
    length, draft_tokens = result["accept_length"], result.get("draft_tokens")
    if not isinstance(length, int | float):
        return
    if length < 1:
        yield f"accept length {length} is below 1, which every cycle yields"
    if isinstance(draft_tokens, int) and draft_tokens and length > draft_tokens + 0.005:
        yield f"accept length {length} is above the {draft_tokens} draft tokens"


def repeated(results: list[Result]) -> list[str]:
    """What several results in one file say of each other."""
    notes = []
    rates = [r["output_tokens_per_s"] for r in results if r["output_tokens_per_s"]]
    same = {(r.get("backend"), r["completed"], r["max_concurrency"], r.get("input_tokens")) for r in results}
    if len(rates) > 1 and len(same) == 1 and results[0]["completed"]:
        spread = max(rates) / min(rates) - 1
        notes.append(
            f"{len(rates)} runs of the same size differ by {spread:.1%} in output tok/s; "
            "the first may be cold: compare medians of warm runs"
        )
    elif len(results) == 1 and results[0]["completed"]:
        notes.append(
            f"one run of {results[0]['completed']} requests: no statement about its spread is possible"
        )
    if any(r.get("input_tokens_per_request", 2) <= 1 for r in results):
        notes.append("inputs of one token per request: no statement about prefill or a real prompt")
    if any(r.get("prefill_tokens_per_s") for r in results):
        notes.append(
            "single batches: output tok/s is over the whole time, prefill included, as bench_serving's is; "
            "prefill and decode tok/s are the benchmark's own"
        )
    if any(
        (r.get("peak_output_tokens_per_s") or math.inf) < (r["output_tokens_per_s"] or 0) for r in results
    ):
        notes.append("peak output tok/s is below the mean: it counts pieces of answers, not tokens")
    if any(
        r["accept_length"] is not None and r.get("steps") is None and r.get("accept_length_over") != "run"
        for r in results
    ):
        notes.append(
            "accept length is the server's average since its last cache flush, earlier requests included"
        )
    return notes
