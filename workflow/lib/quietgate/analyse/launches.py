"""From the table of passes to one value per launch, the unit of every comparison.

Repeats inside a server life share its memory layout, its clocks and its NCCL channels, so they say
little about the next launch; they are summarised by their median before any statistics.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from quietgate.analyse import blocks
from quietgate.errors import BadInput

COLUMNS = ("cell", "steps", "nccl", "launch", "concurrency", "repeat", "status", "nccl_verdict")

# The weakest verdict of a cell's launches stands for the cell.
VERDICTS = ("contradicted", "unknown", "not_exercised", "confirmed")


def launch_values(
    cells: pd.DataFrame, study: Mapping[str, Any], metric: str
) -> tuple[pd.DataFrame, list[dict[str, Any]]]:
    """One row per launch and concurrency with the median of `metric` over its repeats.

    Args:
        cells: the table tables/cells.csv, one row per launch, concurrency and repeat.
        study: the study record; its `launches` give block and epoch. Without them the columns
            `block` and `epoch` of `cells` are used, else the number in the launch's name and epoch 1.
        metric: a column of `cells` with positive values, for example "decode_tokens_per_s".

    Returns:
        The values (columns epoch, block, machine, machine_block, planned_block, cell, launch, concurrency,
        value, log_value, repeats, repeat_variance; `block` is the one in whose time the launch was measured,
        see `blocks`) and what was left out, each with cell, launch, why, and whether the launch
        counts nevertheless, by its other passes.
    """
    missing = [c for c in (*COLUMNS, metric) if c not in cells.columns]
    if missing:
        raise BadInput(f"tables/cells.csv: lacks the column {missing[0]}; run `collect` again")
    left_out: list[dict[str, Any]] = []

    def leave_out(cell: object, launch: object, why: str) -> None:
        left_out.append({"cell": str(cell), "launch": str(launch), "why": why, "counts": False})

    frame = cells.copy()
    frame[metric] = pd.to_numeric(frame[metric], errors="coerce")
    done = frame["status"] == "passed"
    counted = set(zip(frame.loc[done, "cell"], frame.loc[done, "launch"], strict=True))
    for (cell, launch), rows in frame[~done].groupby(["cell", "launch"]):
        reason = rows["failure_class"].dropna() if "failure_class" in rows else rows["status"]
        why = str(reason.iloc[0] if len(reason) else rows["status"].iloc[0])
        some = (cell, launch) in counted
        leave_out(cell, launch, f"{len(rows)} of its passes: {why}" if some else why)
    frame = frame[frame["status"] == "passed"]

    if "instance" in frame:
        lives = frame.groupby(["cell", "launch"])["instance"].nunique()
        for cell, launch in lives.index[lives > 1]:
            leave_out(cell, launch, "its passes come from more than one server life")
            frame = frame[~((frame["cell"] == cell) & (frame["launch"] == launch))]

    places = _places(frame, study)
    # By all passed launches, so that a launch is in the same block whatever is looked at.
    in_time = _blocks_in_time(frame, places)
    usable = np.isfinite(frame[metric]) & (frame[metric] > 0)
    whole = usable.groupby([frame["cell"], frame["launch"], frame["concurrency"]]).any()
    for cell, launch, concurrency in whole.index[~whole]:
        leave_out(cell, launch, f"no {metric} at concurrency {int(concurrency)}")
    frame = frame[usable].assign(log=lambda f: np.log(f[metric].astype(float)))
    values = (
        frame.groupby(["cell", "launch", "concurrency"], sort=True)
        .agg(
            value=(metric, "median"),
            repeats=("log", "size"),
            repeat_variance=("log", "var"),
        )
        .reset_index()
    )
    values["log_value"] = np.log(values["value"].astype(float))
    values["concurrency"] = values["concurrency"].astype(int)
    keys = list(zip(values["cell"], values["launch"], strict=True))
    values.insert(0, "epoch", [places[key][0] for key in keys])
    values.insert(1, "block", [in_time[key] for key in keys])
    values.insert(2, "machine", _machines(frame, values))
    values.insert(3, "planned_block", [places[key][1] for key in keys])
    values.insert(3, "machine_block", _machine_blocks(values))
    used = set(zip(values["cell"], values["launch"], strict=True))
    for row in left_out:
        row["counts"] = (row["cell"], row["launch"]) in used
    return values, left_out


def out_of_block(values: pd.DataFrame) -> list[dict[str, Any]]:
    """The launches of `launch_values` that were measured in the time of another block than planned."""
    launches = values.drop_duplicates(["cell", "launch"])
    late = launches[launches["block"] != launches["planned_block"]]
    columns = ("cell", "launch", "planned_block", "block")
    return [dict(zip(columns, row, strict=True)) for row in late[list(columns)].itertuples(index=False)]


def _machines(frame: pd.DataFrame, values: pd.DataFrame) -> list[int]:
    """The machine of each launch: its number in the table, 0 without that column; unknown ones differ."""
    if "machine" not in frame:
        return [0] * len(values)
    known = frame.drop_duplicates(["cell", "launch"]).set_index(["cell", "launch"])["machine"]
    places = list(zip(values["cell"], values["launch"], strict=True))
    unknown = {place: -i for i, place in enumerate(dict.fromkeys(places), start=1)}
    return [unknown[place] if pd.isna(known[place]) else int(known[place]) for place in places]


def _blocks_in_time(
    frame: pd.DataFrame, places: Mapping[tuple[str, str], tuple[int, int]]
) -> dict[tuple[str, str], int]:
    """The block in whose time each launch was measured, where the table says when (and on which machine)."""
    found = {key: block for key, (_, block) in places.items()}
    if "started_at" not in frame:
        return found
    launches = frame.drop_duplicates(["cell", "launch"])
    keys = list(zip(launches["cell"], launches["launch"], strict=True))
    times = pd.to_datetime(launches["started_at"].tolist(), utc=True, errors="coerce", format="ISO8601")
    ran = pd.DataFrame(
        {
            "key": keys,
            "epoch": [places[key][0] for key in keys],
            "machine": launches["machine"].tolist() if "machine" in frame else 0,
            "began_s": (times - pd.Timestamp(0, tz="UTC")).total_seconds(),
        }
    )
    # A launch whose machine is not known is in no group, and stays.
    for _, some in ran.groupby(["epoch", "machine"]):
        planned = [found[key] for key in some["key"]]
        for moved in blocks.out_of_time(planned, some["began_s"].tolist()):
            found[some["key"].iloc[moved.at]] = moved.block
    return found


def _machine_blocks(values: pd.DataFrame) -> list[int]:
    """What launches are compared within: those of one block that ran on one machine.

    A difference between launches on two machines may be one between the machines, so where a block was
    spread over several it counts as several. With one machine these are the blocks, renumbered.
    """
    keys = list(zip(values["block"], values["machine"], strict=True))
    number = {key: i for i, key in enumerate(sorted(set(keys)), start=1)}
    return [number[key] for key in keys]


def epoch_number(epoch: Any) -> int:
    """The epoch of a launch; where none is said, the first."""
    return 1 if epoch is None or pd.isna(epoch) else int(epoch)


def _places(frame: pd.DataFrame, study: Mapping[str, Any]) -> dict[tuple[str, str], tuple[int, int]]:
    """Epoch and block of every launch in `frame`."""
    known = {
        (row["cell"], row["launch"]): (epoch_number(row.get("epoch")), int(row["block"]))
        for row in study.get("launches", ())
    }
    places = {}
    for row in frame.drop_duplicates(["cell", "launch"]).to_dict("records"):
        key = (row["cell"], row["launch"])
        if key in known:
            places[key] = known[key]
            continue
        block = row.get("block")
        number = re.sub(r"\D", "", str(row["launch"])) if pd.isna(block) else int(block)
        if number == "":
            raise BadInput(
                f"tables/cells.csv: launch {row['launch']!r} of {row['cell']} has no block;"
                " study.json must list it under `launches`"
            )
        places[key] = (epoch_number(row.get("epoch")), int(number))
    return places


def cell_facts(cells: pd.DataFrame, axes: tuple[str, ...], study: Mapping[str, Any]) -> pd.DataFrame:
    """One row per cell (index: its id): steps, nccl, the other axes, and the verdict on its profile.

    The verdict is the weakest one of the cell's passed launches: a profile that failed to reach the
    ranks once is not proved. An absent verdict is "unknown". Cells of the study that have no row, since
    none of their launches was waited for, come last.
    """
    first = cells.drop_duplicates("cell").set_index("cell")
    absent = [
        {"cell": c["id"], "steps": c["steps"], "nccl": c["nccl"], **c["axes"]}
        for c in study["cells"]
        if c["id"] not in first.index
    ]
    if absent:
        first = pd.concat([first, pd.DataFrame(absent).set_index("cell")])
    facts = first[["steps", "nccl", *axes]].copy()
    facts["steps"] = facts["steps"].astype(int)
    passed = cells[cells["status"] == "passed"]
    verdicts = passed["nccl_verdict"].where(passed["nccl_verdict"].isin(VERDICTS), "unknown")
    rank = verdicts.map(VERDICTS.index).groupby(passed["cell"]).min()
    facts["nccl_verdict"] = [
        VERDICTS[int(rank[cell])] if cell in rank.index else "unknown" for cell in facts.index
    ]
    return facts
