"""Every table of a study: rows from the records, statistics on them, what the gates say together."""

from __future__ import annotations

from pathlib import Path

from quietgate import records
from quietgate.analyse import statistics, tables
from quietgate.files import write_json
from quietgate.gate import across


def collect(root: Path, out: Path) -> records.Record:
    """Make every table of the results in `root` into `out`; returns the record `tables`, less its digest."""
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
        # One refused record stops `tables.collect`, so that here there is none.
        "refused": [],
        "warnings": found["warnings"],
    }
