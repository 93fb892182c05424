"""Rule `collect`: from the records of every launch to tables and statistics."""

from __future__ import annotations

from pathlib import Path

from quietgate import records
from quietgate.analyse.collect import collect
from quietgate.share import checksums
from quietgate.steps.place import FROZEN
from quietgate.study import Study
from quietgate.study.stages import tables_digest
from quietgate.wording import counted


def main(record: str, log: str) -> None:
    """Run the rule."""
    root = Path(record).parents[1]
    study = Study.thaw(root / FROZEN)
    (root / checksums.NAME).unlink(missing_ok=True)
    made = collect(root, root / "tables")
    records.write(Path(record), {**made, "digest": tables_digest(study)})
    Path(log).write_text(
        "".join(f"{t['name']}: {counted(t['rows'], 'row')}\n" for t in made["tables"]), encoding="utf-8"
    )
