"""Rule `study`: write down the resolved study, the machine and the code it runs with."""

from __future__ import annotations

from pathlib import Path

from quietgate import provenance, records
from quietgate.steps.place import FROZEN
from quietgate.study import Study, left_out
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
        "left_out": [
            {"cell": a.cell, "launch": f"l{a.block}", "block": a.block, "epoch": a.epoch}
            for a in study.left_out
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
        "warnings": [left_out.sentence(study)] if study.left_out else [],
    }


def untimed(study: Study) -> records.Record | None:
    """What the record says of the cell without timers; None where there is none."""
    about = study.about_untimed
    return about and {**about, "digests": study.digests(study.cell(about["id"]))}
