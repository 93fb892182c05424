"""Results that a benchmark wrote as JSON: one object, a list, or a line each (JSONL)."""

from __future__ import annotations

import json
import re
from typing import Any

from quietgate.inspect.bench.others import translated

# Our key -> the names that versions and tools gave it.
_NAMES: dict[str, tuple[str, ...]] = {
    "backend": ("backend", "endpoint_type"),
    "model": ("model_id", "model"),
    "tag": ("tag",),
    "dataset_name": ("dataset_name",),
    "requested": ("num_prompts", "num_requests", "requested"),
    "completed": ("completed", "successful_requests"),
    "failed": ("failed",),
    "request_rate": ("request_rate",),
    "max_concurrency": ("max_concurrency",),
    "duration_s": ("duration", "duration_s"),
    "input_tokens": ("total_input_tokens",),
    "output_tokens": ("total_output_tokens", "total_generated_tokens"),
    "output_tokens_retokenized": ("total_output_tokens_retokenized",),
    "requests_per_s": ("request_throughput",),
    "input_tokens_per_s": ("input_throughput",),
    "output_tokens_per_s": ("output_throughput",),
    "total_tokens_per_s": ("total_throughput", "total_token_throughput"),
    "concurrency": ("concurrency",),
    "accept_length": ("accept_length", "acceptance_length", "spec_decode_acceptance_length", "acc_length"),
    "peak_output_tokens_per_s": ("max_output_tokens_per_s",),
    "peak_concurrent_requests": ("max_concurrent_requests",),
    "random_input_len": ("random_input_len",),
    "random_output_len": ("random_output_len",),
}
_LATENCY = re.compile(r"(mean|median|std|p\d+|max)_(e2e_latency|e2el|ttft|tpot|itl)_ms")
_OF = re.compile(r"(\d+)_of_(\d+)")
_LAST = re.compile(r"(?:^|[_-])(\d+)(?=\.[a-z]+(?:\.gz)?$)")


def of_value(value: Any) -> list[dict[str, Any]]:
    """The results in one JSON value: itself, or the objects of a list; empty where it is none."""
    values = map(translated, value if isinstance(value, list) else [value])
    return [_result(v) for v in values if _is_result(v)]


def of_lines(text: str) -> tuple[list[dict[str, Any]], list[int]]:
    """The results of a JSONL text, and the numbers of the lines that do not parse."""
    results, bad = [], []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            value = translated(json.loads(line))
        except (ValueError, RecursionError):
            bad.append(number)
            continue
        if _is_result(value):
            results.append({"line": number, **_result(value)})
    return results, bad


def _is_result(value: Any) -> bool:
    return isinstance(value, dict) and any(
        name in value for key in ("completed", "output_tokens_per_s", "duration_s") for name in _NAMES[key]
    )


def _result(record: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {"complete": True}
    for key, names in _NAMES.items():
        for name in names:
            if record.get(name) is not None:
                result[key] = record[name]
                break
    if "requested" in result:
        result["requested_from"] = "file"
    for name, value in record.items():
        if found := _LATENCY.fullmatch(name):
            kind = "e2e_latency" if found[2] == "e2el" else found[2]
            result[f"{found[1]}_{kind}_ms"] = value
    if isinstance(info := record.get("server_info"), dict) and isinstance(info.get("version"), str):
        result["sglang_version"] = info["version"]
    if isinstance(errors := record.get("errors"), list):
        result["failed"] = sum(1 for e in errors if e)
        result.setdefault("requested", len(errors))
    return result


def requested_by_name(name: str, completed: int) -> int | None:
    """The number of requests that a file's name gives, "..._1595_of_1600..." or "..._1600.jsonl"."""
    if (found := _OF.search(name)) and int(found[1]) == completed:
        return int(found[2])
    if (found := _LAST.search(name)) and completed >= 10 and completed <= int(found[1]) <= 2 * completed:
        return int(found[1])
    return None
