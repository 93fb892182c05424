"""Simulated studies with a known truth: launch, repeat and prompt noise, drift, an odd launch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class World:
    """How the simulated machine behaves; all numbers are standard deviations on the log scale.

    The drift is linear over the whole study, so the randomised order turns what happens inside a
    block into noise and the blocks take the rest. `odd` shifts one launch of every study.
    """

    cells: int = 12
    launches: int = 5
    launch_sd: float = 0.01
    repeats: int = 5
    repeat_sd: float = 0.004
    prompts: int = 16
    prompt_sd: float = 0.15
    request_sd: float = 0.01
    drift: float = 0.02
    odd: float = 0.0
    odd_cell: int | None = None  # None: any cell
    failed_share: float = 0.0
    noisy_cell: tuple[int, float] | None = None  # (cell, factor of its launch noise)

    def layout(self) -> tuple[np.ndarray, np.ndarray]:
        """Cell and block of each launch, block by block."""
        blocks = np.repeat(np.arange(self.launches), self.cells)
        return np.tile(np.arange(self.cells), self.launches), blocks

    def passes(self, rng: np.random.Generator, studies: int, effects: np.ndarray | float = 0.0) -> np.ndarray:
        """Log tok/s of every pass: studies x launches x repeats (median over the prompts)."""
        cell, block = self.layout()
        n = len(cell)
        place = np.argsort(rng.random((studies, self.launches, self.cells)), axis=2)
        when = (block * self.cells + place.reshape(studies, n)) / n
        y = np.log(90.0) + np.broadcast_to(effects, self.cells)[cell] + self.drift * when
        sd = np.full(n, self.launch_sd)
        if self.noisy_cell:
            sd[cell == self.noisy_cell[0]] *= self.noisy_cell[1]
        y = y + rng.normal(0, 1, (studies, n)) * sd
        if self.odd:
            who = rng.integers(n, size=studies)
            if self.odd_cell is not None:
                who = who // self.cells * self.cells + self.odd_cell
            y[np.arange(studies), who] += self.odd
        y = y[:, :, None] + rng.normal(0, self.repeat_sd, (studies, n, self.repeats))
        prompt = rng.normal(0, self.prompt_sd, (studies, 1, 1, self.prompts))
        shape = (studies, n, self.repeats, self.prompts)
        requests = prompt + self.request_sd * rng.standard_normal(shape, dtype=np.float32)
        return y + np.median(requests, axis=3)

    def values(self, rng: np.random.Generator, studies: int, effects: np.ndarray | float = 0.0) -> np.ndarray:
        """Log value of every launch: studies x launches; failed launches are NaN."""
        y = np.median(self.passes(rng, studies, effects), axis=2)
        _, block = self.layout()
        # The first two blocks never fail, so that every cell can be compared in every study.
        y[(rng.random(y.shape) < self.failed_share) & (block > 1)] = np.nan
        return y


def names(count: int) -> list[str]:
    """Cell ids that sort in the order of the cells."""
    return [f"c{i:03}" for i in range(count)]


def cells_table(
    passes: np.ndarray,
    grid: list[tuple[int, str]],
    launches: int,
    *,
    verdict: str = "confirmed",
    concurrency: int = 1,
) -> pd.DataFrame:
    """The table tables/cells.csv of one simulated study (passes: launches x repeats)."""
    n_cells = len(grid)
    rows = []
    for i, repeats in enumerate(np.exp(passes)):
        steps, nccl = grid[i % n_cells]
        for repeat, value in enumerate(repeats, start=1):
            rows.append(
                {
                    "cell": f"steps-{steps}_nccl-{nccl}",
                    "steps": steps,
                    "nccl": nccl,
                    "launch": f"l{i // n_cells + 1}",
                    "concurrency": concurrency,
                    "repeat": repeat,
                    "status": "passed",
                    "failure_class": None,
                    "nccl_verdict": verdict,
                    "decode_tokens_per_s": value,
                    "instance": f"{i:012x}",
                }
            )
    assert len(passes) == n_cells * launches
    return pd.DataFrame(rows)


def study_record(grid: list[tuple[int, str]], launches: int, reference: str) -> dict:
    """The part of study.json that the statistics read."""
    cells = [
        {"id": f"steps-{steps}_nccl-{nccl}", "steps": steps, "nccl": nccl, "axes": {}} for steps, nccl in grid
    ]
    ids = [c["id"] for c in cells]
    return {
        "study": "simulated",
        "seed": 1,
        "reference": reference,
        "axes": [],
        "config": {},
        "cells": cells,
        "launches": [
            {"cell": c, "launch": f"l{b}", "block": b, "epoch": 1}
            for b in range(1, launches + 1)
            for c in ids
        ],
    }
