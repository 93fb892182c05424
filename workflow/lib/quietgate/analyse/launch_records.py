"""The records of one launch, refused where they do not belong to the study or prove nothing.

A number counts only if the record holding it was made for the study as configured (its digest is the
study's) on a server life that passed the gate (`instances/<id>/gate.json`). Anything else is a mixed-up
or edited folder, and is refused by name instead of being averaged in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quietgate import records
from quietgate.errors import BadInput
from quietgate.files import sha256
from quietgate.records import Record

# Which of the cell's digests each record carries. The profile's digest also covers the reader's sources,
# which a reviewer may have in another version: its instance is checked instead.
DIGEST_OF = {
    "launch": "server",
    "gate": "server",
    "benchmark": "benchmark",
    "stages": "benchmark",
    "capture": "capture",
    "exit": "server",
}
# What was measured on a server, so that the server must have passed the gate.
MEASURED = ("benchmark", "stages", "capture")
ORDER = ("all_reduce", "launch", "gate", "benchmark", "capture", "exit", "profile")

MISSING = "missing"


@dataclass(frozen=True)
class LaunchRecords:
    """What one launch left.

    Attributes:
        cell: the cell as study.json lists it.
        launch: id of the launch.
        folder: cells/<cell>/<launch>.
        records: by kind; absent ones are left out.
        gates: gate records of the server lives, by instance, oldest life first.
        refused: why records were refused: each with record (path below the study's folder) and why.
    """

    cell: Mapping[str, Any]
    launch: str
    folder: Path
    records: dict[str, Record]
    gates: dict[str, Record] = field(default_factory=dict)
    refused: list[dict[str, str]] = field(default_factory=list)

    def passed(self, kind: str) -> Record | None:
        """The record of that kind if it passed."""
        record = self.records.get(kind)
        return record if record is not None and record["status"] == "passed" else None

    @property
    def instance(self) -> str | None:
        """The server life that the timed passes were measured on, else the last one known."""
        for kind in ("benchmark", "exit", "gate", "launch"):
            found = self.records.get(kind, {}).get("instance")
            if found:
                return str(found)
        return None

    @property
    def gate(self) -> Record | None:
        """The gate of that server life, else the launch's own."""
        return self.gates.get(self.instance or "") or self.records.get("gate")

    def not_passed(self, *kinds: str) -> tuple[str, Record | None] | None:
        """The first of the given kinds, in the chain's order, that did not pass; None if all did."""
        for kind in ORDER:
            if kind in kinds and self.passed(kind) is None:
                return kind, self.records.get(kind)
        return None


def launched_cells(study: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Every cell that a study record has launches of: the grid's, then the one without timers, if any.

    The latter is its twin but for its id and digests.
    """
    untimed = study.get("untimed")
    if not untimed:
        return list(study["cells"])
    own = {"id": untimed["id"], "digests": untimed["digests"]}
    return [*study["cells"], *(cell | own for cell in study["cells"] if cell["id"] == untimed["twin"])]


def read_launch(
    results_dir: Path, study: Mapping[str, Any], cell: Mapping[str, Any], launch: str
) -> LaunchRecords:
    """Read and check every record of a launch. Nothing is raised: see `refused`."""
    folder = results_dir / "cells" / cell["id"] / launch
    found = LaunchRecords(cell, launch, folder, {})
    for kind in (*ORDER, "stages"):
        path = folder / f"{kind}.json"
        if not path.exists():
            continue
        try:
            found.records[kind] = records.read(path, kind)
        except BadInput as e:
            _refuse(found, path, str(e).removeprefix(f"{path}: "))
    for path in sorted(folder.glob("instances/*/gate.json")):
        try:
            found.gates[path.parent.name] = records.read(path, "gate")
        except BadInput as e:
            _refuse(found, path, str(e).removeprefix(f"{path}: "))
    for kind, record in list(found.records.items()):
        why = _wrong(found, study, kind, record)
        if why:
            _refuse(found, folder / f"{kind}.json", why)
            del found.records[kind]
    return found


def _refuse(found: LaunchRecords, path: Path, why: str) -> None:
    place = path.relative_to(found.folder.parents[2]).as_posix()
    found.refused.append({"record": place, "why": why})


def _wrong(found: LaunchRecords, study: Mapping[str, Any], kind: str, record: Record) -> str | None:
    """Why the record cannot be counted, or None."""
    for name, wanted in (("study", study["study"]), ("cell", found.cell["id"]), ("launch", found.launch)):
        if record[name] != wanted:
            return f"it is of {name} {record[name]!r}, but lies in the folder of {wanted!r}"
    digests = found.cell["digests"]
    wanted = digests.get(DIGEST_OF.get(kind, ""), record["digest"])
    if record["digest"] != wanted:
        return (
            f"made under another configuration (digest {record['digest']}, the study's is {wanted});"
            " run snakemake to repeat it"
        )
    if record["status"] != "passed":
        return None
    if kind in MEASURED:
        why = _ungated(found, record, digests["server"])
        if why:
            return why
    if kind == "benchmark":
        requests = found.folder / "requests.jsonl"
        if not requests.exists():
            return "requests.jsonl is gone; restore it or run snakemake to repeat the passes"
        if sha256(requests) != record["requests_sha256"]:
            return "requests.jsonl is not the file that was measured (its SHA-256 differs)"
    if kind == "profile":
        benchmark = found.records.get("benchmark")
        if benchmark and record["instance"] != benchmark["instance"]:
            return f"of server life {record['instance']}, but the passes are of {benchmark['instance']}"
    return None


def _ungated(found: LaunchRecords, record: Record, digest: str) -> str | None:
    instance = record["instance"]
    if instance is None:
        return "it names no server life, so no gate vouches for it"
    gate = found.gates.get(instance)
    place = f"instances/{instance}/gate.json"
    if gate is None:
        return f"measured on server life {instance}, which has no gate ({place} is missing or refused)"
    if gate["status"] != "passed":
        return f"measured on server life {instance}, whose gate {gate['status']} ({place})"
    if gate["instance"] != instance or gate["cell"] != record["cell"]:
        return f"{place} is the gate of another server life ({gate['cell']}, {gate['instance']})"
    if gate["digest"] != digest:
        return f"the gate of its server life was passed under another configuration ({place})"
    return None
