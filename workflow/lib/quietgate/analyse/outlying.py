"""One launch must not decide a study: launches that stand out, and claims that rest on one launch.

Two rules, both stated wherever a claim is printed:

1. A launch whose residual is impossible under the noise of all others (externally studentised,
   Bonferroni over the launches) is set aside from the model, named, and drawn, if the rest of its
   cell scatters like the other cells; else the cell is noisy (`noise`) and the launch stays. What
   the comparisons would be with it is kept beside each of them.
2. A claim must survive leaving out any single launch of the cells that it compares.

The first keeps the intervals honest when a launch goes grossly wrong; the second keeps a launch that
is merely odd, too small to be recognised, from becoming a claim.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import f as f_distribution
from scipy.stats import t as student

from quietgate.analyse.model import Design, Fit, Floats

FLAG_ALPHA = 0.02
LEAST_LAUNCHES = 3  # with two launches nobody can say which of them is the odd one
MOST_SHARE = 0.1
ALIKE_ALPHA = 0.05


def flagged(design: Design, y: Floats, alpha: float = FLAG_ALPHA) -> list[int]:
    """Indices of the launches that stand out, the most extreme first; at most a tenth of all."""
    out: list[int] = []
    kept = np.arange(design.n)
    most = max(1, int(MOST_SHARE * design.n))
    while len(out) < most and design.df > 2:
        fit = Fit.of(design, y[kept])
        if fit.rss < 1e-20:
            break
        may_go = (design.launches_per_cell[design.cell_of] >= LEAST_LAUNCHES) & (design.freedom > 1e-9)
        freedom = np.where(may_go, design.freedom, 1.0)
        rest = np.maximum(fit.rss - fit.residual**2 / freedom, 1e-30) / (design.df - 1)
        t = np.where(may_go, np.abs(fit.residual) / np.sqrt(freedom * rest), 0.0)
        worst = int(np.argmax(t))
        if 2 * design.n * student.sf(t[worst], design.df - 1) > alpha:
            break
        left = np.delete(kept, worst)
        smaller = design.without([worst])
        if not _scatters_alike(Fit.of(smaller, y[left]), design.cells[design.cell_of[worst]]):
            break
        out.append(int(kept[worst]))
        kept, design = left, smaller
    return out


def _scatters_alike(fit: Fit, cell: str) -> bool:
    """Whether a cell's launches scatter no more than the other cells' (F test)."""
    own = fit.design.cell_of == fit.design.cells.index(cell)
    square, freedom = fit.residual**2, fit.design.freedom
    own_df, other_df = float(freedom[own].sum()), float(freedom[~own].sum())
    if own_df < 0.5 or other_df < 1.0:
        return True
    ratio = (square[own].sum() / own_df) / max(square[~own].sum() / other_df, 1e-30)
    return bool(f_distribution.sf(ratio, own_df, other_df) > ALIKE_ALPHA)


def survives(
    fit: Fit, weights: Floats, involved: NDArray[np.bool_], estimate: Floats, critical: float
) -> NDArray[np.bool_]:
    """Whether each contrast stays beyond `critical` without any single launch of its cells.

    Args:
        fit: the model.
        weights: contrasts (rows) of the launches' log values.
        involved: contrasts (rows) by launches: does the launch belong to a compared cell?
        estimate: the contrasts' values.
        critical: critical value of |t| at one degree of freedom less.
    """
    df = fit.design.df
    if df < 2:
        return np.zeros(len(weights), dtype=bool)
    freedom = fit.design.freedom
    sole = freedom < 1e-9
    safe = np.where(sole, 1.0, freedom)
    without = estimate[:, None] - weights * (fit.residual / safe)
    variance = (weights**2).sum(axis=1)[:, None] + weights**2 / safe
    rest = np.maximum(fit.rss - fit.residual**2 / safe, 0.0) / (df - 1)
    beyond = np.sign(estimate)[:, None] * without >= critical * np.sqrt(variance * rest)
    return np.asarray(np.all((beyond & ~sole) | ~involved, axis=1))
