"""Whether one cell is noisier than the others, and what that does to comparisons with it.

The pooled residual assumes that launches of every cell scatter alike. A cell that scatters more makes
intervals against it too short. Where the largest share of the residual that one cell holds is larger
than equal noise explains (Cochran 1941), comparisons with that cell use its own variance beside the
others', with Satterthwaite's (1946) degrees of freedom, wherever that is the wider interval. The sets of
steps that could be best do the same; in the draws behind their probabilities its launches have its
variance.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from quietgate.analyse.joint import LargestT
from quietgate.analyse.model import Design, Fit, Floats

# Lenient on purpose: a needlessly wide interval costs little, a needlessly short one a false claim.
NOISY_ALPHA = 0.2
_DRAWS = 1_000


class Intervals(NamedTuple):
    """Standard error, degrees of freedom and half the interval of contrasts, one entry per contrast."""

    error: Floats
    df: Floats
    half: Floats


@dataclass(frozen=True)
class NoisyCell:
    """The cell with the largest share of the residual.

    Attributes:
        index: its place among the design's cells.
        cell: its id.
        sd: launch-to-launch standard deviation of its own launches, on the log scale.
        df: degrees of freedom of that.
        others_sd: the same of all other launches.
        others_df: degrees of freedom of that.
        p: how often a cell would hold such a share if all were equally noisy.
    """

    index: int
    cell: str
    sd: float
    df: float
    others_sd: float
    others_df: float
    p: float

    @property
    def noisy(self) -> bool:
        """Whether comparisons with this cell need its own variance."""
        return self.p < NOISY_ALPHA and self.sd > self.others_sd

    def errors(self, design: Design, weights: Floats) -> tuple[Floats, Floats]:
        """Standard error and degrees of freedom of contrasts (rows of launch weights)."""
        own = design.cell_of == self.index
        mine = self.sd**2 * (weights[:, own] ** 2).sum(axis=1)
        rest = self.others_sd**2 * (weights[:, ~own] ** 2).sum(axis=1)
        total = mine + rest
        df = total**2 / np.maximum(mine**2 / self.df + rest**2 / self.others_df, 1e-300)
        return np.sqrt(total), df

    def intervals(self, design: Design, weights: Floats, largest: LargestT, alpha: float) -> Intervals:
        """Joint intervals at level 1 - alpha of contrasts (rows of launch weights)."""
        error, df = self.errors(design, weights)
        return Intervals(error, df, error * np.array([largest.critical(alpha, x) for x in df]))


@lru_cache(maxsize=8)
def _largest_shares(design: Design) -> Floats:
    """The sorted largest share of one cell in simulated residuals of equally noisy launches."""
    noise = np.random.default_rng(7).standard_normal((design.n, _DRAWS))
    square = design.residuals(noise) ** 2
    order = np.argsort(design.cell_of, kind="stable")
    first = np.r_[0, np.cumsum(design.launches_per_cell)[:-1]]
    own = np.add.reduceat(square[order], first, axis=0)
    return np.sort((own / own.sum(axis=0)).max(axis=0))


def noisiest_cell(fit: Fit) -> NoisyCell | None:
    """The noisiest cell, or None where there are too few launches to ask."""
    design = fit.design
    if design.df < 4 or len(design.cells) < 3 or fit.rss < 1e-20:
        return None
    square = np.bincount(design.cell_of, fit.residual**2)
    freedom = np.bincount(design.cell_of, design.freedom)
    top = int(np.argmax(square))
    others_df = float(freedom.sum() - freedom[top])
    if freedom[top] < 0.5 or others_df < 1.0:
        return None
    shares = _largest_shares(design)
    above = len(shares) - int(np.searchsorted(shares, square[top] / fit.rss))
    return NoisyCell(
        index=top,
        cell=design.cells[top],
        sd=float(np.sqrt(square[top] / freedom[top])),
        df=float(freedom[top]),
        others_sd=float(np.sqrt(max(fit.rss - square[top], 0.0) / others_df)),
        others_df=others_df,
        p=(above + 1) / (len(shares) + 1),
    )
