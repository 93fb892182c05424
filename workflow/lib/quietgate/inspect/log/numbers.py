"""Statistics of one logged quantity, in flat memory.

A log writes the same few thousand numbers over and over, so values are counted as written and turned into
numbers once, at the end.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

Raw = bytes | None

_MOST_DISTINCT = 1 << 17  # beyond, values are kept in bins
_BIN = 0.0005  # relative width of a bin


class Floats(dict[Raw, float]):
    """Numbers of values as written, each converted once; a missing one is 0."""

    def __missing__(self, raw: Raw) -> float:
        if len(self) > _MOST_DISTINCT:
            self.clear()
        value = self[raw] = 0.0 if raw is None else float(raw)
        return value

    def of(self, column: Sequence[Raw]) -> list[float]:
        """A whole column's numbers."""
        return list(map(self.__getitem__, column))


class Numbers:
    """Mean, median, extremes of the finite values seen; nan and inf are counted apart."""

    def __init__(self) -> None:
        self._raw: Counter[Raw] = Counter()
        self._counts: Counter[float] = Counter()
        self._binned = False
        self._not_finite = 0

    def add(self, column: Iterable[Raw]) -> None:
        """Take values as written; None is a field that a line does not have."""
        self._raw.update(column)
        if len(self._raw) > _MOST_DISTINCT:
            self._settle()

    def add_times(self, raw: Raw, times: int) -> None:
        """Take one value several times."""
        self._raw[raw] += times

    def _settle(self) -> Counter[float]:
        """Everything seen so far, as numbers."""
        if self._raw:
            for raw, times in self._raw.items():
                if raw is None:
                    continue
                value = float(raw)
                if math.isfinite(value):
                    self._counts[_bin(value) if self._binned else value] += times
                else:
                    self._not_finite += times
            self._raw = Counter()
            if len(self._counts) > _MOST_DISTINCT and not self._binned:
                self._binned = True
                self._counts = _in_bins(self._counts)
        return self._counts

    def merge(self, other: Numbers) -> None:
        """Add another's values."""
        theirs = other._settle()
        self._settle()
        self._not_finite += other._not_finite
        if other._binned and not self._binned:
            self._binned = True
            self._counts = _in_bins(self._counts)
        self._counts.update(_in_bins(theirs) if self._binned else theirs)

    def above(self, limit: float) -> int:
        """How many are above a limit."""
        return sum(times for value, times in self._settle().items() if value > limit)

    @property
    def count(self) -> int:
        """How many finite values."""
        return sum(self._settle().values())

    @property
    def not_finite(self) -> int:
        """How many were nan or inf."""
        self._settle()
        return self._not_finite

    @property
    def total(self) -> float:
        """Their sum."""
        return math.fsum(value * times for value, times in self._settle().items())

    @property
    def mean(self) -> float | None:
        """Their mean."""
        count = self.count
        return self.total / count if count else None

    @property
    def median(self) -> float | None:
        """Their median, of an even number the upper of the two middle values, so always one that was logged.

        Beyond a hundred thousand distinct values within 0.05 %.
        """
        counts = self._settle()
        half, seen = self.count // 2, 0
        for value in sorted(counts):
            seen += counts[value]
            if seen > half:
                return value
        return None

    @property
    def maximum(self) -> float | None:
        """The largest."""
        return max(self._settle(), default=None)


class Weighted:
    """A quantity and its weight from the same lines: both counted at once, and a weighted mean kept."""

    def __init__(self, values: Numbers, weights: Numbers) -> None:
        self._values, self._weights = values, weights
        self._pairs: Counter[tuple[Raw, Raw]] = Counter()
        self._sum = self._total = 0.0

    def add(self, values: Sequence[Raw], weights: Sequence[Raw]) -> None:
        """Take two columns, side by side."""
        self._pairs.update(zip(values, weights, strict=True))
        if len(self._pairs) > _MOST_DISTINCT:
            self.settle()

    def settle(self) -> None:
        """Hand everything seen so far to both quantities."""
        pairs, self._pairs = self._pairs, Counter()
        for (value, weight), times in pairs.items():
            self._values.add_times(value, times)
            self._weights.add_times(weight, times)
            if value is not None and weight is not None and math.isfinite(number := float(value)):
                self._sum += number * float(weight) * times
                self._total += float(weight) * times

    def merge(self, other: Weighted) -> None:
        """Add another's lines, once it is settled."""
        self._sum += other._sum
        self._total += other._total

    @property
    def mean(self) -> float | None:
        """The weighted mean."""
        return self._sum / self._total if self._total else None


def _bin(value: float) -> float:
    return math.exp(round(math.log(value) / _BIN) * _BIN) if value > 0 else value


def _in_bins(counts: Counter[float]) -> Counter[float]:
    bins: Counter[float] = Counter()
    for value, times in counts.items():
        bins[_bin(value)] += times
    return bins
