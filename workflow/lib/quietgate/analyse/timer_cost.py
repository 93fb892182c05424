"""What the timers in the server cost: the cell that was launched without them against its twin.

The two share the study's blocks and its model (docs/statistics.md), so that the interval rests on the
scatter of all launches; but neither the cell nor this comparison belongs to the study's own claims.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from quietgate.analyse import claims
from quietgate.analyse.contrasts import Contrast, Family, coefficients, estimable
from quietgate.analyse.launches import launch_values
from quietgate.analyse.question import Models, Row
from quietgate.analyse.statistics import ALPHA, METRIC, rounded
from quietgate.study import command
from quietgate.wording import counted

COLUMNS = (
    "epoch", "concurrency", "cell", "untimed", "timers", "launches", "launches_untimed",
    "decode_tokens_per_s", "untimed_decode_tokens_per_s", "percent", "percent_low", "percent_high", "text",
)  # fmt: skip
# What nobody needs to be told of.
TOLERATED_PERCENT = 2.0
_CURE = "a timer's variable set to 0 under server.env switches it off in every cell"
# The switches in words.
_NAMES = {
    command.STAGE_TIMER_SWITCH: "SGLang's stage timer",
    command.CYCLE_TIMER_SWITCH: "the per-cycle timer",
}


def timer_cost(cells: pd.DataFrame, untimed: pd.DataFrame, study: Mapping[str, Any]) -> pd.DataFrame:
    """One row per epoch and number of streams at which both were measured.

    Args:
        cells: the table tables/cells.csv.
        untimed: the table tables/untimed.csv, of the same columns.
        study: the study record; its `untimed` names the cell, its twin and the twin's timers.

    Returns:
        Decode tok/s of both, and `percent`, the change that the timers make (negative: slower) with its 95 %
        interval where anything says how launches vary.
    """
    about = study["untimed"]
    values, _ = launch_values(pd.concat([cells, untimed], ignore_index=True), study, METRIC)
    levels = values.groupby(["epoch", "concurrency"], sort=True)
    rows = [
        {"epoch": int(level["epoch"].iloc[0]), **row}
        for _, level in levels
        for row in _compared(level.reset_index(drop=True), about, int(level["concurrency"].iloc[0]))
    ]
    if len({row["epoch"] for row in rows}) > 1:
        rows = [row | {"text": f"Epoch {row['epoch']}: {row['text']}"} for row in rows]
    return rounded(pd.DataFrame(rows, columns=list(COLUMNS)))


def warnings(found: pd.DataFrame, about: Mapping[str, Any]) -> list[str]:
    """A sentence for each row where the timers slow the server by more than `TOLERATED_PERCENT`.

    Not where the interval leaves room for no cost at all. One sentence where nothing could be compared.

    Args:
        found: what `timer_cost` gives.
        about: the study record's `untimed`.
    """
    if found.empty:
        return [
            f"timers: what they cost is not known: no block has a launch of both {about['id']} and"
            f" {about['twin']} that passed"
        ]
    return [
        f"timers: {row['text']} Cells that differ by less than that may differ by what the timers cost each; "
        f"{_CURE}"
        for row in found.to_dict("records")
        if row["percent"] < -TOLERATED_PERCENT and (pd.isna(row["percent_high"]) or row["percent_high"] < 0)
    ]


def _compared(values: pd.DataFrame, about: Mapping[str, Any], concurrency: int) -> Iterator[Row]:
    twin, cell = str(about["twin"]), str(about["id"])
    models = Models.of(values)
    design = models.fit.design
    pair = estimable(design, [Contrast("timers", twin, cell, ((twin, 1), (cell, -1)), False)])
    if not pair:
        return
    at = {name: i for i, name in enumerate(design.cells)}
    log = float((coefficients(design, pair) @ models.fit.effects)[0])
    row: Row = {
        "concurrency": concurrency,
        "cell": twin,
        "untimed": cell,
        "timers": " ".join(about["timers"]),
        "launches": int(design.launches_per_cell[at[twin]]),
        "launches_untimed": int(design.launches_per_cell[at[cell]]),
        "decode_tokens_per_s": claims.ratio(models.fit.effects[at[twin]]),
        "untimed_decode_tokens_per_s": claims.ratio(models.fit.effects[at[cell]]),
        "percent": claims.percent(log),
        "percent_low": None,
        "percent_high": None,
    }
    if models.variation_known:
        judged = Family(design, coefficients(design, pair), ALPHA).judge(models.fit, models.noisy)
        row["percent_low"] = claims.percent(float(judged.low[0]))
        row["percent_high"] = claims.percent(float(judged.high[0]))
    yield row | {"text": _text(row, about["timers"], concurrency)}


def _text(row: Row, timers: list[str], concurrency: int) -> str:
    names = " and ".join(_NAMES.get(name, name) for name in timers)
    launches = f"{row['launches']} and {counted(row['launches_untimed'], 'launch')}"
    if row["percent_low"] is None:
        known = f"{launches}; how launches vary is unknown"
    else:
        known = f"95 % interval {row['percent_low']:+.1f} to {row['percent_high']:+.1f} %; {launches}"
    return (
        f"At {counted(concurrency, 'stream')}, with {names} on, {row['cell']} decodes "
        f"{row['decode_tokens_per_s']:.1f} tok/s, "
        f"without {row['untimed_decode_tokens_per_s']:.1f}: {row['percent']:+.1f} % ({known})."
    )
