"""Running statistics of one quantity, in flat memory."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

_EXACT = 1 << 17  # distinct values kept before their spread is kept in bins instead
_BIN = 0.0005  # relative width of a bin


class Numbers:
    """Mean, median, extremes of the finite values seen; nan and inf are counted apart."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.not_finite = 0
        self.least = math.inf
        self.most = -math.inf
        self._values: Counter[float] = Counter()
        self._binned = False

    def add(self, raw: Iterable[bytes | None]) -> dict[bytes, float]:
        """Take values as written, None for a field that a line lacks; returns each distinct one's number."""
        numbers: dict[bytes, float] = {}
        total = 0.0
        finite: dict[float, int] = {}
        for text, times in Counter(raw).items():
            if text is None:
                continue
            value = numbers[text] = float(text)
            if math.isfinite(value):
                finite[value] = finite.get(value, 0) + times
                total += value * times
            else:
                self.not_finite += times
        if finite:
            self.count += sum(finite.values())
            self.total += total
            self.least = min(self.least, min(finite))
            self.most = max(self.most, max(finite))
            self._keep(finite)
        return numbers

    def _keep(self, counts: dict[float, int]) -> None:
        if self._binned:
            self._values.update(_in_bins(counts))
            return
        self._values.update(counts)
        if len(self._values) > _EXACT:
            self._binned = True
            self._values = _in_bins(self._values)

    def merge(self, other: Numbers) -> None:
        """Add another's values."""
        self.count += other.count
        self.total += other.total
        self.not_finite += other.not_finite
        self.least = min(self.least, other.least)
        self.most = max(self.most, other.most)
        if other._binned and not self._binned:
            self._binned = True
            self._values = _in_bins(self._values)
        self._keep(other._values)

    @property
    def mean(self) -> float | None:
        """Mean of the finite values."""
        return self.total / self.count if self.count else None

    @property
    def median(self) -> float | None:
        """Median, of an even number the upper of the two middle values, so always one that was logged.

        Beyond a hundred thousand distinct values within 0.05 %.
        """
        half, seen = self.count // 2, 0
        for value in sorted(self._values):
            seen += self._values[value]
            if seen > half:
                return value
        return None

    @property
    def maximum(self) -> float | None:
        """The largest."""
        return self.most if self.count else None


def _in_bins(counts: dict[float, int]) -> Counter[float]:
    bins: Counter[float] = Counter()
    for value, times in counts.items():
        bins[math.exp(round(math.log(value) / _BIN) * _BIN) if value > 0 else value] += times
    return bins
