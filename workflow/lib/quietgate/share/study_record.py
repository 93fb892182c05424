"""study.json of somebody else: read only if nothing in it can lead a reader astray."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from quietgate import records
from quietgate.analyse.launch_records import launched_cells
from quietgate.errors import BadInput
from quietgate.share import strict
from quietgate.share.archive import shown
from quietgate.share.migrate import version_problem
from quietgate.study.earlier import misnamed
from quietgate.wording import counted

# Cells become folders, so their ids are looked at before any path is made of them.
_FOLDER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._=+-]{0,249}")
_LAUNCH = re.compile(r"l[1-9][0-9]{0,5}")
MAX_CELLS = 10_000
MAX_LAUNCHES = 100_000
MAX_STEPS = 1_000


def read_study(root: Path) -> records.Record:
    """The study record of the results in `root`; BadInput, one line, where it cannot be trusted."""
    path = root / "study.json"
    study = strict.load(path)
    wrong = version_problem(study) or _problem(study, path)
    if wrong:
        raise BadInput(f"{shown(path)}: {shown(wrong)}")
    return dict(study)


def _problem(study: Any, path: Path) -> str | None:
    kind = records.kind_of(study, str(path))
    if kind != "study":
        return f"a {kind} record where a study record belongs"
    wrong = records.problem(study, "study")
    if wrong:
        return f"breaks schema study at {wrong}"
    cells, launches = study["cells"], [*study["launches"], *study.get("left_out", ())]
    if not study["launches"]:
        return "launches: none is listed"
    if not cells or len(cells) > MAX_CELLS or len(launches) > MAX_LAUNCHES:
        found = f"{counted(len(cells), 'cell')} and {counted(len(launches), 'launch')}"
        return f"{found}; no study has so few or so many"
    if not _FOLDER.fullmatch(study["study"]):
        return f"study: {study['study'][:60]!r} is no name of a study"
    untimed = study.get("untimed")
    if untimed and untimed["twin"] not in [c["id"] for c in cells]:
        return f"untimed: its twin {untimed['twin'][:60]!r} is not among the cells"
    cells = launched_cells(study)
    ids = [c["id"] for c in cells]
    for cell in cells:
        if not _FOLDER.fullmatch(cell["id"]):
            return f"cells: {cell['id'][:60]!r} is no name of a cell"
        if not 0 <= cell["steps"] <= MAX_STEPS:
            return f"cells: {cell['id']}: {cell['steps']} steps"
        missing = {"server", "benchmark", "capture"} - set(cell["digests"])
        if missing:
            return f"cells: {cell['id']}: digests lack {', '.join(sorted(missing))}"
        if any(a not in cell["axes"] for a in study["axes"] if a not in ("steps", "nccl")):
            return f"cells: {cell['id']}: lacks a value of an axis"
    if len(set(ids)) < len(ids):
        return "cells: one is listed twice"
    if study["reference"] not in [c["id"] for c in study["cells"]]:
        return f"reference: {study['reference'][:60]!r} is not among the cells"
    places = [(x["cell"], x["launch"]) for x in launches]
    for cell_id, launch in places:
        if cell_id not in ids or not _LAUNCH.fullmatch(launch):
            return f"launches: {launch[:20]!r} of {cell_id[:60]!r} is no launch of a cell"
    if len(set(places)) < len(places):
        return "launches: one is listed twice"
    return misnamed(study)
