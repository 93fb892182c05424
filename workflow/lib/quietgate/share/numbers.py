"""The numbers of a launch computed again from its raw requests, and compared with what its records say."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from quietgate.errors import BadInput
from quietgate.measure.passes import NUMBERS, summarise
from quietgate.records import Record
from quietgate.share.archive import shown
from quietgate.wording import counted

# Sums may round otherwise in another Python.
_EQUAL = 1e-9
# chunk_s are written to the microsecond.
_CLOCK_S = 3e-6

_decoder = msgspec.json.Decoder(dict[str, Any])


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Every line of a requests.jsonl; BadInput names the first that is none."""
    lines = []
    with path.open("rb") as f:
        for number, text in enumerate(f, start=1):
            try:
                lines.append(_decoder.decode(text))
            except (msgspec.DecodeError, RecursionError, ValueError) as e:
                raise BadInput(f"{shown(path)}:{number}: not a request line ({shown(e)[:100]})") from None
    return lines


def problems(folder: Path, benchmark: Record, settings: dict[str, Any], steps: int) -> Iterator[str]:
    """What in benchmark.json, requests.jsonl or profile.json disagrees with the raw requests.

    Args:
        settings: the study's `benchmark` section.
        steps: speculative steps of the cell.
    """
    path = folder / "requests.jsonl"
    try:
        lines = read_lines(path)
    except (OSError, BadInput) as e:
        yield str(e).removeprefix(f"{shown(path)}:").strip()
        return
    for number, line in enumerate(lines, start=1):
        try:
            wrong = _request(line, steps)
        except (KeyError, TypeError, ValueError, OverflowError) as e:
            wrong = f"lacks or garbles a field ({shown(repr(e))[:80]})"
        if wrong:
            yield f"requests.jsonl:{number}: {wrong}"
            return
    yield from _passes(lines, benchmark, settings)


def _request(line: dict[str, Any], steps: int) -> str | None:
    """What in one line does not follow from the rest of it, or None."""
    text = line.get("text")
    named = line.get("text_sha256")
    if named and isinstance(text, str) and hashlib.sha256(text.encode()).hexdigest() != named:
        return "its text is not the one that text_sha256 names"
    if not line["ok"]:
        return None
    completion, verify_ct = line["completion_tokens"], line["spec_verify_ct"]
    if steps > 0 and not verify_ct:
        return f"no verify pass in a cell of {counted(steps, 'step')}"
    if steps == 0 and verify_ct:
        return f"{counted(verify_ct, 'verify pass')} in a cell without speculation"
    cycles = (completion - 1) / verify_ct if verify_ct else 1.0
    # One cycle may go uncounted at either end of an answer.
    if verify_ct and completion - 1 > (verify_ct + 1) * (steps + 1):
        return f"{cycles:.3g} tokens per cycle of {counted(steps, 'step')}"
    derived = {"tokens_per_cycle": cycles}
    if line["end_to_end_s"]:
        derived["request_tokens_per_s"] = completion / line["end_to_end_s"]
    if line["decode_s"] and line["decode_tokens_per_s"] is not None:
        later = completion - line["first_chunk_tokens"]
        derived["decode_tokens_per_s"] = later / line["decode_s"]
        derived["cycle_ms"] = 1000 * line["decode_s"] / (verify_ct or later)
    for name, value in derived.items():
        if not equal(line[name], value):
            return f"{name} is {line[name]}, its own counts and times give {value:.6g}"
    return _chunks(line)


def _chunks(line: dict[str, Any]) -> str | None:
    tokens, times = line.get("chunk_tokens") or [], line.get("chunk_s") or []
    if not tokens:
        return None
    if len(tokens) != len(times):
        return f"{counted(len(times), 'chunk time')}, {counted(len(tokens), 'chunk')}"
    if sum(tokens) != line["completion_tokens"]:
        return f"its chunks hold {sum(tokens)} tokens, not {line['completion_tokens']}"
    with_tokens = [t for t, n in zip(times, tokens, strict=True) if n > 0]
    if line["decode_s"] is not None and abs(with_tokens[-1] - with_tokens[0] - line["decode_s"]) > _CLOCK_S:
        return f"decode_s is {line['decode_s']}, its chunks give {with_tokens[-1] - with_tokens[0]:.6f}"
    return None


def _passes(lines: list[dict[str, Any]], benchmark: Record, settings: dict[str, Any]) -> Iterator[str]:
    grouped: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for line in lines:
        if line.get("phase") == "timed":
            grouped.setdefault((line["concurrency"], line["repeat"]), []).append(line)
    recorded = {(p["concurrency"], p["repeat"]): p for p in benchmark["passes"]}
    if len(recorded) < len(benchmark["passes"]):
        yield "benchmark.json: one pass is there twice"
    asked = {(c, r) for c in settings["concurrency"] for r in range(1, settings["repeats"] + 1)}
    for c, r in sorted(asked - set(recorded)):
        yield f"benchmark.json: no pass at concurrency {c}, repeat {r}"
    for c, r in sorted(set(grouped) ^ set(recorded)):
        yield f"benchmark.json and requests.jsonl: only one of them has concurrency {c}, repeat {r}"
    for key in sorted(set(grouped) & set(recorded)):
        said = recorded[key]
        place = f"benchmark.json, concurrency {key[0]}, repeat {key[1]}"
        try:
            told = summarise(grouped[key], *key, said["wall_s"], said["client_cpu_s"], said["flushed"])
        except (KeyError, TypeError, ValueError, ZeroDivisionError, OverflowError) as e:
            yield f"{place}: cannot be computed again ({shown(repr(e))[:80]})"
            continue
        for name in ("requests", "status", *NUMBERS):
            if name in said and not equal(said[name], told[name]):
                yield f"{place}: {name} is {said[name]}, the raw requests give {told[name]}"
        if "surroundings" in said:
            yield from (f"{place}: surroundings: {line}" for line in _surroundings(said))


def _surroundings(said: dict[str, Any]) -> Iterator[str]:
    """What of a pass's surroundings does not follow from the rest; its counters were read once."""
    around = said["surroundings"]
    window_s = around["window_s"]
    if window_s < said["wall_s"]:
        yield f"window_s is {window_s}, the pass alone took {said['wall_s']}"
        return
    derived = [("client_cores", around["client_cores"], said["client_cpu_s"])]
    derived += [(f"power_w of {g['uuid']}", g["power_w"], g["energy_j"]) for g in around["gpus"]]
    for name, value, amount in derived:
        if value is not None and not equal(value, None if amount is None else amount / window_s):
            yield f"{name} is {value}, over window_s it was {amount}"


def equal(a: Any, b: Any) -> bool:
    """Whether two values are the same, numbers but for their last digits."""
    if isinstance(a, int | float) and isinstance(b, int | float) and not isinstance(a, bool):
        return math.isclose(a, b, rel_tol=_EQUAL, abs_tol=1e-12)
    return bool(a == b)


def profile_problems(profile: Record, benchmark: Record) -> Iterator[str]:
    """Where the profile's rows are not those of the passes."""
    passes = {(p["concurrency"], p["repeat"]): p for p in benchmark["passes"]}
    for row in profile["windows"]:
        one = passes.get((row["concurrency"], row["repeat"]))
        place = f"profile.json, concurrency {row['concurrency']}, repeat {row['repeat']}"
        if one is None:
            yield f"{place}: benchmark.json has no such pass"
        elif not equal(row["tokens_per_cycle"], one["tokens_per_cycle"]):
            yield (
                f"{place}: tokens_per_cycle is {row['tokens_per_cycle']}, "
                f"the pass has {one['tokens_per_cycle']}"
            )
