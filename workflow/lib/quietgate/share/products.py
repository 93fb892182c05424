"""Tables and figures are there, and are the files that their own records name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from quietgate import records
from quietgate.errors import BadInput
from quietgate.files import sha256
from quietgate.wording import counted


def problems(root: Path, study: records.Record) -> Iterator[str]:
    """One line for each record or file that is missing or another one."""
    found = _record(root / "tables/tables.json", "tables", study)
    if isinstance(found, str):
        yield f"tables/tables.json: {found}"
    else:
        for table in found["tables"]:
            yield from _named(root, f"tables/{table['name']}.csv", table["sha256"])
        if found["inputs"] != len(study["launches"]):
            count = len(study["launches"])
            yield f"tables/tables.json: made from {counted(found['inputs'], 'launch')}, the study has {count}"
        if not (root / "tables/statistics.json").is_file():
            yield "tables/statistics.json: missing"
    drawn = _record(root / "figures/figures.json", "figures", study)
    if isinstance(drawn, str):
        yield f"figures/figures.json: {drawn}"
    else:
        for figure in drawn["figures"]:
            for extension, wanted in figure["files"].items():
                yield from _named(root, f"figures/{figure['name']}.{extension}", wanted)


def _record(path: Path, kind: str, study: Mapping[str, Any]) -> records.Record | str:
    try:
        found = records.read(path, kind)
    except BadInput as e:
        return str(e).removeprefix(f"{path}: ")
    return found if found["study"] == study["study"] else f"of another study ({found['study']})"


def _named(root: Path, name: str, wanted: str) -> Iterator[str]:
    path = root / name
    if not path.is_file():
        yield f"{name}: missing"
    elif sha256(path) != wanted:
        yield f"{name}: not the file that was made (its SHA-256 differs)"
