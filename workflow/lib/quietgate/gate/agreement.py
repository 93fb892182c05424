"""Does a speculative cell write the text of its baseline, token by token?

Greedy verification accepts a draft only where the target would have written it, so the outputs should
be the same. Batched kernels add in another order than single-token ones, and a near tie may fall the
other way: a late difference in one prompt is arithmetic, an early one in all of them is a fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Record = Mapping[str, Any]
Cell = Mapping[str, Any]


def baseline_of(cell: Cell, cells: Iterable[Cell]) -> Cell | None:
    """The cell without speculation and with the same profile and axes, or the nearest there is.

    Args:
        cell: {"id", "steps", "nccl", "axes"}; speculative axes do not exist without speculation, so a
            baseline of the same profile that differs in them only is the one.
    """
    candidates = [c for c in cells if c["steps"] == 0 and c["nccl"] == cell["nccl"]]
    same = [c for c in candidates if c["axes"] == cell["axes"]]
    if same:
        return same[0]

    def distance(c: Cell) -> int:
        return sum(1 for name, value in cell["axes"].items() if c["axes"].get(name) != value)

    return min(candidates, key=distance, default=None)


def agreement(speculative: Record, baseline: Record) -> list[dict[str, Any]]:
    """Compare the fingerprints of two gate records, prompt by prompt.

    Returns:
        [{"prompt_id", "same", "compared": "tokens"|"text", "first_difference": index|null,
        "length", "here", "there"}]: index of the first differing token (character, where a server
        gave no ids), and what stands there in both. Prompts that only one has are left out.
    """
    others = {f["prompt_id"]: f for f in baseline.get("fingerprints", ())}
    return [
        _compare(one, others[one["prompt_id"]])
        for one in speculative.get("fingerprints", ())
        if one["prompt_id"] in others
    ]


def _compare(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    tokens = one["token_ids"] is not None and other["token_ids"] is not None
    a, b = (one["token_ids"], other["token_ids"]) if tokens else (one["text"], other["text"])
    # Speculation may overshoot the limit by part of a cycle: only the common length is compared.
    where = first_difference(a, b)
    return {
        "prompt_id": one["prompt_id"],
        "same": where is None,
        "compared": "tokens" if tokens else "text",
        "first_difference": where,
        "length": min(len(a), len(b)),
        "here": None if where is None else a[where],
        "there": None if where is None else b[where],
    }


def first_difference(a: Sequence[Any], b: Sequence[Any]) -> int | None:
    """Index of the first difference within the common length, or None."""
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return None
