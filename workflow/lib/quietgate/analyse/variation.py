"""Where launches of one cell differ: which part of a cycle carries the variation from launch to launch.

A cycle is the target's pass, the draft, the draft extend, and what no stage holds (scheduler, sampling, tree
building, gaps: what the host does). The deviations of the parts from their cell's mean add up to that of the
cycle, so the covariance of each part with the cycle, over the cycle's variance, is its share (the shares add
up to one). It tells whether a study is noisy for what its GPUs do, or for the processor that feeds them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from quietgate.wording import counted

PARTS = ("target", "draft", "extend", "other")
COLUMNS = (
    "concurrency", "cells", "launches", "cycle_ms", "cycle_sd_ms", "cycle_sd_percent",
    *(f"{part}_percent" for part in PARTS),
)  # fmt: skip
# Below this the launches agree well enough to leave the reader alone, and above that share one part has it.
_SD_PERCENT, _SHARE_PERCENT = 5.0, 60.0


def variation(cells: pd.DataFrame) -> pd.DataFrame:
    """One row per concurrency at which some cell has several launches on one machine, of tables/cells.csv.

    `cycle_ms` is the mean over those launches, `cycle_sd_ms` the standard deviation around the means of cell
    and machine, drift between blocks included; `*_percent` of the parts are their shares of its square, and
    may be below zero for a part that varies against the rest. A stage that was not timed is part of `other`,
    and where it was timed in no launch its own share is None.
    """
    numbers = ["cycle_ms", "target_ms", "draft_ms", "extend_ms"]
    passed = cells[cells["status"] == "passed"].dropna(subset=["cycle_ms"])
    keys = ["concurrency", "cell", "machine", "launch"]
    # Means, since those of parts add up to that of the whole; an unknown machine is no other's.
    launches = passed[passed["machine"].notna()].groupby(keys)[numbers].mean()
    launches = launches.rename(columns=lambda name: name.removesuffix("_ms"))
    timed = launches.notna()
    launches = launches.fillna(0.0)
    launches["other"] = launches["cycle"] - launches[["target", "draft", "extend"]].sum(axis=1)
    alike = ["concurrency", "cell", "machine"]
    several = launches[launches.groupby(alike)["cycle"].transform("size") > 1]
    off = several - several.groupby(alike).transform("mean")
    rows = [
        _level(int(concurrency), several.loc[[concurrency]], off.loc[[concurrency]])
        | {f"{part}_percent": None for part in PARTS[:-1] if not timed.loc[[concurrency], part].any()}
        for concurrency in several.index.get_level_values("concurrency").unique()
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _level(concurrency: int, launches: pd.DataFrame, off: pd.DataFrame) -> dict[str, Any]:
    groups = launches.groupby(["cell", "machine"]).ngroups
    square = float((off["cycle"] ** 2).sum())
    sd, mean = np.sqrt(square / (len(launches) - groups)), float(launches["cycle"].mean())
    shares = {p: 100 * float((off[p] * off["cycle"]).sum()) / square if square else None for p in PARTS}
    return {
        "concurrency": concurrency,
        "cells": launches.index.get_level_values("cell").nunique(),
        "launches": len(launches),
        "cycle_ms": mean,
        "cycle_sd_ms": sd,
        "cycle_sd_percent": 100 * sd / mean,
        **{f"{part}_percent": share for part, share in shares.items()},
    }


def warnings(frame: pd.DataFrame) -> list[str]:
    """A sentence where launches differ much and the timed stages are not why."""
    told = [
        f"at {counted(int(row['concurrency']), 'stream')} by {row['cycle_sd_percent']:.0f} % of a cycle (sd),"
        f" of which {min(row['other_percent'], 100.0):.0f} % lies outside the timed stages"
        for row in frame.to_dict("records")
        if row["cycle_sd_percent"] > _SD_PERCENT
        and row["other_percent"] > _SHARE_PERCENT
        and not pd.isna(row["target_percent"])
    ]
    if not told:
        return []
    return [
        f"launches of one cell differ {', '.join(told)} (scheduler, sampling, gaps: what the host does), so"
        " the stages' own times are known better than tok/s; a quieter host helps, or more launches"
    ]
