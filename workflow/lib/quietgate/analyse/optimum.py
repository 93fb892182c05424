"""Which number of steps is best under each NCCL profile, and whether tuning moves it.

Two answers from the same model, side by side. The distribution of the best steps comes from draws of
the cell effects given the data (multivariate t, the posterior under a flat prior). The set of steps
that could be best holds every number of steps that no other one beats (Hsu 1984, one-sided Dunnett
with each as the control), jointly over the profiles. Only the sets decide claims: between equal cells
the best of the draws is arbitrary, and "probably moved" would be said of pure noise. Where one cell is
noisier than the others (`noise.py`), both answers know it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quietgate.analyse.joint import LargestT, root_of
from quietgate.analyse.model import Design, Fit, Floats
from quietgate.analyse.noise import NoisyCell

DRAWS = 20_000
SEED = 1984


@dataclass(frozen=True, eq=False)
class Best:
    """The best steps inside one profile (and one value of every other axis).

    Attributes:
        columns: the cells' places among the design's cells, by rising steps.
        steps: the number of steps of each.
        probability: how often each is the best of a draw.
        in_set: whether each could be the best (joint 95 % set).
        effects: estimated log value of each.
    """

    columns: NDArray[np.intp]
    steps: NDArray[np.intp]
    probability: Floats
    in_set: NDArray[np.bool_]
    effects: Floats

    @property
    def best(self) -> int:
        """The steps with the highest estimate."""
        return int(self.steps[int(np.argmax(self.effects))])

    @property
    def could_be_best(self) -> list[int]:
        """The steps in the set."""
        return [int(s) for s in self.steps[self.in_set]]


def draws(fit: Fit, noisy: NoisyCell | None = None, count: int = DRAWS, seed: int = SEED) -> Floats:
    """Draws (rows) of all cell effects given the data, including the doubt about the noise itself.

    Args:
        fit: the model.
        noisy: the cell that is too noisy, if one is: its launches have its own variance. The others keep
            the pooled one, the larger: without a cell picked for its noise what is left looks too quiet.
        count: how many draws.
        seed: of the generator.
    """
    if fit.sd is None:
        raise ValueError("no residual: the noise is unknown")
    rng = np.random.default_rng(seed)
    design = fit.design
    kinds = [(np.ones(design.n, dtype=bool), fit.sd, float(design.df))]
    if noisy is not None:
        own = design.cell_of == noisy.index
        kinds = [(own, noisy.sd, noisy.df), (~own, fit.sd, float(design.df))]
    sample = np.tile(fit.effects, (count, 1))
    for launches, sd, df in kinds:
        weights = design.cell_weights[:, launches]
        root = root_of(weights @ weights.T)
        scale = sd * np.sqrt(df / rng.chisquare(df, count))
        sample += scale[:, None] * (rng.standard_normal((count, root.shape[1])) @ root.T)
    return sample


def could_be_best(
    fit: Fit, columns: NDArray[np.intp], alpha: float, noisy: NoisyCell | None = None
) -> NDArray[np.bool_]:
    """Which of the cells no other one of them beats, at joint level 1 - alpha.

    Comparisons with the cell that is too noisy, if one is, use its own variance where that is wider.
    """
    design, count = fit.design, len(columns)
    result = np.ones(count, dtype=bool)
    if count < 2 or fit.sd is None or fit.sd < 1e-12:
        return result
    for i, cell in enumerate(columns):
        others = np.delete(columns, i)
        weights = design.cell_weights[others] - design.cell_weights[cell]
        largest = LargestT(weights, one_sided=True)
        half = largest.critical(alpha, design.df) * fit.sd * np.linalg.norm(weights, axis=1)
        if noisy is not None:
            mine = np.flatnonzero((others == noisy.index) | (cell == noisy.index))
            own = noisy.intervals(design, weights[mine], largest, alpha)
            half[mine] = np.maximum(half[mine], own.half)
        result[i] = bool(np.all(fit.effects[others] - fit.effects[cell] <= half))
    return result


def best_steps(
    fit: Fit,
    sample: Floats,
    columns: NDArray[np.intp],
    steps: NDArray[np.intp],
    alpha: float,
    noisy: NoisyCell | None = None,
) -> Best:
    """The best steps among the cells at `columns`, whose steps are `steps`."""
    order = np.argsort(steps, kind="stable")
    columns, steps = columns[order], steps[order]
    winner = np.argmax(sample[:, columns], axis=1)
    probability = np.bincount(winner, minlength=len(columns)) / len(sample)
    in_set = could_be_best(fit, columns, alpha, noisy)
    return Best(columns, steps, probability, in_set, fit.effects[columns])


@dataclass(frozen=True)
class Move:
    """Whether the best steps differ between two profiles.

    Attributes:
        probability: how often the best steps of a draw differ; None where fewer than two numbers of
            steps were measured under both profiles, so that nothing could.
        probability_if_tied: how often they would differ if each profile drew its own from its own
            distribution, unrelated to the other: what a move between near ties looks like.
        verdict: "moved" (no steps could be best in both), "unmoved" (each profile has one candidate,
            it is the same, and no rival of it was measured under one profile only), or "open".
        keeping_costs: log ratio lost by keeping the other profile's best steps, median of the draws.
        keeping_costs_at_most: its 95 % quantile.
        kept_steps: the steps that would be kept.
    """

    probability: float | None
    probability_if_tied: float | None
    verdict: str
    keeping_costs: float | None
    keeping_costs_at_most: float | None
    kept_steps: int


def move(sample: Floats, there: Best, here: Best) -> Move:
    """Compare the best steps under a profile (`here`) with those under another one (`there`).

    The draws compare steps that were measured under both profiles.
    """
    common = np.intersect1d(there.steps, here.steps)
    a = there.columns[np.isin(there.steps, common)]
    b = here.columns[np.isin(here.steps, common)]
    several = len(common) > 1
    best_a, best_b = (np.argmax(sample[:, x], axis=1) if several else np.zeros(1, int) for x in (a, b))
    shares = [np.bincount(x, minlength=len(common)) / len(x) for x in (best_a, best_b)]
    sets = set(there.could_be_best), set(here.could_be_best)
    if not sets[0] & sets[1]:
        verdict = "moved"
    elif sets[0] == sets[1] and len(sets[0]) == 1 and len(common) == len(there.steps) == len(here.steps):
        verdict = "unmoved"
    else:
        verdict = "open"
    loss = None
    if there.best in common:
        kept = b[int(np.flatnonzero(common == there.best)[0])]
        loss = sample[:, b].max(axis=1) - sample[:, kept]
    return Move(
        probability=float(np.mean(best_a != best_b)) if several else None,
        probability_if_tied=float(1.0 - shares[0] @ shares[1]) if several else None,
        verdict=verdict,
        keeping_costs=None if loss is None else float(np.median(loss)),
        keeping_costs_at_most=None if loss is None else float(np.quantile(loss, 0.95)),
        kept_steps=there.best,
    )


def is_comparable(design: Design, columns: NDArray[np.intp]) -> bool:
    """Whether all these cells can be compared inside blocks."""
    return len(np.unique(design.component[columns])) == 1
