"""The numbers behind figures over the grid: one row per cell and one per launch."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from quietgate.analyse.claims import axis_words
from quietgate.analyse.launch_records import MISSING
from quietgate.analyse.launches import launch_values
from quietgate.analyse.question import Models
from quietgate.draw.drawn import Material, NotDrawn
from quietgate.draw.frames import each

COLUMNS = ("kind", "cell", "steps", "nccl")
NUMBERS = (
    "launch",
    "concurrency",
    "launches",
    "value",
    "low",
    "high",
    "nccl_verdict",
    "status",
    "failure_class",
)


def per_launch(material: Material, metric: str) -> pd.DataFrame:
    """The median of `metric` over the repeats of each launch: cell, launch, block, concurrency, value."""
    if material.passed.empty:
        raise NotDrawn("no launch was measured to the end")
    values, _ = launch_values(material.cells, material.study, metric)
    if values.empty:
        raise NotDrawn(f"no launch has a {metric}")
    return values


def over_grid(material: Material, metric: str, concurrency: int | None = None) -> pd.DataFrame:
    """Rows of kind "cell" (value and 95 % interval) and "launch" (its median over repeats).

    A cell's value is its adjusted mean over launches with the interval of the study's statistics; without
    these, the median over launches and no interval. A cell without any result keeps a row with its
    failure class.

    Args:
        concurrency: one level; None: all levels.
    """
    launches = per_launch(material, metric)
    if concurrency is not None:
        launches = launches[launches["concurrency"] == concurrency]
    # The reference is launched again in every epoch: its value is that of the first.
    launches = launches[launches["epoch"] == launches.groupby("cell")["epoch"].transform("min")]
    levels = sorted(launches["concurrency"].unique())
    known = _estimates(material, metric)
    rows = []
    for cell in material.study["cells"]:
        place = {"cell": cell["id"], "steps": cell["steps"], "nccl": cell["nccl"], **cell["axes"]}
        place["nccl_verdict"] = material.verdicts.get(cell["id"])
        mine = launches[launches["cell"] == cell["id"]]
        for level in levels:
            here = mine[mine["concurrency"] == level]
            row = {"kind": "cell", "concurrency": level, "launches": len(here)} | place
            if here.empty:
                rows.append(row | {"status": "failed", "failure_class": failure_of(material, cell["id"])})
                continue
            value, low, high = known.get((cell["id"], level), (float(here["value"].median()), None, None))
            rows.append(row | {"status": "passed", "value": value, "low": low, "high": high})
        for one in here_rows(mine):
            rows.append({"kind": "launch", "launches": 1, "status": "passed"} | place | one)
    frame = pd.DataFrame(rows, columns=[*COLUMNS, *material.axes, *NUMBERS])
    for name in ("value", "low", "high"):
        frame[name] = pd.to_numeric(frame[name])
    return frame


def here_rows(launches: pd.DataFrame) -> Iterator[dict[str, object]]:
    """Launch, concurrency and value of each row."""
    for row in each(launches):
        yield {name: row[name] for name in ("launch", "concurrency", "value")}


def noisy(material: Material, metric: str, concurrency: int) -> list[str]:
    """The cells that scatter more than the others (`analyse/noise.py`) in the epoch they are drawn from."""
    found = []
    values = per_launch(material, metric)
    values = values[values["concurrency"] == concurrency]
    first = values.groupby("cell")["epoch"].min()
    for epoch, level in values.groupby("epoch"):
        scattered = Models.of(level).noisy
        if scattered is not None and first[scattered.cell] == epoch:
            found.append(scattered.cell)
    return found


def _estimates(
    material: Material, metric: str
) -> dict[tuple[str, int], tuple[float, float | None, float | None]]:
    """Value and interval by cell and concurrency; of several epochs the first that measured the cell."""
    frame = material.tables.get("estimates")
    if frame is None or "metric" not in frame:
        return {}
    frame = frame[(frame["metric"] == metric) & frame["value"].notna()].sort_values("epoch", kind="stable")
    found: dict[tuple[str, int], tuple[float, float | None, float | None]] = {}
    for row in each(frame):
        ends = [None if pd.isna(row[end]) else float(row[end]) for end in ("low", "high")]
        found.setdefault((row["cell"], int(row["concurrency"])), (float(row["value"]), ends[0], ends[1]))
    return found


def failure_of(material: Material, cell: str) -> str:
    """The most common failure class of a cell's launches."""
    classes = material.cells.loc[material.cells["cell"] == cell, "failure_class"].dropna()
    return str(classes.mode().iloc[0]) if len(classes) else MISSING


def gone(failure_class: str) -> str:
    """What is said of a cell without a value."""
    words = str(failure_class).replace("_", " ")
    return "not measured" if words == MISSING else f"failed: {words}"


def panels(material: Material, frame: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """The frame split by the axes beside steps and profile: (label, rows), one part without such axes."""
    if not material.axes:
        return [("", frame)]
    parts = []
    for values in dict.fromkeys(tuple(c["axes"][a] for a in material.axes) for c in material.study["cells"]):
        mask = pd.Series(True, index=frame.index)
        for axis, value in zip(material.axes, values, strict=True):
            mask &= frame[axis].isna() if value is None else frame[axis] == value
        label = ", ".join(map(axis_words, material.axes, values))
        parts.append((label, frame[mask]))
    return parts
