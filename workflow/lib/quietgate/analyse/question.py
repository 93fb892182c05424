"""What is asked of one concurrency level of one epoch, and the models that answer it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from quietgate.analyse import claims
from quietgate.analyse.launches import VERDICTS
from quietgate.analyse.model import Design, Fit
from quietgate.analyse.noise import NoisyCell, noisiest_cell
from quietgate.analyse.outlying import flagged

Row = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Question:
    """What is asked of one level.

    Attributes:
        facts: one row per cell id (`launches.cell_facts`).
        axes: names of the axes beside steps and nccl.
        reference: id of the reference cell.
        metric: the compared quantity.
        alpha: probability of any false claim that this level may spend.
        epoch: which epoch.
        concurrency: which level.
    """

    facts: pd.DataFrame
    axes: tuple[str, ...]
    reference: str
    metric: str
    alpha: float
    epoch: int
    concurrency: int

    def words(self, cell: str) -> str:
        """The cell as a person says it."""
        return claims.cell_words(self.columns(cell), self.axes)

    @cached_property
    def _rows(self) -> dict[str, dict[str, Any]]:
        rows = self.facts.to_dict("index")
        return {str(cell): {str(k): v for k, v in row.items()} for cell, row in rows.items()}

    def columns(self, cell: str) -> Row:
        """The columns that name a cell in every table."""
        facts = self._rows[cell]
        return {
            "epoch": self.epoch,
            "concurrency": self.concurrency,
            "cell": cell,
            "steps": int(facts["steps"]),
            "nccl": str(facts["nccl"]),
            **{axis: facts[axis] for axis in self.axes},
        }

    def weakest_proof(self, cells: Iterable[str]) -> str:
        """The weakest verdict on the profile of these cells."""
        found = [str(self._rows[cell]["nccl_verdict"]) for cell in cells]
        return min(found, key=VERDICTS.index) if found else "unknown"


@dataclass(frozen=True, eq=False)
class Models:
    """The model without the launches set aside, and the one with all."""

    fit: Fit
    all: Fit
    odd: list[Row]
    noisiest: NoisyCell | None

    @classmethod
    def of(cls, values: pd.DataFrame) -> Models:
        """Fit the launches of one level (rows of `launches.launch_values`)."""
        y = values["log_value"].to_numpy(dtype=float)
        design = Design.of(values["cell"].tolist(), values["machine_block"].tolist())
        out = flagged(design, y)
        every = Fit.of(design, y)
        if not out:
            return cls(every, every, [], noisiest_cell(every))
        less = design.without(out)
        fit = Fit.of(less, np.delete(y, out))
        effects = dict(zip(less.cells, fit.effects.tolist(), strict=True))
        blocks = dict(zip(less.blocks, (less.block_weights @ fit.y).tolist(), strict=True))
        odd = []
        for i in out:
            row = values.iloc[i]
            off = y[i] - effects[row["cell"]] - blocks.get(int(row["machine_block"]), 0.0)
            odd.append(
                {
                    "cell": row["cell"],
                    "launch": row["launch"],
                    "value": float(row["value"]),
                    "off_percent": claims.percent(off),
                    "text": f"launch {row['launch']} of {row['cell']} ({claims.percent(off):+.1f} % off)",
                }
            )
        return cls(fit, every, odd, noisiest_cell(fit))

    @property
    def noisy(self) -> NoisyCell | None:
        """The noisiest cell where comparisons with it need its own variance."""
        return self.noisiest if self.noisiest is not None and self.noisiest.noisy else None

    @property
    def variation_known(self) -> bool:
        """Whether anything says how launches of one cell vary."""
        return self.fit.design.df > 0 and int(self.fit.design.launches_per_cell.max()) > 1
