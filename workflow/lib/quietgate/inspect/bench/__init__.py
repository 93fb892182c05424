"""Result files of serving benchmarks made by hand: SGLang's printed block or JSONL, SpecForge's JSON, others.

Every result says whether it can be believed (`plausible`) and what speaks against it (`problems`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from quietgate.errors import BadInput
from quietgate.inspect.bench import grid, printed, records
from quietgate.inspect.bench.plausible import judge, repeated
from quietgate.inspect.lines import read_text

__all__ = ["read"]

_WHAT = "benchmark result"


def read(path: Path) -> dict[str, Any]:
    """One object about a result file: {file, format, results: [...], notes: [...]}.

    BadInput where the file is junk or holds no result at all; a result that is there but empty, cut or
    partial comes back with `plausible` false and the problem named.
    """
    path = Path(path)
    text = read_text(path, _WHAT)
    if not text.strip():
        raise BadInput(f"{path}: nothing but blank lines; no {_WHAT} in it")
    form, results = _parsed(path, text)
    if not results:
        raise BadInput(
            f"{path}: no {_WHAT} in it; expected bench_serving's printed block or JSONL, or SpecForge's JSON"
        )
    for result in results:
        _from_name(result, path)
        judge(result)
    return {"file": str(path), "format": form, "results": results, "notes": repeated(results)}


def _parsed(path: Path, text: str) -> tuple[str, list[dict[str, Any]]]:
    if text.lstrip()[0] not in "{[":
        return "text", printed.blocks(text)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        value, why = None, str(error)
    if value is not None:
        found = records.of_value(value)
        return ("json", found) if found else ("grid", grid.results(value))
    results, bad = records.of_lines(text)
    if not results and bad:
        raise BadInput(f"{path}: line {bad[0]}: not JSON or cut off ({why}); no {_WHAT} could be read")
    for line in bad:
        results.append({"cut": f"line {line} is cut or no JSON"})
    return "jsonl", results


def _from_name(result: dict[str, Any], path: Path) -> None:
    """How many requests were asked for, where only the file's name says so."""
    if result.get("requested") is None and isinstance(result.get("completed"), int):
        asked = records.requested_by_name(path.name, result["completed"])
        if asked is not None:
            result["requested"], result["requested_from"] = asked, "file name"
