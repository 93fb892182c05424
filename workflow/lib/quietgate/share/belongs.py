"""Which files of a results folder are the study: what is summed, shared and checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from quietgate.share.archive import files

# Folders of the study besides its cells.
_WHOLE = ("tables/", "figures/")
_SINGLE = ("study.json", "report.html", "check.json")


def study_files(root: Path, study: Mapping[str, Any]) -> Iterator[str]:
    """Records, requests, traces, logs of every launch in the study; tables, figures, report.

    What earlier configs left (cells no longer in the grid), and the logs of the jobs, are not.
    """
    launches = {f"{x['cell']}/{x['launch']}" for x in study["launches"]}
    for name in files(root):
        parts = name.split("/")
        of_launch = parts[0] == "cells" and "/".join(parts[1:3]) in launches and parts[3:4] != ["log"]
        if of_launch or name in _SINGLE or name.startswith(_WHOLE):
            yield name
