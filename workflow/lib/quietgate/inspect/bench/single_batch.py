"""Results of SGLang's benchmarks of one batch: bench_one_batch, and bench_one_batch_server.

Their throughputs are not bench_serving's: `output_throughput` is over the time after the first tokens, and
the median over decode steps is one of steps. Both keep names of their own here; output_tokens_per_s is, as
everywhere, output tokens over the whole time.
"""

from __future__ import annotations

import re
from typing import Any

Result = dict[str, Any]

# Our key -> their name in a record; seconds, tokens per second.
_NAMES = {
    "batch_size": "batch_size",
    "input_len": "input_len",
    "output_len": "output_len",
    "accept_length": "acc_length",
    "prefill_tokens_per_s": "input_throughput",
    "decode_tokens_per_s": "output_throughput",
    "median_decode_tokens_per_s": "median_decode_throughput",
    "total_tokens_per_s": "overall_throughput",
}
_STEP = re.compile(r"Decode \d+\. Batch size: (\d{1,18}), ")
_PART = re.compile(
    r"(Prefill|Decode|Total)\. +(?:median )?latency: +(\d+\.\d+) s, "
    r"(?:median )?throughput: +(\d+\.\d+) token/s"
)
_FIELD = re.compile(r"([a-z][a-z_ ]{0,40}): +(-?\d{1,18}(?:\.\d+)?)(?: (?:s|tok/s|\(requested \d+\)))?$")
_CLAMPED = re.compile(r"(?:WARNING: )?generated (\d{1,18}) tokens but requested \d+")
_WARM_UP = re.compile(r"Warmup \.\.\.$|=+ Warmup Begin =+$")
_WARMED_UP = re.compile(r"Benchmark \.\.\.$|=+ Warmup End +=+$")


def is_record(value: Any) -> bool:
    """Is this an object of such a benchmark's result file?"""
    return (
        isinstance(value, dict)
        and {"batch_size", "input_len", "output_len"} <= value.keys()
        and ("latency" in value or "total_latency" in value)
    )


def result(record: dict[str, Any]) -> Result:
    """A record in our words."""
    found: Result = {"complete": True, "backend": "sglang"}
    found |= {ours: record[theirs] for ours, theirs in _NAMES.items() if record.get(theirs) is not None}
    if "prefill_throughput" in record:
        found["prefill_tokens_per_s"] = record["prefill_throughput"]
    found["duration_s"] = record.get("latency", record.get("total_latency"))
    batch, per_input, per_output = (record[name] for name in ("batch_size", "input_len", "output_len"))
    if isinstance(batch, int) and isinstance(per_input, int) and isinstance(per_output, int):
        total = record.get("total_output_tokens")  # fewer where answers ended early, or were clamped
        found["output_tokens"] = batch * per_output if total is None else total
        found["input_tokens"] = batch * per_input
        seconds = found["duration_s"]
        if isinstance(seconds, int | float) and seconds > 0 and isinstance(found["output_tokens"], int):
            found["output_tokens_per_s"] = found["output_tokens"] / seconds
    if isinstance(last := record.get("last_ttft"), int | float):
        found["max_ttft_ms"] = last * 1e3
    for name in ("accept_length", "decode_tokens_per_s"):
        if found.get(name) == -1:  # how they say that there is none
            del found[name]
    return found


def printed(lines: list[str]) -> list[Result]:
    """The results in printed lines, warm-ups left out; `line` is where each begins, from 1."""
    results: list[Result] = []
    warming, batch = False, None
    parts: Result = {}
    fields: dict[str, Any] = {}
    generated: int | None = None
    for number, line in enumerate(lines, 1):
        if _WARM_UP.match(line):
            warming = True
        elif _WARMED_UP.match(line):
            warming = False
        elif warming:
            continue
        elif step := _STEP.match(line):
            batch = int(step[1])
        elif part := _PART.match(line):
            parts |= _part(part[1], float(part[2]), float(part[3]))
            parts.setdefault("line", number)
            if part[1] == "Total":
                results.append({"complete": True, "backend": "sglang", "batch_size": batch} | parts)
                parts, batch = {}, None
        elif clamped := _CLAMPED.match(line):
            generated = int(clamped[1])
        elif field := _FIELD.match(line):
            if field[1] == "batch size":
                fields = {"line": number, "total_output_tokens": generated}
                generated = None
                results.append(fields)
            name = field[1].replace(" generation", "_gen").replace(" ", "_")
            fields[name] = float(field[2]) if "." in field[2] else int(field[2])
    return [
        r if "complete" in r else {"line": r["line"], **result(r)}
        for r in results
        if "complete" in r or is_record(r)
    ]


def _part(name: str, seconds: float, tokens_per_s: float) -> Result:
    if name == "Prefill":
        return {"prefill_tokens_per_s": tokens_per_s}
    if name == "Decode":
        return {"median_decode_tokens_per_s": tokens_per_s}
    return {"duration_s": seconds, "total_tokens_per_s": tokens_per_s}
