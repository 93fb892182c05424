"""The statistics of a study: from tables/cells.csv to claims, each with what it rests on.

See docs/statistics.md for the method and its calibration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from quietgate.analyse import joint, optimum, outlying
from quietgate.analyse.answer import answer, refusals
from quietgate.analyse.contrasts import POWER, against_reference
from quietgate.analyse.launches import cell_facts, epoch_number, launch_values, out_of_block
from quietgate.analyse.levels import Families, Level, analyse_level, compare, estimates
from quietgate.analyse.question import Models, Question, Row
from quietgate.analyse.tables import PASS_NUMBERS, TARGET_NUMBERS
from quietgate.errors import BadInput

ALPHA = 0.05
METRIC = "decode_tokens_per_s"
# Significant digits of every result. Beyond these, machines of different widths disagree, and the same
# records would not give the same bytes.
DIGITS = 9

# Estimated with intervals for figures; no claim is made on them.
DESCRIBED = (*PASS_NUMBERS, *TARGET_NUMBERS)


CONTRAST_COLUMNS = (
    "against",
    "steps_against",
    "nccl_against",
    "launches",
    "launches_against",
    "ratio",
    "ratio_low",
    "ratio_high",
    "percent",
    "p_adjusted",
    "level",
    "family",
    "log_ratio",
    "log_error",
    "t",
    "detectable_ratio",
    "detectable_percent",
    "set_aside",
    "ratio_all",
    "ratio_all_low",
    "ratio_all_high",
    "verdict",
    "claim",
    "text",
)
OPTIMUM_COLUMNS = ("launches", "value", "probability_best", "could_be_best", "best")
MOVE_COLUMNS = (
    "nccl",
    "against",
    "best",
    "best_against",
    "could_be_best",
    "could_be_best_against",
    "probability_moved",
    "probability_if_tied",
    "kept_steps",
    "keeping_costs_percent",
    "keeping_costs_at_most_percent",
    "verdict",
    "text",
)
ESTIMATE_COLUMNS = (
    "launches",
    "set_aside",
    "value",
    "low",
    "high",
    "ratio",
    "ratio_low",
    "ratio_high",
)
_PLACE = ("epoch", "concurrency", "cell", "steps", "nccl")


def statistics(
    cells: pd.DataFrame, study: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, pd.DataFrame]]:
    """Analyse a study.

    Args:
        cells: the table tables/cells.csv.
        study: the study record (study.json): reference, axes, launches.

    Returns:
        The outcome as JSON (settings, levels, left_out, out_of_block, contrasts, optimum, moves, claims,
        refusals, answer) and the frames contrasts, optimum, moves and estimates for tables/*.csv.
    """
    asked = _Asked(cells, study)
    families = Families()
    levels: list[Level] = []
    refused: list[Row] = []
    for question, values in asked.questions(METRIC):
        level = analyse_level(values, question, families)
        levels.append(level)
        refused += refusals(level, question)
    if not levels:
        text = "No claim: no launch of any cell was measured to the end."
        refused.append({"epoch": None, "concurrency": None, "why": "no_launch", "text": text})
    contrasts = [row for level in levels for row in level.contrasts]
    moves = [row for level in levels for row in level.moves]
    best = [row for level in levels for row in level.optimum]
    values, left_out = launch_values(cells, study, METRIC)
    moved = out_of_block(values)
    outcome = {
        "settings": {
            "metric": METRIC,
            "alpha": ALPHA,
            "power": POWER,
            "reference": asked.reference,
            "seeds": {"joint": joint.SEED, "optimum": optimum.SEED},
            "draws": {"joint": joint.DIRECTIONS, "optimum": optimum.DRAWS},
            "set_aside_alpha": outlying.FLAG_ALPHA,
            "method": "docs/statistics.md",
        },
        "levels": [level.summary for level in levels],
        "left_out": left_out,
        "out_of_block": moved,
        "contrasts": contrasts,
        "optimum": best,
        "moves": moves,
        "claims": [row["text"] for row in contrasts if row["claim"]]
        + [row["text"] for row in moves if row["verdict"] in ("moved", "unmoved")],
        "refusals": refused,
        "answer": answer(levels, asked.axes, left_out, refused, moved),
    }
    frames = {
        "contrasts": _frame(contrasts, ("kind", *_PLACE, *asked.axes, *CONTRAST_COLUMNS)),
        "optimum": _frame(best, (*_PLACE, *asked.axes, *OPTIMUM_COLUMNS)),
        "moves": _frame(moves, ("epoch", "concurrency", *asked.axes, *MOVE_COLUMNS)),
        "estimates": describe(cells, study, DESCRIBED, families),
    }
    return _plain(outcome), frames


def describe(
    cells: pd.DataFrame,
    study: Mapping[str, Any],
    metrics: tuple[str, ...] = DESCRIBED,
    families: Families | None = None,
) -> pd.DataFrame:
    """Adjusted means of cells with 95 % intervals, and ratios to the reference, for any metrics.

    One row per metric, epoch, concurrency and cell; cells without a passed launch have none of the
    numbers. `low` and `high` are the cell's own interval; `ratio_low` and `ratio_high` are joint over
    the cells of the level. Nothing here is a claim.
    """
    asked = _Asked(cells, study)
    families = families or Families()
    rows: list[Row] = []
    for metric in (m for m in metrics if m in cells.columns):
        for question, values in asked.questions(metric):
            models = Models.of(values)
            measured = models.fit.design.cells
            ratios: dict[str, Row] = {}
            if asked.reference in measured:
                wanted = against_reference(question.facts, measured, asked.reference)
                found = compare(models, question, wanted, families, power=False)
                ratios = {row["cell"]: row for row in found}
            for row in estimates(models, question):
                ratio = ratios.get(row["cell"], {})
                names = ("ratio", "ratio_low", "ratio_high")
                rows.append({"metric": metric} | row | {name: ratio.get(name) for name in names})
    return _frame(rows, ("metric", *_PLACE, *asked.axes, *ESTIMATE_COLUMNS))


class _Asked:
    """The study's cells and levels."""

    def __init__(self, cells: pd.DataFrame, study: Mapping[str, Any]):
        self.cells, self.study = cells, study
        self.reference = str(study["reference"])
        self.axes = tuple(str(a) for a in study.get("axes", ()) if str(a) in cells.columns)
        self.facts = cell_facts(cells, self.axes, study)
        if self.reference not in self.facts.index:
            raise BadInput(f"tables/cells.csv: has no row of the reference cell {self.reference}")

    def questions(self, metric: str) -> Iterator[tuple[Question, pd.DataFrame]]:
        """Every epoch and concurrency level with its launches."""
        values, _ = launch_values(self.cells, self.study, metric)
        for epoch in sorted(set(values["epoch"])):
            here = values[values["epoch"] == epoch]
            levels = sorted(set(here["concurrency"]))
            # Each level is another look at the same question, and pays for it.
            alpha = ALPHA / max(len(levels), 1)
            facts = self.facts.loc[self._cells_of(int(epoch))]
            for concurrency in levels:
                question = Question(
                    facts, self.axes, self.reference, metric, alpha, int(epoch), int(concurrency)
                )
                yield question, here[here["concurrency"] == concurrency].reset_index(drop=True)

    def _cells_of(self, epoch: int) -> list[str]:
        listed: dict[str, set[int]] = {}
        for row in self.study.get("launches", ()):
            listed.setdefault(row["cell"], set()).add(epoch_number(row.get("epoch")))
        said = set(listed)
        if "epoch" in self.cells:
            for cell, number in zip(self.cells["cell"], self.cells["epoch"], strict=True):
                if str(cell) not in said:
                    listed.setdefault(str(cell), set()).add(epoch_number(number))
        return [str(c) for c in self.facts.index if epoch in listed.get(str(c), {epoch})]


def _frame(rows: list[Row], columns: tuple[str, ...]) -> pd.DataFrame:
    """Rows as a table with these columns, also where there are no rows."""
    frame = pd.DataFrame(rows, columns=list(columns))
    for name in ("could_be_best", "could_be_best_against"):
        if name in frame and rows and isinstance(rows[0][name], list):
            frame[name] = [" ".join(str(s) for s in steps) for steps in frame[name]]
    return rounded(frame)


def rounded(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with its floats rounded in place to the digits that all machines agree on."""
    for name in frame.select_dtypes("float").columns:
        frame[name] = [_rounded(value) for value in frame[name]]
    return frame


def _plain(value: Any) -> Any:
    """The value with Python's own numbers, and None for what JSON cannot say."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return _rounded(value) if np.isfinite(value) else None
    return value


def _rounded(value: float) -> float:
    """A result without the digits that differ with a machine's order of summation."""
    return float(f"{value:.{DIGITS}g}")
