"""Rule `report_page`: the page that answers the question."""

from __future__ import annotations

from pathlib import Path

from quietgate import records
from quietgate.draw import report
from quietgate.files import read_json


def main(results: str, log: str) -> None:
    """Run the rule."""
    root = Path(results)
    study = records.read(root / "study.json", "study")
    report.write(root, study, read_json(root / "tables" / "statistics.json"), root / "report.html")
    Path(log).write_text("report.html written\n")
