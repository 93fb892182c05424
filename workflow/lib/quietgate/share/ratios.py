"""Ratios of one study's cells to another's, with intervals where both have launches to judge them by.

Two studies share no blocks, so that a cell's mean varies with the blocks as well as with the launches.
Both variances are estimated within each study over all its cells (Satterthwaite's degrees of freedom),
and the two studies are compared as Welch does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student

from quietgate.analyse.launches import launch_values
from quietgate.analyse.model import Design, Fit

ALPHA = 0.05


@dataclass(frozen=True)
class Ratio:
    """One cell at one number of streams.

    Attributes:
        a: mean (geometric) over the launches of the first study.
        b: the same of the second.
        launches: how many launches each has.
        low: lower end of the interval of b / a, joint over all cells; None where nothing estimates it.
        high: its upper end.
    """

    cell: str
    concurrency: int
    a: float
    b: float
    launches: tuple[int, int]
    low: float | None
    high: float | None

    @property
    def value(self) -> float:
        """b over a."""
        return self.b / self.a


@dataclass(frozen=True)
class _Level:
    """Log means of a study's cells at one number of streams, and the variance of one launch's log value."""

    means: Mapping[str, float]
    counts: Mapping[str, int]
    variance: float | None
    df: float


def ratios(
    a: tuple[pd.DataFrame, Mapping[str, Any]], b: tuple[pd.DataFrame, Mapping[str, Any]], metric: str
) -> list[Ratio]:
    """b over a for every cell and number of streams that both studies measured.

    Args:
        a: table `cells` and study record of the first study.
        b: the same of the second.
    """
    levels = [_levels(*study, metric) for study in (a, b)]
    pairs = [
        (concurrency, cell)
        for concurrency in sorted(levels[0].keys() & levels[1].keys())
        for cell in levels[0][concurrency].means
        if cell in levels[1][concurrency].means
    ]
    alpha = ALPHA / max(len(pairs), 1)
    return [_ratio(cell, c, levels[0][c], levels[1][c], alpha) for c, cell in pairs]


def _levels(cells: pd.DataFrame, study: Mapping[str, Any], metric: str) -> dict[int, _Level]:
    values, _ = launch_values(cells, study, metric)
    order = {cell["id"]: i for i, cell in enumerate(study["cells"])}
    return {
        int(concurrency): _level(values[values["concurrency"] == concurrency], order)
        for concurrency in sorted(set(values["concurrency"]))
    }


def _level(values: pd.DataFrame, order: Mapping[str, int]) -> _Level:
    by_cell = values.groupby("cell")["log_value"]
    means = {str(cell): float(mean) for cell, mean in by_cell.mean().items()}
    counts = {str(cell): int(count) for cell, count in by_cell.size().items()}
    ordered = sorted(means, key=lambda cell: order.get(cell, len(order)))
    # Blocks are numbered through the whole study, epochs and all.
    design = Design.of(values["cell"].tolist(), values["machine_block"].tolist())
    fit = Fit.of(design, values["log_value"].to_numpy(dtype=float))
    variance, df = _variance(fit)
    return _Level({c: means[c] for c in ordered}, counts, variance, df)


def _variance(fit: Fit) -> tuple[float | None, float]:
    """Variance of one launch around its cell, blocks included, and its degrees of freedom."""
    design = fit.design
    blocks, cells = len(design.blocks), len(design.cells)
    if fit.sd is None:
        # One cell, or one launch of each: with several launches of one cell there is still their spread.
        if cells == 1 and design.n > 1:
            return float(np.var(fit.y, ddof=1)), design.n - 1
        return None, 0
    residual = fit.sd**2
    if blocks < 2:
        return residual, design.df
    per_block = design.n / blocks
    between = per_block * float(((design.block_weights @ fit.y) ** 2).sum()) / (blocks - 1)
    parts = (between / per_block, (per_block - 1) / per_block * residual)
    total = sum(parts)
    if total <= 0:
        return None, 0
    return total, total**2 / (parts[0] ** 2 / (blocks - 1) + parts[1] ** 2 / design.df)


def _ratio(cell: str, concurrency: int, a: _Level, b: _Level, alpha: float) -> Ratio:
    log = b.means[cell] - a.means[cell]
    counts = (a.counts[cell], b.counts[cell])
    low = high = None
    if a.variance is not None and b.variance is not None:
        parts = (a.variance / counts[0], b.variance / counts[1])
        error = math.sqrt(sum(parts))
        df = sum(parts) ** 2 / (parts[0] ** 2 / a.df + parts[1] ** 2 / b.df)
        reach = float(student.isf(alpha / 2, df)) * error
        low, high = math.exp(log - reach), math.exp(log + reach) if log + reach < 50 else math.inf
    return Ratio(cell, concurrency, math.exp(a.means[cell]), math.exp(b.means[cell]), counts, low, high)
