"""Rule `study`: write down the resolved study, the machine and the code it runs with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from quietgate import provenance, records
from quietgate.steps.place import FROZEN
from quietgate.study import Study, command
from quietgate.study.resume import study_digest


def main(record: str, log: str) -> None:
    """Run the rule."""
    root = Path(record).parent
    study = Study.thaw(root / FROZEN)
    records.write(Path(record), study_record(study))
    Path(log).write_text("study.json written\n", encoding="utf-8")


def study_record(study: Study) -> records.Record:
    """The record `study`: everything a reader needs to know of the grid without the config file."""
    return {
        "schema": "quietgate/study/1",
        "study": study.name,
        "digest": study_digest(study),
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
        "axes": list(study.config["grid"]["axes"]),
        "reference": study.reference.id,
        "seed": study.config["seed"],
        "written_at": records.utc_now(),
        "host": provenance.host(),
        "gpus": list(provenance.gpus()),
        "driver": provenance.driver(),
        "versions": provenance.versions(),
        "git": provenance.git(study.basedir),
    }


def untimed(study: Study) -> records.Record | None:
    """The cell without timers, its twin in the grid, and which timers the twin has on."""
    cell = study.untimed
    if cell is None:
        return None
    twin = replace(cell, timers=True)
    timers = command.timers_on(study.resolved(twin))
    return {"id": cell.id, "twin": twin.id, "timers": timers, "digests": study.digests(cell)}
