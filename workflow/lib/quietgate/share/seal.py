"""The last touch on a study's own results: SHA256SUMS over everything that is the study."""

from __future__ import annotations

from pathlib import Path

from quietgate import records
from quietgate.share import checksums
from quietgate.share.belongs import study_files


def seal(root: Path) -> None:
    """Write SHA256SUMS in the results folder `root`; whatever changes afterwards, `verify` finds."""
    study = records.read(root / "study.json", "study")
    checksums.write(root, study_files(root, study))
