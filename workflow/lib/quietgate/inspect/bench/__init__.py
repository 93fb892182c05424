"""Result files of serving benchmarks made by hand: SGLang's printed block or JSONL, SpecForge's JSON, others.

Every result says whether it can be believed (`plausible`) and what speaks against it (`problems`).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from quietgate.errors import BadInput
from quietgate.inspect.bench import few_shot, grid, printed, records, single_batch
from quietgate.inspect.bench.plausible import judge, repeated
from quietgate.inspect.lines import read_text

__all__ = ["read"]

_WHAT = "benchmark result"
# A stamp in brackets begins a log, not a list.
_JSON = re.compile(r'\s*(?:\{|\[\s*(?:[\[{"\]]|$))')


def read(path: Path) -> dict[str, Any]:
    """One object about a result file: {file, format, results: [...], notes: [...]}.

    BadInput where the file is junk or holds no result at all; a result that is there but empty, cut or
    partial comes back with `plausible` false and the problem named.
    """
    path = Path(path)
    text = read_text(path, _WHAT)
    if not text.strip():
        raise BadInput(f"{path}: nothing but blank lines; no {_WHAT} in it")
    form, results, others = _parsed(path, text)
    if not results:
        raise BadInput(
            f"{path}: no {_WHAT} in it; expected what a benchmark of SGLang or vLLM prints or writes, "
            "or the JSON of SpecForge, genai-bench or evalscope"
        )
    for result in results:
        _from_name(result, path)
        judge(result)
    notes = repeated(results)
    if others:
        notes.append(f"JSON values in it that are no result: {others}")
    return {"file": str(path), "format": form, "results": results, "notes": notes}


def _parsed(path: Path, text: str) -> tuple[str, list[dict[str, Any]], int]:
    """The format, the results, and how many JSON values are no result."""
    if not _JSON.match(text):
        return _of_printed(text)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        value, why = None, str(error)
    if value is not None:
        found = records.of_value(value)
        others = len(value) - len(found) if isinstance(value, list) else 0
        return ("json", found, others) if found else ("grid", grid.results(value), 0)
    results, bad, others = records.of_text(text, only_json=True)
    if not results and bad:
        raise BadInput(f"{path}: line {bad[0]}: not JSON or cut off ({why}); no {_WHAT} could be read")
    return "jsonl", results + _cut(bad), others


def _of_printed(text: str) -> tuple[str, list[dict[str, Any]], int]:
    lines = printed.bare(text)
    results = [*printed.blocks(text, lines), *single_batch.printed(lines), *few_shot.printed(lines)]
    if results:
        return "text", sorted(results, key=lambda r: r["line"]), 0
    results, bad, others = records.of_text(text, only_json=False)  # with notes between the lines
    if results:
        return "jsonl", results + _cut(bad), others
    return "text", printed.headless(lines), 0


def _cut(lines: list[int]) -> list[dict[str, Any]]:
    return [{"cut": f"line {line} is cut or no JSON"} for line in lines]


def _from_name(result: dict[str, Any], path: Path) -> None:
    """How many requests were asked for, where only the file's name says so."""
    if result.get("requested") is None and isinstance(result.get("completed"), int):
        asked = records.requested_by_name(path.name, result["completed"])
        if asked is not None:
            result["requested"], result["requested_from"] = asked, "file name"
