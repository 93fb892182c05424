"""Results that a benchmark wrote as JSON: one object, a list, or a line each (JSONL)."""

from __future__ import annotations

import json
import re
from typing import Any

from quietgate.inspect.bench import single_batch
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
    "duration_s": ("duration", "duration_s", "total_latency"),
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
_TELLING = (*_NAMES["completed"], *_NAMES["output_tokens_per_s"])
_DECODER = json.JSONDecoder()
_BEGINS = re.compile(r'\{\s*(?:"|$)')
# An error costs a look at the whole text.
_MOST_BAD = 100
_LAST = re.compile(r"(?:^|[_-])(\d+)(?=\.[a-z]+(?:\.gz)?$)")


def of_value(value: Any) -> list[dict[str, Any]]:
    """The results in one JSON value: itself, or the objects of a list; empty where it is none."""
    values = map(translated, value if isinstance(value, list) else [value])
    return [_result(v) for v in values if _is_result(v)]


def of_text(text: str, only_json: bool) -> tuple[list[dict[str, Any]], list[int], int]:
    """The results of a text of JSON values, a line each or on several lines.

    Args:
        text: the text.
        only_json: whether every line is part of a value; otherwise lines of other things stand between.

    Returns:
        The results, the numbers of the lines that do not parse, and how many values are no result.
    """
    results: list[dict[str, Any]] = []
    bad: list[int] = []
    others, at = 0, 0
    number = 1
    broken = False  # behind the beginning of a cut value, up to the next one
    while at < len(text) and len(bad) < _MOST_BAD:
        end = text.find("\n", at) + 1 or len(text)
        line = text[at:end].strip()
        if only_json:
            tried = bool(line.strip("]},#")) and line[0] != "#" and (line[0] in "{[" or not broken)
        else:
            tried = _BEGINS.match(line) is not None
        if tried:
            try:
                value, stop = _decoded(text, text.index(line[0], at), end)
            except (ValueError, RecursionError):
                bad.append(number)
                broken = True
            else:
                broken = False
                found = [{"line": number, **r} for r in of_value(value)]
                results += found
                others += not found
                end = max(end, text.find("\n", stop) + 1 or len(text))
                rest = text[stop:end].strip(" \t\r\n,]}")
                if rest.startswith("{"):
                    end = stop  # another value follows in this line
                elif rest and only_json:
                    bad.append(number)
        number += text.count("\n", at, end)
        at = end
    return results, bad, others


def _decoded(text: str, begin: int, end: int) -> tuple[Any, int]:
    """The JSON value that begins in the line text[begin:end], and where it stops; ValueError for none."""
    line = text[begin:end]
    try:
        value, length = _DECODER.raw_decode(line)
    except json.JSONDecodeError as error:
        if error.pos < len(line.rstrip()):
            raise
        return _DECODER.raw_decode(text, begin)  # it goes on in the next lines
    return value, begin + length


def _is_result(value: Any) -> bool:
    return isinstance(value, dict) and (
        single_batch.is_record(value) or any(name in value for name in _TELLING)
    )


def _result(record: dict[str, Any]) -> dict[str, Any]:
    if single_batch.is_record(record) and not any(name in record for name in _NAMES["completed"]):
        return single_batch.result(record)
    result: dict[str, Any] = {"complete": True}
    for key, names in _NAMES.items():
        for name in names:
            if record.get(name) is not None:
                result[key] = record[name]
                break
    if "requested" in result:
        result["requested_from"] = "file"
    if "accept_length" in result and "accept_length" not in record and "acc_length" not in record:
        result["accept_length_over"] = "run"  # vLLM's, of the counters' difference
    if "accuracy" in record:
        result["accuracy"] = record["accuracy"]
        result.setdefault("duration_s", record.get("latency"))
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
