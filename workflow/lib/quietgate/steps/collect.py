"""Rule `collect`: from the records of every launch to tables and statistics."""

from __future__ import annotations

from pathlib import Path

from quietgate import records
from quietgate.analyse import statistics, tables
from quietgate.files import write_json
from quietgate.gate import across
from quietgate.steps.place import FROZEN
from quietgate.study import Study
from quietgate.study.stages import tables_digest


def main(record: str, log: str) -> None:
    """Run the rule."""
    root = Path(record).parents[1]
    study = Study.thaw(root / FROZEN)
    made = collect(root, root / "tables")
    records.write(Path(record), {**made, "digest": tables_digest(study)})
    Path(log).write_text("".join(f"{t['name']}: {t['rows']} rows\n" for t in made["tables"]))


def collect(root: Path, out: Path) -> records.Record:
    """Make every table of the results in `root` into `out`; returns the record `tables`."""
    study = records.read(root / "study.json", "study")
    frames = tables.collect(root, study)
    outcome, derived = statistics.statistics(frames["cells"], study)
    found = across.findings(root, study)
    written = tables.write({**frames, **derived}, out)
    write_json(out / "statistics.json", outcome)
    return {
        "schema": "quietgate/tables/1",
        "study": study["study"],
        "inputs": len(study["launches"]),
        "tables": written,
        "drifts": found["drifts"],
        "agreement": found["agreement"],
        "refused": tables.refusals(root, study),
        "warnings": found["warnings"],
    }
