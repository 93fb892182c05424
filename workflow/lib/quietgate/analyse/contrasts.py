"""Comparisons between cells: log ratios, joint intervals and p values, and what could be seen.

Two families per concurrency level. The first compares every cell with the reference cell (Dunnett).
The second holds what follows from the grid: the effect of an NCCL profile at the same steps, the
effect of steps inside another profile, and their interaction (a ratio of ratios).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from quietgate.analyse.joint import LargestT
from quietgate.analyse.model import Design, Fit, Floats
from quietgate.analyse.noise import NoisyCell
from quietgate.analyse.outlying import survives

POWER = 0.8
_POWER_DRAWS = 1_000

REFERENCE = "reference"
PROFILE = "profile"
STEPS = "steps"
INTERACTION = "interaction"


@dataclass(frozen=True)
class Contrast:
    """A comparison: a signed sum of cell effects on the log scale.

    Attributes:
        kind: "reference", "profile", "steps" or "interaction".
        cell: the cell the sentence is about.
        against: the cell it is compared with.
        signs: cell id -> +1 or -1.
        across_profiles: whether a difference would be the NCCL profile's doing, at least in part.
    """

    kind: str
    cell: str
    against: str
    signs: tuple[tuple[str, int], ...]
    across_profiles: bool


def _pair(kind: str, cell: str, against: str, across: bool) -> Contrast:
    return Contrast(kind, cell, against, ((cell, 1), (against, -1)), across)


def against_reference(facts: pd.DataFrame, cells: Sequence[str], reference: str) -> list[Contrast]:
    """Every cell but the reference against it.

    Args:
        facts: one row per cell id with `steps`, `nccl` and the other axes (`cell_facts`).
        cells: the cells that have launches.
        reference: id of the reference cell.
    """
    nccl = facts["nccl"]
    return [
        _pair(REFERENCE, cell, reference, bool(nccl[cell] != nccl[reference]))
        for cell in cells
        if cell != reference
    ]


def within_grid(
    facts: pd.DataFrame, cells: Sequence[str], reference: str, axes: Sequence[str]
) -> list[Contrast]:
    """Profile, steps and interaction comparisons that the first family does not hold already."""
    place = {
        str(cell): (str(nccl), int(steps), *rest)
        for cell, nccl, steps, *rest in zip(
            facts.index, facts["nccl"], facts["steps"], *(facts[a] for a in axes), strict=True
        )
    }
    where = {place[cell]: cell for cell in cells}
    nccl0, steps0 = place[reference][:2]
    found: list[Contrast] = []
    for cell in cells:
        nccl, steps, *rest = place[cell]
        if nccl == nccl0:
            continue
        plain = where.get((nccl0, steps, *rest))
        start = where.get((nccl, steps0, *rest))
        corner = where.get((nccl0, steps0, *rest))
        if plain is not None and plain != reference:
            found.append(_pair(PROFILE, cell, plain, True))
        if steps == steps0:
            continue
        if start is not None:
            found.append(_pair(STEPS, cell, start, False))
        if plain is not None and start is not None and corner is not None:
            signs = ((cell, 1), (start, -1), (plain, -1), (corner, 1))
            found.append(Contrast(INTERACTION, cell, plain, signs, True))
    return found


def estimable(design: Design, contrasts: Sequence[Contrast]) -> list[Contrast]:
    """The contrasts whose cells all have launches in blocks that connect them."""
    part = dict(zip(design.cells, design.component.tolist(), strict=True))
    return [
        c
        for c in contrasts
        if all(cell in part for cell, _ in c.signs) and len({part[cell] for cell, _ in c.signs}) == 1
    ]


def coefficients(design: Design, contrasts: Sequence[Contrast]) -> Floats:
    """Contrasts (rows) of the design's cell effects (columns)."""
    index = {cell: i for i, cell in enumerate(design.cells)}
    matrix = np.zeros((len(contrasts), len(design.cells)))
    for row, contrast in enumerate(contrasts):
        for cell, sign in contrast.signs:
            matrix[row, index[cell]] += sign
    return matrix


