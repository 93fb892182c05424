"""Results of other load generators that are pointed at SGLang servers, in the words of bench_serving."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Record = dict[str, Any]

# Our word for it (bench_serving's) -> theirs.
_EVALSCOPE = {
    "num_prompts": "Total requests",
    "completed": "Succeed requests",
    "failed": "Failed requests",
    "max_concurrency": "Number of concurrency",
    "duration": "Time taken for tests (s)",
    "request_throughput": "Request throughput (req/s)",
    "output_throughput": "Output token throughput (tok/s)",
    "total_throughput": "Total token throughput (tok/s)",
}
_EVALSCOPE_SECONDS = {
    "mean_ttft_ms": "Average time to first token (s)",
    "mean_tpot_ms": "Average time per output token (s)",
    "mean_e2e_latency_ms": "Average latency (s)",
}
_GENAI_BENCH = {
    "num_prompts": "num_requests",
    "completed": "num_completed_requests",
    "failed": "num_error_requests",
    "duration": "run_duration",
    "request_throughput": "requests_per_second",
    "input_throughput": "mean_input_throughput_tokens_per_s",
    "output_throughput": "mean_output_throughput_tokens_per_s",
    "total_throughput": "mean_total_tokens_throughput_tokens_per_s",
}
_STATISTICS = {"mean": "mean", "median": "p50", "p90": "p90", "p99": "p99", "max": "max"}


def translated(value: Any) -> Any:
    """A summary of evalscope or genai-bench as bench_serving would write it; anything else as it is."""
    if not isinstance(value, dict):
        return value
    if _EVALSCOPE["completed"] in value:
        seconds = {ours: value.get(theirs) for ours, theirs in _EVALSCOPE_SECONDS.items()}
        return _words(value, _EVALSCOPE) | _milliseconds(seconds)
    if isinstance(summary := value.get("aggregated_metrics"), dict):
        return _words(summary, _GENAI_BENCH) | _genai_bench(summary)
    return value


def _words(value: Mapping[str, Any], names: Mapping[str, str]) -> Record:
    return {ours: value[theirs] for ours, theirs in names.items() if theirs in value}


def _genai_bench(summary: Mapping[str, Any]) -> Record:
    found: Record = {}
    if summary.get("iteration_type") == "num_concurrency":
        found["max_concurrency"] = summary.get("num_concurrency")
    every = summary.get("stats")
    for quantity in ("ttft", "tpot", "e2e_latency"):
        numbers = every.get(quantity) if isinstance(every, dict) else None
        if isinstance(numbers, dict):
            found |= _milliseconds(
                {f"{ours}_{quantity}_ms": numbers.get(theirs) for ours, theirs in _STATISTICS.items()}
            )
    return found


def _milliseconds(seconds: Mapping[str, Any]) -> Record:
    return {name: s * 1e3 for name, s in seconds.items() if isinstance(s, int | float)}
