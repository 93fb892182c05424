"""What a server's prefill lines say."""

from __future__ import annotations

from typing import Any

from quietgate.inspect.log.batches import Columns
from quietgate.inspect.log.numbers import Numbers
from quietgate.inspect.prefixes import ranks as ranks_of

# Totals: what pipeline and tensor ranks repeat of a batch would be counted again.
_SUMMED = frozenset({"new_sequences", "new_tokens", "cached_tokens"})


class Prefill:
    """Statistics over prefill lines; ranks that repeat a batch count as lines, their tokens only once."""

    def __init__(self) -> None:
        self.lines = 0
        self.graph_true = self.graph_false = 0
        self._numbers = {
            name: Numbers()
            for name in ("new_sequences", "new_tokens", "cached_tokens", "throughput", "occupancy_percent")
        }
        self._speakers: dict[int | None, bytes] = {}  # data rank -> the rank whose tokens count

    def add(self, columns: Columns) -> None:
        """Take lines."""
        self.lines += len(columns)
        speaks = {rank: self._speaks(rank) for rank in dict.fromkeys(columns.ranks)}
        for name, numbers in self._numbers.items():
            if column := columns.values.get(name):
                if name in _SUMMED and not all(speaks.values()):
                    column = [v for v, rank in zip(column, columns.ranks, strict=True) if speaks[rank]]
                numbers.add(column)
        if graph := columns.values.get("graph"):
            self.graph_true += graph.count(b"True")
            self.graph_false += graph.count(b"False")

    def _speaks(self, rank: bytes) -> bool:
        return self._speakers.setdefault(ranks_of(rank).get("DP"), rank) == rank

    def merge(self, other: Prefill) -> None:
        """Add another server's."""
        self.lines += other.lines
        self.graph_true += other.graph_true
        self.graph_false += other.graph_false
        for name, numbers in self._numbers.items():
            numbers.merge(other._numbers[name])

    def summary(self) -> dict[str, Any]:
        """The numbers, null where no line has them."""
        n = self._numbers
        return {
            "lines": self.lines,
            "new_tokens": n["new_tokens"].total if n["new_tokens"].count else None,
            "cached_tokens": n["cached_tokens"].total if n["cached_tokens"].count else None,
            "input_throughput_mean": n["throughput"].mean,
            "input_throughput_median": n["throughput"].median,
            "forward_occupancy_percent_mean": n["occupancy_percent"].mean,
            "not_finite": sum(x.not_finite for x in n.values()),
            "cuda_graph_true": self.graph_true,
            "cuda_graph_false": self.graph_false,
        }
