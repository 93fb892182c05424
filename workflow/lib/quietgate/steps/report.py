"""Rule `report_page`: the page that answers the question."""

from __future__ import annotations

from pathlib import Path

from quietgate import records
from quietgate.draw import report
from quietgate.files import read_json
from quietgate.share.seal import seal


def main(page: str, log: str) -> None:
    """Run the rule."""
    root = Path(page).parent
    study = records.read(root / "study.json", "study")
    report.write(root, study, read_json(root / "tables" / "statistics.json"), Path(page))
    seal(root)
    Path(log).write_text("report.html written\n", encoding="utf-8")
