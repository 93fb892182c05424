"""What study.json says of the study itself: all that its readers know of the grid without the config file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quietgate.study.study import Study


def describe(study: Study) -> dict[str, Any]:
    """The part of the record `study` that follows from config, history and what is left out alone."""
    return {
        "config": study.config,
        "cells": [
            {
                "id": c.id,
                "steps": c.steps,
                "nccl": c.nccl,
                "axes": c.axes,
                "digests": study.digests(c),
            }
            for c in study.cells
        ],
        "untimed": untimed(study),
        "launches": [
            {"cell": x.cell.id, "launch": x.id, "block": x.block, "epoch": x.epoch} for x in study.launches
        ],
        "left_out": [
            {"cell": a.cell, "launch": f"l{a.block}", "block": a.block, "epoch": a.epoch}
            for a in study.left_out
        ],
        "axes": list(study.config["grid"]["axes"]),
        "reference": study.reference.id,
        "seed": study.config["seed"],
    }


def untimed(study: Study) -> dict[str, Any] | None:
    """What the record says of the cell without timers; None where there is none."""
    about = study.about_untimed
    return about and {**about, "digests": study.digests(study.cell(about["id"]))}


def differs(record: Mapping[str, Any], study: Study) -> str | None:
    """The first key of a study.json that is not what the study gives; None where all are.

    Records from before a key was added lack it: there its value is nothing.
    """
    for key, value in describe(study).items():
        if (record.get(key) or None) != (value or None):
            return key
    return None
