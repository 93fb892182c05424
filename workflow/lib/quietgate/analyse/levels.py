"""One concurrency level of one epoch: model, comparisons, best steps, and what is claimed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student

from quietgate.analyse import claims
from quietgate.analyse.contrasts import (
    REFERENCE,
    Contrast,
    Family,
    against_reference,
    coefficients,
    estimable,
    within_grid,
)
from quietgate.analyse.model import Design
from quietgate.analyse.moves import best_of_profiles
from quietgate.analyse.question import Models, Question, Row


@dataclass(eq=False)
class Level:
    """The answers of one level, as rows for tables and JSON."""

    summary: Row
    estimates: list[Row] = field(default_factory=list)
    # Cells whose difference from the reference may not be put down to their profile, and why.
    unproved: dict[str, str] = field(default_factory=dict)
    contrasts: list[Row] = field(default_factory=list)
    optimum: list[Row] = field(default_factory=list)
    moves: list[Row] = field(default_factory=list)


class Families:
    """Families by design, so that metrics measured on the same launches share them."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], Family] = {}

    def of(self, design: Design, contrasts: Sequence[Contrast], alpha: float) -> Family:
        """The family of these contrasts on this design."""
        key = (
            design.cells,
            design.cell_of.tobytes(),
            design.block_of.tobytes(),
            tuple(c.signs for c in contrasts),
            alpha,
        )
        if key not in self._known:
            self._known[key] = Family(design, coefficients(design, contrasts), alpha)
        return self._known[key]


def estimates(models: Models, question: Question) -> list[Row]:
    """Adjusted mean of every cell with its own (unadjusted) 95 % interval; no claims."""
    fit, design = models.fit, models.fit.design
    place = {cell: i for i, cell in enumerate(design.cells)}
    rows = []
    for cell in question.facts.index:
        row = question.columns(cell) | {"launches": 0, "value": None, "low": None}
        row |= {"high": None, "set_aside": sum(o["cell"] == cell for o in models.odd)}
        if cell in place:
            i = place[cell]
            row["launches"] = int(design.launches_per_cell[i])
            row["value"] = claims.ratio(fit.effects[i])
            if models.variation_known and fit.sd:
                norm = float(np.linalg.norm(design.cell_weights[i]))
                half = float(student.isf(0.025, design.df)) * fit.sd * norm
                noisy = models.noisy
                if noisy is not None and noisy.index == i:
                    error, df = noisy.errors(design, design.cell_weights[[i]])
                    half = max(half, float(student.isf(0.025, df[0]) * error[0]))
                row["low"] = claims.ratio(fit.effects[i] - half)
                row["high"] = claims.ratio(fit.effects[i] + half)
        rows.append(row)
    return rows


def compare(
    models: Models,
    question: Question,
    contrasts: Sequence[Contrast],
    families: Families,
    *,
    power: bool = True,
) -> list[Row]:
    """Rows of one family of comparisons, each with its verdict.

    Args:
        models: the models of the level.
        question: what is asked.
        contrasts: the family.
        families: where families are shared.
        power: also find the smallest detectable difference.
    """
    fit = models.fit
    design = fit.design
    contrasts = estimable(design, contrasts)
    if not contrasts:
        return []
    count = dict(zip(design.cells, design.launches_per_cell.tolist(), strict=True))
    matrix = coefficients(design, contrasts)
    known = models.variation_known
    if known:
        family = families.of(design, contrasts, question.alpha)
        judged = family.judge(fit, models.noisy)
        whole = families.of(models.all.design, contrasts, question.alpha)
        judged_all = whole.judge(models.all) if models.odd else judged
        pooled = family.critical * (fit.sd or 0.0) * np.linalg.norm(family.weights, axis=1)
        widened = (judged.high - judged.estimate) / np.maximum(pooled, 1e-300)
        least = np.full(len(contrasts), np.inf)
        if power:
            least = family.detectable(fit.sd or 0.0) * np.maximum(widened, 1.0)
    rows = []
    for k, contrast in enumerate(contrasts):
        against = question.columns(contrast.against)
        cells = {cell for cell, _ in contrast.signs}
        row: Row = {"kind": contrast.kind} | question.columns(contrast.cell)
        row |= {
            "against": contrast.against,
            "steps_against": against["steps"],
            "nccl_against": against["nccl"],
            "launches": count[contrast.cell],
            "launches_against": count[contrast.against],
            "level": 1.0 - question.alpha,
            "family": len(contrasts),
            "set_aside": "; ".join(o["text"] for o in models.odd if o["cell"] in cells),
            "cell_words": question.words(contrast.cell),
            "against_words": question.words(contrast.against),
            "over_words": question.words(question.reference).split(", ")[0],
        }
        if known:
            row |= _numbers(judged, k) | {
                "ratio_all": claims.ratio(judged_all.estimate[k]),
                "ratio_all_low": claims.ratio(judged_all.low[k]),
                "ratio_all_high": claims.ratio(judged_all.high[k]),
                "detectable_ratio": claims.ratio(least[k]) if np.isfinite(least[k]) else None,
                "detectable_percent": claims.percent(least[k]) if np.isfinite(least[k]) else None,
            }
            same_side = judged.estimate[k] * judged_all.estimate[k] >= 0
            row["verdict"] = (
                claims.NO_DIFFERENCE
                if not judged.beyond[k]
                else claims.ONE_LAUNCH
                if not judged.robust[k]
                else claims.SET_ASIDE
                if not same_side
                else claims.CLAIM
            )
        else:
            ratio = claims.ratio(float(matrix[k] @ fit.effects))
            row |= dict.fromkeys(_NUMBERS) | {"ratio": ratio, "percent": 100 * (ratio - 1)}
            row["verdict"] = claims.UNKNOWN_VARIATION
        if contrast.across_profiles:
            proof = question.weakest_proof(sorted(cells))
            row["verdict"] = claims.NOT_PROVED.get(proof, row["verdict"])
        rows.append(row)
    return rows


