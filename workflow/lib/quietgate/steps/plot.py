"""Rule `plot`: draw the figures from the tables."""

from __future__ import annotations

from pathlib import Path

from quietgate import records
from quietgate.draw.figures import draw_all
from quietgate.files import read_json
from quietgate.steps.place import FROZEN
from quietgate.study import Study
from quietgate.study.stages import figures_digest


def main(record: str, log: str) -> None:
    """Run the rule."""
    root = Path(record).parents[1]
    study = Study.thaw(root / FROZEN)
    marks = study.config["reference_observations"]
    drawn = draw_all(
        root / "tables",
        root / "figures",
        records.read(root / "study.json", "study"),
        read_json(root / "tables" / "statistics.json"),
        Path(marks) if marks else None,
    )
    records.write(Path(record), {**drawn, "digest": figures_digest(study)})
    Path(log).write_text("".join(f"{f['name']}\n" for f in drawn["figures"]), encoding="utf-8")
