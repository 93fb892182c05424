"""One launch must not decide a study: launches that stand out, and claims that rest on one launch.

Two rules, both stated wherever a claim is printed:

1. A launch whose residual is impossible under the noise of all others (externally studentised,
   Bonferroni over the launches) is set aside from the model, named, and drawn. What the comparisons
   would be with it is kept beside each of them.
2. A claim must survive leaving out any single launch of the cells that it compares.

The first keeps the intervals honest when a launch goes grossly wrong; the second keeps a launch that
is merely odd, too small to be recognised, from becoming a claim.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from quietgate.analyse.model import Design, Fit, Floats

FLAG_ALPHA = 0.01
LEAST_LAUNCHES = 3  # with two launches nobody can say which of them is the odd one
MOST_SHARE = 0.1


def flagged(design: Design, y: Floats, alpha: float = FLAG_ALPHA) -> list[int]:
    """Indices of the launches that stand out, the most extreme first; at most a tenth of all."""
    out: list[int] = []
    kept = np.arange(design.n)
    most = max(1, int(MOST_SHARE * design.n))
    while len(out) < most and design.df > 2:
        fit = Fit.of(design, y[kept])
        if fit.rss < 1e-20:
            break
        may_go = (design.launches_per_cell[design.cell_of] >= LEAST_LAUNCHES) & (
            design.freedom > 1e-9
        )
        freedom = np.where(may_go, design.freedom, 1.0)
        rest = np.maximum(fit.rss - fit.residual**2 / freedom, 1e-30) / (design.df - 1)
        t = np.where(may_go, np.abs(fit.residual) / np.sqrt(freedom * rest), 0.0)
        worst = int(np.argmax(t))
        if 2 * design.n * student.sf(t[worst], design.df - 1) > alpha:
            break
        out.append(int(kept[worst]))
        kept = np.delete(kept, worst)
        design = design.without([worst])
    return out


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


def noisiest_cell(
    fit: Fit, draws: int = 2_000, seed: int = 7
) -> tuple[str, float, float, float] | None:
    """The cell with the largest share of the residual: name, its sd, the others' sd, p value.

    Cochran's (1941) C statistic; its distribution under equal noise is simulated for the design.
    None where there are too few launches to ask.
    """
    design = fit.design
    if design.df < 3 or len(design.cells) < 3 or fit.rss < 1e-20:
        return None
    own = np.zeros((len(design.cells), design.n))
    own[design.cell_of, np.arange(design.n)] = 1.0
    squares = own @ fit.residual**2
    freedom = own @ design.freedom
    noise = np.random.default_rng(seed).standard_normal((design.n, draws))
    simulated = own @ design.residuals(noise) ** 2
    top = int(np.argmax(squares))
    p = float(np.mean((simulated / simulated.sum(axis=0)).max(axis=0) >= squares[top] / fit.rss))
    others = max(freedom.sum() - freedom[top], 1e-9)
    return (
        design.cells[top],
        float(np.sqrt(squares[top] / max(freedom[top], 1e-9))),
        float(np.sqrt(max(fit.rss - squares[top], 0.0) / others)),
        p,
    )