class Family:
    """Contrasts that are judged together on one design: what does not depend on the measured values.

    Attributes:
        design: the launches.
        matrix: contrasts of cell effects.
        alpha: probability of any false claim.
        weights: contrasts of launches.
        involved: contrasts by launches: does the launch belong to a compared cell?
        largest: the joint distribution.
        critical: critical value of |t| at `alpha`.
        critical_without_one: the same with one launch less.
    """

    def __init__(self, design: Design, matrix: Floats, alpha: float):
        self.design = design
        self.matrix = matrix
        self.alpha = alpha
        self.weights = matrix @ design.cell_weights
        self.involved: NDArray[np.bool_] = matrix[:, design.cell_of] != 0
        self.largest = LargestT(self.weights)
        self.critical = self.largest.critical(alpha, design.df)
        self.critical_without_one = self.largest.critical(alpha, design.df - 1) if design.df > 1 else np.inf

    def judge(self, fit: Fit, noisy: NoisyCell | None = None) -> Judged:
        """Estimates, joint intervals, adjusted p values and the one-launch rule.

        Args:
            fit: the model on this family's design.
            noisy: the cell that is too noisy, if one is: contrasts with it are widened.
        """
        estimate = self.matrix @ fit.effects
        norm = np.sqrt((self.weights**2).sum(axis=1))
        error = (fit.sd or 0.0) * norm
        # Identical values in every launch leave no noise: no statistics can speak about them.
        usable = error > 1e-12
        t = np.where(usable, estimate / np.where(usable, error, 1.0), 0.0)
        half = self.critical * error
        df = np.full(len(t), float(self.design.df))
        if noisy is not None:
            mine = np.flatnonzero(self.matrix[:, noisy.index])
            own = noisy.intervals(self.design, self.weights[mine], self.largest, self.alpha)
            wider = own.half > half[mine]
            k = mine[wider]
            error[k], df[k], half[k] = (x[wider] for x in own)
            t[k] = estimate[k] / error[k]
        beyond = usable & (np.abs(estimate) > half)
        robust = survives(fit, self.weights, self.involved, estimate, self.critical_without_one)
        return Judged(estimate, error, t, df, estimate - half, estimate + half, beyond, robust, self.largest)

    def detectable(self, sd: float, power: float = POWER) -> Floats:
        """The smallest log ratio of each contrast that would be claimed with probability `power`.

        Under both rules of a claim (beyond the joint critical value, and so without any single
        launch), by draws of the launches' noise with standard deviation `sd`: in each draw the
        effect that would just have been enough is known exactly.
        """
        design = self.design
        if design.df < 2:
            return np.full(len(self.weights), np.inf)
        noise = np.random.default_rng(88).standard_normal((design.n, _POWER_DRAWS))
        residual = design.residuals(noise)
        rss = (residual**2).sum(axis=0)
        result = np.empty(len(self.weights))
        known: dict[tuple[int, ...], float] = {}
        for k, row in enumerate(self.weights):
            used = np.flatnonzero(self.involved[k])
            square = float(row @ row)
            # Contrasts with the same weights on the same pattern of launches see the same.
            key = (round(1e9 * square), *np.sort(np.round(1e6 * np.abs(row[used])).astype(int)))
            if key not in known:
                freedom = design.freedom[used][:, None]
                if (freedom < 1e-9).any():
                    known[key] = np.inf
                else:
                    w, e = row[used][:, None], residual[used]
                    off = row @ noise
                    need = self.critical * np.sqrt(square * rss / design.df) - off
                    rest = np.maximum(rss - e**2 / freedom, 0.0) / (design.df - 1)
                    error = np.sqrt((square + w**2 / freedom) * rest)
                    each = self.critical_without_one * error - (off - w * e / freedom)
                    known[key] = float(np.quantile(np.maximum(need, each.max(axis=0)), power))
            result[k] = known[key]
        return sd * result


@dataclass(frozen=True, eq=False)
class Judged:
    """What a family says about one set of measured values, one entry per contrast.

    Attributes:
        estimate: log ratio.
        error: its standard error.
        t: their quotient.
        df: its degrees of freedom.
        low: lower end of the joint interval.
        high: upper end of the joint interval.
        beyond: whether the joint interval leaves out "no difference".
        robust: whether that survives leaving out any single launch of the compared cells.
        largest: the family's joint distribution.
    """

    estimate: Floats
    error: Floats
    t: Floats
    df: Floats
    low: Floats
    high: Floats
    beyond: NDArray[np.bool_]
    robust: NDArray[np.bool_]
    largest: LargestT

    @cached_property
    def p(self) -> Floats:
        """p values adjusted for the family."""
        result = np.empty(len(self.t))
        for df in np.unique(self.df):
            mine = self.df == df
            result[mine] = self.largest.p(self.t[mine], df)
        return result
