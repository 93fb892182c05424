"""The block that bench_serving prints, in the wording of SGLang 0.2 to 0.5.23 and of vLLM."""

from __future__ import annotations

import re
from typing import Any

from quietgate.inspect.log.arguments import parse_call
from quietgate.inspect.prefixes import message

_HEAD = re.compile(r"= (?:Serving|Offline Throughput) Benchmark Result =")
_END = re.compile(r"={20,}\s*$")
# A label is short: without that, a long line of another program takes for ever.
_LINE = re.compile(r"([A-Z][\w .()/#-]{0,80}?(?:\([^)]{0,80}\))?):\s+(\S.*)$")
_PROMPTS = re.compile(r"--num[-_]prompts?[= ](\d{1,18})\b")
_LATENCY = re.compile(r"(Mean|Median|Std|P\d+|Max|Min) (E2E ?L?(?:atency)?|E2EL|TTFT|TPOT|ITL) \(ms\)")
_LATENCIES = {"TTFT": "ttft", "TPOT": "tpot", "ITL": "itl"}
# What a label starts with -> our key; the first that fits.
_LABELS: tuple[tuple[str, str], ...] = (
    (r"Backend", "backend"),
    (r"Traffic request rate", "request_rate"),
    (r"Request rate configured", "request_rate"),
    (r"Max(?:imum)? re\w+ concurrency", "max_concurrency"),
    (r"Successful requests", "completed"),
    (r"Failed requests", "failed"),
    (r"Benchmark duration", "duration_s"),
    (r"Total input tokens", "input_tokens"),
    (r"Total input text tokens", "input_text_tokens"),
    (r"Total input vision tokens", "input_vision_tokens"),
    (r"Total generated tokens \(retokenized\)", "output_tokens_retokenized"),
    (r"Total generated tokens", "output_tokens"),
    (r"Request throughput", "requests_per_s"),
    (r"Input token throughput", "input_tokens_per_s"),
    (r"Output token throughput", "output_tokens_per_s"),
    (r"Peak output token throughput", "peak_output_tokens_per_s"),
    (r"Peak concurrent requests", "peak_concurrent_requests"),
    (r"Total [tT]oken throughput", "total_tokens_per_s"),
    (r"Concurrency", "concurrency"),
    (r"Accept(?:ance)? length", "accept_length"),
)
_PATTERNS = tuple((re.compile(pattern), key) for pattern, key in _LABELS)
_QUOTED = re.compile(r"(?:>\s?)+|#\s+")
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")


def bare(text: str) -> list[str]:
    """The lines as they were printed: what shippers, quotes and comments put before is off."""
    return [_QUOTED.sub("", message(raw.encode()), count=1) for raw in text.splitlines()]


def blocks(text: str, lines: list[str]) -> list[dict[str, Any]]:
    """Every block in the text, with the settings printed before it; `lines` are its bare lines."""
    results: list[dict[str, Any]] = []
    settings: dict[str, Any] = {}
    current: dict[str, Any] | None = None
    raws = text.splitlines()
    # A value is followed by blanks up to its column's width, or by a line end: else the file is cut in it.
    cut = 0 if text.endswith("\n") else len(lines)
    for number, (raw, line) in enumerate(zip(raws, lines, strict=True), 1):
        if _HEAD.search(line):
            current = {"line": number, "complete": False, **settings}
            results.append(current)
        elif current is None or "Namespace(" in line:
            if current is not None:  # the next run's settings: the block before them has no end
                current, settings = None, {}
            _setting(line, settings)
        elif _END.match(line):
            current["complete"] = True
            current, settings = None, {}
        elif (found := _LINE.match(line)) and not (number == cut and not raw.endswith(" ")):
            _take(current, found[1], found[2])
    return results


def headless(lines: list[str]) -> list[dict[str, Any]]:
    """The block of bare lines that someone copied without its first line; none where it has no throughput."""
    result: dict[str, Any] = {}
    for number, line in enumerate(lines, 1):
        if found := _LINE.match(line):
            _take(result, found[1], found[2])
            if result:
                result.setdefault("line", number)
    if "completed" not in result or "output_tokens_per_s" not in result:
        return []
    return [result | {"complete": False, "missing_line": "first"}]


def _setting(line: str, settings: dict[str, Any]) -> None:
    """What was asked for: the printed Namespace, or the command."""
    if "Namespace(" in line:
        arguments = parse_call(line, "Namespace(") or {}
        if isinstance(asked := arguments.get("num_prompts"), int):
            settings.update(requested=asked, requested_from="arguments")
        for name in ("dataset_name", "random_input_len", "random_output_len", "flush_cache"):
            if arguments.get(name) is not None:
                settings[name] = arguments[name]
    elif (asked_text := _PROMPTS.search(line)) and settings.get("requested_from") != "arguments":
        settings.update(requested=int(asked_text[1]), requested_from="command")


def _take(result: dict[str, Any], label: str, text: str) -> None:
    if found := _LATENCY.match(label):
        kind = _LATENCIES.get(found[2], "e2e_latency")
        _put(result, f"{found[1].lower()}_{kind}_ms", value(text))
        return
    for pattern, key in _PATTERNS:
        if pattern.match(label):
            _put(result, key, value(text))
            if label.startswith("Acceptance length"):
                result["accept_length_over"] = "run"
            return


def _put(result: dict[str, Any], key: str, number: Any) -> None:
    if str(result.get(key, number)) != str(number) and key != "request_rate":
        result.setdefault("twice", []).append(key)
    result[key] = number


def value(text: str) -> Any:
    """A printed value: number, text, or None for "not set"."""
    if text in ("not set", "None", "null", "-"):
        return None
    if _THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
