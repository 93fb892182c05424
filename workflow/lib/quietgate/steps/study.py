"""Rule `study`: write down the resolved study, the machine and the code it runs with."""

from __future__ import annotations

from pathlib import Path

from quietgate import provenance, records
from quietgate.steps.place import FROZEN
from quietgate.study import Study, left_out
from quietgate.study.description import describe
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
        **describe(study),
        "written_at": records.utc_now(),
        "host": provenance.host(),
        "gpus": list(provenance.gpus()),
        "driver": provenance.driver(),
        "versions": provenance.versions(),
        "git": provenance.git(study.basedir),
        "warnings": [left_out.sentence(study)] if study.left_out else [],
    }
