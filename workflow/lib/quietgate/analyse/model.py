"""The linear model of a study on the log scale: cell + block + residual.

Every block holds one launch of every cell, in random order, so slow drift of the machine falls out
of the comparisons. All cells share one residual variance: three to five launches of a cell alone
leave two to four degrees of freedom, all cells together leave dozens. Failed launches are missing;
the fit is ordinary least squares, exact for any pattern of missing launches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Design:
    """Which launch belongs to which cell and block, and the least-squares weights that follow.

    Attributes:
        cells: names of the cells, in the order of the effects.
        blocks: numbers of the blocks.
        cell_of: index into `cells` of each launch.
        block_of: index into `blocks` of each launch.
        cell_weights: cell effects = cell_weights @ y (block effects sum to zero).
        block_weights: block effects = block_weights @ y.
        component: cells with the same number are connected by blocks and can be compared.
        df: degrees of freedom of the residual.
    """

    cells: tuple[str, ...]
    blocks: tuple[int, ...]
    cell_of: Ints
    block_of: Ints
    cell_weights: Floats
    block_weights: Floats
    component: Ints
    df: int

    @classmethod
    def of(cls, cells: Sequence[str], blocks: Sequence[int]) -> Design:
        """The design of launches given by the cell and the block of each."""
        names, cell_of = np.unique(np.asarray(cells, dtype=str), return_inverse=True)
        numbers, block_of = np.unique(np.asarray(blocks, dtype=int), return_inverse=True)
        n, n_cells, n_blocks = len(cell_of), len(names), len(numbers)
        launches = np.arange(n)
        counts = np.zeros((n_cells, n_blocks))
        np.add.at(counts, (cell_of, block_of), 1.0)
        per_cell = counts.sum(axis=1)

        # Cells are eliminated first (a diagonal), which leaves one small system over the blocks.
        share = counts / per_cell[:, None]
        reduced = np.diag(counts.sum(axis=0)) - counts.T @ share
        adjusted = -share.T[:, cell_of]
        adjusted[block_of, launches] += 1.0
        block_weights = np.linalg.pinv(reduced, rcond=1e-9, hermitian=True) @ adjusted
        cell_weights = -(counts @ block_weights)
        cell_weights[cell_of, launches] += 1.0
        cell_weights /= per_cell[:, None]

        edges = coo_array((np.ones(n), (cell_of, n_cells + block_of)), shape=(n_cells + n_blocks,) * 2)
        parts, component = connected_components(edges, directed=False)
        return cls(
            cells=tuple(str(c) for c in names),
            blocks=tuple(int(b) for b in numbers),
            cell_of=cell_of,
            block_of=block_of,
            cell_weights=cell_weights,
            block_weights=block_weights,
            component=component[:n_cells],
            df=n - n_cells - n_blocks + parts,
        )

    @property
    def n(self) -> int:
        """Number of launches."""
        return len(self.cell_of)

    @cached_property
    def launches_per_cell(self) -> Ints:
        """Number of launches of each cell."""
        return np.bincount(self.cell_of, minlength=len(self.cells))

    @cached_property
    def freedom(self) -> Floats:
        """One minus the leverage of each launch: zero where the model must fit it exactly."""
        launches = np.arange(self.n)
        leverage = self.cell_weights[self.cell_of, launches] + self.block_weights[self.block_of, launches]
        return np.clip(1.0 - leverage, 0.0, 1.0)

    def without(self, launches: Sequence[int]) -> Design:
        """The design that is left without the launches of these indices."""
        keep = np.setdiff1d(np.arange(self.n), launches)
        cells, blocks = np.array(self.cells), np.array(self.blocks)
        return Design.of(cells[self.cell_of[keep]].tolist(), blocks[self.block_of[keep]].tolist())

    def residuals(self, y: Floats) -> Floats:
        """What cell and block leave unexplained; `y` has one launch per row, any number of columns."""
        return np.asarray(y - (self.cell_weights @ y)[self.cell_of] - (self.block_weights @ y)[self.block_of])


@dataclass(frozen=True, eq=False)
class Fit:
    """A design with its measured log values.

    Attributes:
        design: the launches.
        y: log value of each launch.
        effects: adjusted log mean of each cell.
        residual: residual of each launch.
        rss: residual sum of squares.
    """

    design: Design
    y: Floats
    effects: Floats
    residual: Floats
    rss: float

    @classmethod
    def of(cls, design: Design, y: Floats) -> Fit:
        """Least squares of the log values `y`."""
        residual = design.residuals(y)
        return cls(design, y, design.cell_weights @ y, residual, float(residual @ residual))

    @property
    def sd(self) -> float | None:
        """Launch-to-launch standard deviation on the log scale; None where nothing estimates it."""
        return float(np.sqrt(self.rss / self.design.df)) if self.design.df > 0 else None
