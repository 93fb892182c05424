"""SpecForge's results: a grid of batch size, steps, topk and draft tokens over benchmarks and drafts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_BASELINE = re.compile(r"(?i)\b(?:w\w*out|no|baseline|vanilla)\b")


def results(value: Any) -> list[dict[str, Any]]:
    """Every cell of the grid, one result per draft, with the names of what it lies under."""
    return list(_walk(value, []))


def _walk(value: Any, path: list[str]) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if isinstance(value.get("metrics"), list):
            yield from _cell(value, path)
            return
        for name, item in value.items():
            yield from _walk(item, path if name == "results" else [*path, str(name)])
    elif isinstance(value, list):
        for item in value:
            yield from _walk(item, path)


def _cell(cell: dict[str, Any], path: list[str]) -> Iterator[dict[str, Any]]:
    for metrics in cell["metrics"]:
        if not isinstance(metrics, dict):
            continue
        name = metrics.get("Name", metrics.get("name"))
        steps = cell.get("steps")
        result = {
            "complete": True,
            "backend": "sglang",
            "benchmark": path[-1] if path else None,
            "model": path[-2] if len(path) > 1 else None,
            "name": name,
            "baseline": bool(_BASELINE.search(name)) if isinstance(name, str) else steps == 0,
            "batch_size": cell.get("batch_size"),
            "steps": steps,
            "topk": cell.get("topk"),
            "draft_tokens": cell.get("num_draft_tokens"),
            "output_tokens_per_s": metrics.get("output_throughput"),
            "accept_length": metrics.get("accept_length"),
            "accept_length_over": "run",
        }
        if isinstance(accuracy := metrics.get("accuracy"), int | float):
            result["accuracy"] = accuracy
        if isinstance(latency := metrics.get("latency"), int | float):
            result["duration_s"] = latency
        yield result
