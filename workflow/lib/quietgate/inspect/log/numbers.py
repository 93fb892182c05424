"""Statistics of one logged quantity, in flat memory.

A log writes the same few thousand numbers over and over, so values are counted as written and turned into
numbers once, at the end.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import repeat
from operator import truediv

Raw = bytes | None

_MOST_DISTINCT = 1 << 17  # beyond, values are kept in bins
_MOST_WAITING = 1 << 18  # counted a block's few at a time, each would be looked up in memory gone cold
_BIN = 0.0005  # relative width of a bin


class Numbers:
    """Mean, median, extremes of the finite values seen; nan and inf are counted apart."""

    def __init__(self) -> None:
        self._raw: Counter[Raw] = Counter()
        self._waiting = array("d")  # numbers not counted yet
        self._counts: Counter[float] = Counter()
        self._bins: Counter[int] = Counter()  # by logarithm, once there are too many values to count each
        self._binned = False
        self._not_finite = 0

    def add(self, column: Sequence[Raw]) -> None:
        """Take values as written; None is a field that a line does not have."""
        if not column:
            return
        if self._binned:
            self._add_to_bins([float(value) for value in column if value is not None])
        elif column[0] == column[-1] and column.count(column[0]) == len(column):
            self._raw[column[0]] += len(column)
        else:
            self._raw.update(column)
            if len(self._raw) > _MOST_DISTINCT:
                self._settle()

    def add_numbers(self, column: Sequence[float]) -> None:
        """Take finite numbers, which need not come again soon."""
        self._waiting.extend(column)
        if len(self._waiting) > _MOST_WAITING:
            self._settle()

    def add_times(self, raw: Raw, times: int) -> None:
        """Take one value several times."""
        self._raw[raw] += times

    def _add_to_bins(self, values: Sequence[float]) -> None:
        if values and math.isfinite(sum(values)) and min(values) > 0:
            self._bins.update(map(round, map(truediv, map(math.log, values), repeat(_BIN))))
        else:
            self._count(Counter(values))

    def _settle(self) -> None:
        """Count what waits, and turn what is counted as written into numbers."""
        waiting, self._waiting = self._waiting, array("d")
        if self._binned:
            self._add_to_bins(waiting)
        else:
            self._counts.update(waiting)
        raw, self._raw = self._raw, Counter()
        self._count({written: times for written, times in raw.items() if written is not None})
        if len(self._counts) > _MOST_DISTINCT and not self._binned:
            self._begin_bins()

    def _count(self, values: Mapping[bytes, int] | Mapping[float, int]) -> None:
        counts: Counter[float] = Counter()
        for written, times in values.items():
            value = float(written)
            if math.isfinite(value):
                counts[value] += times
            else:
                self._not_finite += times
        self._take(counts)

    def _begin_bins(self) -> None:
        self._binned = True
        counts, self._counts = self._counts, Counter()
        self._take(counts)

    def _take(self, counts: Counter[float]) -> None:
        if not self._binned:
            self._counts.update(counts)
            return
        for value, times in counts.items():
            if value > 0:
                self._bins[round(math.log(value) / _BIN)] += times
            else:
                self._counts[value] += times

    def _all(self) -> Mapping[float, int]:
        """How often each value, or bin, was seen."""
        self._settle()
        if not self._binned:
            return self._counts
        return {**self._counts, **{math.exp(i * _BIN): times for i, times in self._bins.items()}}

    def merge(self, other: Numbers) -> None:
        """Add another's values."""
        self._settle()
        other._settle()
        self._not_finite += other._not_finite
        if other._binned and not self._binned:
            self._begin_bins()
        self._take(other._counts)
        self._bins.update(other._bins)

    def above(self, limit: float) -> int:
        """How many are above a limit."""
        return sum(times for value, times in self._all().items() if value > limit)

    @property
    def count(self) -> int:
        """How many finite values."""
        return sum(self._all().values())

    @property
    def not_finite(self) -> int:
        """How many were nan or inf."""
        self._settle()
        return self._not_finite

    @property
    def total(self) -> float:
        """Their sum."""
        return math.fsum(value * times for value, times in self._all().items())

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
        counts = self._all()
        half, seen = self.count // 2, 0
        for value in sorted(counts):
            seen += counts[value]
            if seen > half:
                return value
        return None

    @property
    def maximum(self) -> float | None:
        """The largest."""
        return max(self._all(), default=None)


class Together:
    """Quantities that the same lines have, counted as rows since few combinations occur.

    The mean of the first is also taken weighted by the second.
    """

    def __init__(self, *quantities: Numbers) -> None:
        self._quantities = quantities
        self._rows: Counter[tuple[Raw, ...]] = Counter()
        self._sum = self._total = 0.0

    def add(self, *columns: Sequence[Raw]) -> None:
        """Take a column of each quantity, side by side."""
        self._rows.update(zip(*columns, strict=True))
        if len(self._rows) > _MOST_DISTINCT:
            self.settle()

    def settle(self) -> None:
        """Hand everything seen so far to the quantities."""
        rows, self._rows = self._rows, Counter()
        weighted: Counter[tuple[Raw, ...]] = Counter()
        for row, times in rows.items():
            for quantity, raw in zip(self._quantities, row, strict=True):
                quantity.add_times(raw, times)
            weighted[row[:2]] += times
        for (value, weight), times in weighted.items():
            if value is not None and weight is not None and math.isfinite(number := float(value)):
                self._sum += number * float(weight) * times
                self._total += float(weight) * times

    def merge(self, other: Together) -> None:
        """Add another's lines, once it is settled."""
        self._sum += other._sum
        self._total += other._total

    @property
    def mean(self) -> float | None:
        """The weighted mean of the first quantity."""
        return self._sum / self._total if self._total else None
