"""Rows of the best steps per NCCL profile, and of its moves between profiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from quietgate.analyse import claims, optimum
from quietgate.analyse.contrasts import Family
from quietgate.analyse.model import Fit, Floats
from quietgate.analyse.outlying import survives
from quietgate.analyse.question import Models, Question, Row


def best_of_profiles(
    models: Models, question: Question, primary: Sequence[Row]
) -> tuple[list[Row], list[Row]]:
    """Rows of the best steps per profile, and of the moves against the reference's profile."""
    fit, facts, design = models.fit, question.facts, models.fit.design
    here = facts.loc[list(design.cells)].assign(column=range(len(design.cells)))
    groups = here.groupby([*question.axes, "nccl"], sort=True, dropna=False)
    known = models.variation_known and (fit.sd or 0.0) > 1e-12
    sample = optimum.draws(fit, models.noisy) if known else np.empty((0, len(design.cells)))
    best: dict[tuple[Any, ...], optimum.Best] = {}
    members: dict[tuple[Any, ...], list[str]] = {}
    rows: list[Row] = []
    found = [(key if isinstance(key, tuple) else (key,), group) for key, group in groups]
    found = [
        (key, group)
        for key, group in found
        if len(group) > 1 and optimum.is_comparable(design, group["column"].to_numpy())
    ]
    for key, group in found:
        members[key] = [str(cell) for cell in group.index]
        if not known:
            continue
        result = optimum.best_steps(
            fit,
            sample,
            group["column"].to_numpy(),
            group["steps"].to_numpy(),
            question.alpha / len(found),
            models.noisy,
        )
        best[key] = result
        for i, column in enumerate(result.columns):
            rows.append(
                question.columns(design.cells[column])
                | {
                    "launches": int(design.launches_per_cell[column]),
                    "value": claims.ratio(result.effects[i]),
                    "probability_best": float(result.probability[i]),
                    "could_be_best": bool(result.in_set[i]),
                    "best": int(result.steps[i]) == result.best,
                }
            )
    moves = []
    nccl0 = str(facts.at[question.reference, "nccl"])
    for key, _ in found:
        there = (*key[:-1], nccl0)
        if key[-1] == nccl0 or there not in members:
            continue
        row: Row = {
            "epoch": question.epoch,
            "concurrency": question.concurrency,
            **dict(zip(question.axes, key[:-1], strict=True)),
            "axes_words": ", ".join(map(claims.axis_words, question.axes, key)),
            "nccl": str(key[-1]),
            "against": nccl0,
            "could_be_best": best[key].could_be_best if known else [],
            "could_be_best_against": best[there].could_be_best if known else [],
            "only_one_side": _one_sided(question, members[key], members[there]),
        }
        row |= _move_numbers(models, question, sample, best, key, there, primary) if known else {}
        if not known:
            row |= dict.fromkeys(_MOVE) | {"verdict": claims.UNKNOWN_VARIATION}
        # First, because no number of launches would prove the profile.
        proof = question.weakest_proof([*members[key], *members[there]])
        row["verdict"] = claims.NOT_PROVED.get(proof, row["verdict"])
        row["text"] = claims.move_sentence(row)
        moves.append(row)
    return rows, moves


def _one_sided(question: Question, here: Sequence[str], there: Sequence[str]) -> list[int]:
    """The steps that were measured under one of two profiles only."""
    mine, theirs = ({int(question.columns(cell)["steps"]) for cell in cells} for cells in (here, there))
    return sorted(mine ^ theirs)


_MOVE = [
    "best",
    "best_against",
    "probability_moved",
    "probability_if_tied",
    "kept_steps",
    "keeping_costs_percent",
    "keeping_costs_at_most_percent",
]


def _move_numbers(
    models: Models,
    question: Question,
    sample: Floats,
    best: dict[tuple[Any, ...], optimum.Best],
    key: tuple[Any, ...],
    there: tuple[Any, ...],
    primary: Sequence[Row],
) -> Row:
    result = optimum.move(sample, best[there], best[key])
    verdict = result.verdict
    if verdict == "moved" and not (
        any(row["verdict"] == claims.CLAIM for row in primary)
        and _move_survives(models.fit, best[there], best[key], question.alpha)
    ):
        verdict = "open"

    def lost(loss: float | None) -> float | None:
        return None if loss is None else -claims.percent(-loss)

    return {
        "best": best[key].best,
        "best_against": best[there].best,
        "probability_moved": result.probability,
        "probability_if_tied": result.probability_if_tied,
        "kept_steps": result.kept_steps,
        "keeping_costs_percent": lost(result.keeping_costs),
        "keeping_costs_at_most_percent": lost(result.keeping_costs_at_most),
        "verdict": verdict,
    }


def _move_survives(fit: Fit, there: optimum.Best, here: optimum.Best, alpha: float) -> bool:
    """Whether each profile's best beats the other's best without any single launch."""
    matrix = np.zeros((2, len(fit.design.cells)))
    for row, (mine, others) in enumerate(((there, here), (here, there))):
        rival = np.flatnonzero(mine.steps == others.best)
        if mine.best == others.best or not len(rival):
            return False
        matrix[row, mine.columns[int(np.argmax(mine.effects))]] = 1.0
        matrix[row, mine.columns[int(rival[0])]] = -1.0
    family = Family(fit.design, matrix, alpha)
    estimate = matrix @ fit.effects
    robust = survives(fit, family.weights, family.involved, estimate, family.critical_without_one)
    return bool(np.all(robust & (estimate > 0)))
