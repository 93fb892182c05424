"""A rank's communication: how often and how long each kernel of it ran."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np

from quietgate.inspect.trace import names
from quietgate.inspect.trace.columns import Columns
from quietgate.inspect.trace.spans import Floats, Ints


def of_events(
    columns: Columns, texts: list[str], name: Ints, dur: Floats, kernel_ms: float
) -> dict[str, Any]:
    """Counts and milliseconds of a rank's communication kernels, by class and by kernel.

    Args:
        columns: the rank's events, for the shapes of its kernels.
        texts: its kernels' names; `name` has each kernel's index in them, `dur` its microseconds.
        kernel_ms: of all its kernels, for the share.
    """
    counts = np.bincount(name, minlength=len(texts)) if len(name) else np.zeros(0, dtype=np.int64)
    sums = np.bincount(name, weights=dur, minlength=len(texts)) if len(name) else np.zeros(0)
    rows = [
        (text, int(counts[i]), float(sums[i]) / 1e3, columns.shapes.get(text, Counter()))
        for i, text in enumerate(texts)
    ]
    return _gathered(rows, kernel_ms)


def of_totals(totals: list[tuple[str, float]], kernel_ms: float) -> dict[str, Any]:
    """The same of totals per kernel, (name, microseconds): counts are unknown (None)."""
    found = _gathered([(text, 0, us / 1e3, Counter()) for text, us in totals], kernel_ms)
    for counted in (found, *found["by_class"].values(), *found["by_kernel"].values()):
        counted["count"] = None
    return found


def _gathered(
    rows: list[tuple[str, int, float, Counter[tuple[int, int]]]], kernel_ms: float
) -> dict[str, Any]:
    """Of each kernel its name, its count, its milliseconds and its shapes."""
    by_kernel: dict[str, Any] = {}
    by_class: dict[str, Any] = {}
    for text, count, ms, shapes in rows:
        kind = names.communication_class(text)
        if kind is None:
            continue
        entry = by_kernel.setdefault(names.short(text), _kernel_entry(text, kind))
        for total in (entry, by_class.setdefault(kind, {"count": 0, "ms": 0.0})):
            total["count"] += count
            total["ms"] += ms
        entry["grids"] = sorted({*entry["grids"], *(grid for grid, _ in shapes)})
        entry["blocks"] = sorted({*entry["blocks"], *(block for _, block in shapes)})
    total_ms = math.fsum(total["ms"] for total in by_class.values())
    return {
        "count": sum(total["count"] for total in by_class.values()),
        "ms": total_ms,
        "share": total_ms / kernel_ms if kernel_ms else None,
        "by_class": by_class,
        "by_kernel": by_kernel,
    }


def _kernel_entry(text: str, kind: str) -> dict[str, Any]:
    """A communication kernel: grid size is evidence of channels, block size of threads."""
    return {
        "class": kind,
        "collective": names.collective(text),
        "tree": names.tree(text),
        "count": 0,
        "ms": 0.0,
        "grids": [],
        "blocks": [],
    }
