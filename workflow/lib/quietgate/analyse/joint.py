"""The distribution of the largest of many correlated t statistics.

Dunnett's (1955) comparison with a control is the special case of contrasts against one cell in a
balanced layout; with missing launches and other contrasts the correlations differ, and the same
single-step procedure works with the real ones (Hothorn, Bretz & Westfall 2008).

With K contrasts that span d dimensions, the numerators are B g with g standard normal in d
dimensions. g has a direction and a length, independent of each other: the length is integrated
exactly (its square over the residual variance is F with d and df degrees of freedom), only the
direction is sampled, with a fixed seed. Tail probabilities are smooth and exact for d = 1.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import fdtrc
from scipy.stats import t as student

from quietgate.analyse.model import Floats

SEED = 1955
DIRECTIONS = 32_768
_CHUNK = 4_096
_BINS = 512
# What is left of a row that the rows before it already explain: rounding, far below this.
_DEPENDENT = 1e-9


@lru_cache(maxsize=4)
def _directions(d: int) -> NDArray[np.float64]:
    g = np.random.default_rng(SEED).standard_normal((DIRECTIONS, d))
    return np.asarray(g / np.linalg.norm(g, axis=1, keepdims=True))


def root_of(matrix: Floats) -> Floats:
    """The triangular root of a covariance matrix, one column per dimension that it spans.

    Not by eigenvectors: where eigenvalues are equal, as in every balanced design, those are whatever the
    machine's rounding makes of them, and draws along them would differ from machine to machine.
    """
    size = len(matrix)
    root = np.zeros((size, size))
    rank = 0
    for j in range(size):
        rest = np.asarray(matrix[j:, j] - root[j:, :rank] @ root[j, :rank])
        if rest[0] > _DEPENDENT * matrix[j, j]:
            root[j:, rank] = rest / np.sqrt(rest[0])
            rank += 1
    return root[:, :rank]


class LargestT:
    """max |T| (or max T) over contrasts whose estimates are `weights @ y`, one contrast per row.

    Attributes:
        contrasts: how many contrasts are looked at together.
        dimensions: dimension of the space they span.
    """

    def __init__(self, weights: Floats, *, one_sided: bool = False):
        rows = weights / np.linalg.norm(weights, axis=1, keepdims=True)
        factor = root_of(rows @ rows.T)
        factor /= np.linalg.norm(factor, axis=1, keepdims=True)
        self.contrasts, self.dimensions = factor.shape
        self.one_sided = one_sided
        u = _directions(self.dimensions)
        largest = np.empty(DIRECTIONS)
        for start in range(0, DIRECTIONS, _CHUNK):
            part = u[start : start + _CHUNK] @ factor.T
            largest[start : start + _CHUNK] = (part if one_sided else np.abs(part)).max(axis=1)
        # The tail is smooth in the direction's largest projection, so means of sorted groups do.
        grouped = np.sort(largest).reshape(_BINS, -1).mean(axis=1)
        self._largest = grouped[grouped > 0]
        self._weight = 1.0 / _BINS

    def p(self, t: Floats | float, df: float) -> Floats:
        """Probability that the largest statistic reaches |t| (t when one-sided) without any effect."""
        size = np.asarray(t, dtype=float) if self.one_sided else np.abs(t)
        size = np.atleast_1d(np.maximum(size, 1e-12))
        ratio = (size[:, None] / self._largest) ** 2 / self.dimensions
        tail: Floats = fdtrc(self.dimensions, df, ratio).sum(axis=1) * self._weight
        return np.minimum(tail, 1.0)

    def critical(self, alpha: float, df: float) -> float:
        """The value that the largest statistic exceeds with probability `alpha` without any effect."""
        sides = 1 if self.one_sided else 2
        low = float(student.isf(min(alpha / sides, 0.499), df))
        high = float(student.isf(alpha / sides / self.contrasts, df))
        if self.contrasts == 1:
            return high
        low, high = 0.9 * low, 1.1 * high + 0.1
        return float(brentq(lambda c: float(self.p(c, df)[0]) - alpha, low, high, xtol=1e-6))
