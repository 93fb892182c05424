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
    drawn = draw(root, root / "figures", study.config["reference_observations"])
    records.write(Path(record), {**drawn, "digest": figures_digest(study)})
    Path(log).write_text("".join(f"{f['name']}\n" for f in drawn["figures"]))


def draw(root: Path, out: Path, marks: str | None) -> records.Record:
    """Draw every figure of the results in `root` into `out`; returns the record `figures`."""
    study = records.read(root / "study.json", "study")
    statistics = read_json(root / "tables" / "statistics.json")
    reference = Path(marks) if marks else None
    return draw_all(root / "tables", out, study, statistics, reference)