_NUMBERS = [
    "ratio",
    "ratio_low",
    "ratio_high",
    "percent",
    "log_ratio",
    "log_error",
    "t",
    "p_adjusted",
    "ratio_all",
    "ratio_all_low",
    "ratio_all_high",
    "detectable_ratio",
    "detectable_percent",
]


def _numbers(judged: Any, k: int) -> Row:
    return {
        "ratio": claims.ratio(judged.estimate[k]),
        "ratio_low": claims.ratio(judged.low[k]),
        "ratio_high": claims.ratio(judged.high[k]),
        "percent": claims.percent(judged.estimate[k]),
        "log_ratio": float(judged.estimate[k]),
        "log_error": float(judged.error[k]),
        "t": float(judged.t[k]),
        "p_adjusted": float(judged.p[k]),
    }


def analyse_level(values: pd.DataFrame, question: Question, families: Families) -> Level:
    """Everything about one level: `values` are its launches (`launches.launch_values`)."""
    models = Models.of(values)
    design, fit = models.fit.design, models.fit
    level = Level(_summary(values, models, question))
    level.estimates = estimates(models, question)
    level.unproved = _unproved(question, design.cells)
    if question.reference not in design.cells:
        level.summary["status"] = "no_reference"
        return level
    if not models.variation_known:
        level.summary["status"] = claims.UNKNOWN_VARIATION
    cells = design.cells
    primary = compare(
        models, question, against_reference(question.facts, cells, question.reference), families
    )
    grid = within_grid(question.facts, cells, question.reference, question.axes)
    secondary = compare(models, question, grid, families)
    if not any(row["verdict"] == claims.CLAIM for row in primary):
        # Every comparison in the grid is a sum of comparisons with the reference: where none of
        # those holds, a claim here would be the price of having asked twice.
        for row in secondary:
            if row["verdict"] == claims.CLAIM:
                row["verdict"] = claims.NO_PRIMARY
    level.contrasts = [*primary, *secondary]
    for row in level.contrasts:
        row["claim"] = row["verdict"] == claims.CLAIM
        row["text"] = claims.sentence(row, question.metric)
    level.optimum, level.moves = best_of_profiles(models, question, primary)
    seen = [r["detectable_percent"] for r in primary if r["detectable_percent"] is not None]
    level.summary["detectable_percent"] = float(np.median(seen)) if seen else None
    level.summary["comparisons"] = {
        REFERENCE: len(primary),
        "grid": len(secondary),
    }
    if fit.sd is not None and models.variation_known and primary:
        level.summary["critical_value"] = families.of(
            design,
            estimable(design, against_reference(question.facts, cells, question.reference)),
            question.alpha,
        ).critical
    return level


def _unproved(question: Question, cells: Sequence[str]) -> dict[str, str]:
    """The weakest proof of a profile between each cell and the reference, where it is no proof."""
    reference = question.reference
    if reference not in cells:
        return {}
    found = {}
    for cell in cells:
        proof = question.weakest_proof([cell, reference])
        if question.columns(cell)["nccl"] != question.columns(reference)["nccl"] and proof != "confirmed":
            found[cell] = proof
    return found


def _summary(values: pd.DataFrame, models: Models, question: Question) -> Row:
    design, fit = models.fit.design, models.fit
    known = models.variation_known
    within = values.loc[values["repeats"] > 1, ["repeats", "repeat_variance"]]
    weight = within["repeats"] - 1
    repeat = (
        math.sqrt(float((within["repeat_variance"] * weight).sum() / weight.sum())) if len(within) else None
    )
    noisy = models.noisiest
    return {
        "epoch": question.epoch,
        "concurrency": question.concurrency,
        "status": "ok",
        "reference": question.reference,
        "cells": len(design.cells),
        "launches": design.n,
        "blocks": len(design.blocks),
        "launches_per_cell": [
            int(design.launches_per_cell.min()),
            int(design.launches_per_cell.max()),
        ],
        "alpha": question.alpha,
        "degrees_of_freedom": design.df,
        "launch_sd_percent": 100 * fit.sd if known and fit.sd is not None else None,
        "repeat_sd_percent": None if repeat is None else 100 * repeat,
        "critical_value": None,
        "detectable_percent": None,
        "set_aside": models.odd,
        "noisiest_cell": None
        if noisy is None
        else {
            "cell": noisy.cell,
            "sd_percent": 100 * noisy.sd,
            "others_sd_percent": 100 * noisy.others_sd,
            "p": noisy.p,
            "own_variance_used": noisy.noisy,
        },
    }
