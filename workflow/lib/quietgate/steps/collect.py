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


def main(results: str, log: str) -> None:
    """Run the rule."""
    root = Path(results)
    study = Study.thaw(root / FROZEN)
    record = collect(root, root / "tables")
    records.write(root / "tables" / "tables.json", {**record, "digest": tables_digest(study)})
    Path(log).write_text("".join(f"{t['name']}: {t['rows']} rows\n" for t in record["tables"]))


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
