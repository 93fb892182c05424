"""Whether results are whole, unchanged, and agree with themselves.

Looked at, in order: every file's bytes (SHA256SUMS), every record's schema, that no cell is missing, that
records belong together (digests, server lives, gates), the numbers recomputed from the raw requests, what
tables and figures say of their own files, that one table holds one version of everything, and that what an
archive says besides is what its records say.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quietgate import records
from quietgate.analyse import tables
from quietgate.analyse.launch_records import LaunchRecords, launched_cells
from quietgate.errors import BadInput
from quietgate.files import read_json, sha256
from quietgate.share import checksums, extracted, mixture, numbers, restated, strict
from quietgate.share.archive import below, opened, shown
from quietgate.share.migrate import version_of, version_problem
from quietgate.share.remake import ARCHIVE
from quietgate.share.study_record import read_study
from quietgate.study import Study
from quietgate.study.earlier import launches_of

# More lines than this help nobody.
MAX_PROBLEMS = 200


@dataclass
class Report:
    """What a verification found.

    Attributes:
        problems: what is wrong, one line each.
        notes: what could not be looked at, and what is odd but not wrong.
        readable: whether the records are safe to be read on (redrawn).
    """

    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    readable: bool = True


def verify(path: Path) -> list[str]:
    """Every problem of the results at `path` (folder or archive), a line each; BadInput if unsafe to read."""
    with opened(path) as root:
        return check(root).problems


def check(root: Path, traces: bool = False, left_out: Collection[str] = ()) -> Report:
    """Verify the results in `root`, which `archive.opened` has let pass.

    Args:
        traces: also read traces that are so large that it takes long.
        left_out: files that are missing on purpose; an archive's own list is added.
    """
    report = Report()
    left_out = {*left_out, *_left_out(root)}
    report.problems += _bytes(root, report.notes)
    unsafe = list(_unsafe(root))
    if unsafe:
        report.problems += unsafe
        report.readable = False
    study = read_study(root)
    report.problems += _grid(study)
    report.notes += _not_measured(study)
    report.problems += [
        f"{ARCHIVE}: left_out names {shown(name)[:80]}, which is here"
        for name in left_out
        if (root / name).exists()
    ]
    if report.readable:
        launches = tables.read_all(root, study)
        report.problems += _launches(root, study, launches, report.notes, traces, left_out)
        report.problems += mixture.problems(launches)
        report.problems += _readers(study, launches)
        report.problems += _products(root, study)
        report.problems += restated.problems(root, study, launches, report.notes)
    cut = len(report.problems) - MAX_PROBLEMS
    report.problems = [below(root, shown(p)) for p in dict.fromkeys(report.problems)][:MAX_PROBLEMS]
    if cut > 0:
        report.problems.append(f"... and {cut} more")
    return report


def _left_out(root: Path) -> list[str]:
    """What whoever made the archive left out of it."""
    archive = read_json(root / ARCHIVE)
    names = archive.get("left_out") if isinstance(archive, dict) else None
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _bytes(root: Path, notes: list[str]) -> list[str]:
    changed, extra = checksums.problems(root)
    if checksums.read(root) is None:
        if (root / ARCHIVE).exists():
            return [f"{checksums.NAME}: missing; an archive has one"]
        notes.append(
            f"no {checksums.NAME}: whether bytes changed cannot be said of every file (`share` writes it)"
        )
    if (root / ARCHIVE).exists():
        return changed + extra
    if extra:
        notes.append(f"{len(extra)} files are not listed in {checksums.NAME}, the first: {extra[0]}")
    return changed


def _unsafe(root: Path) -> Iterator[str]:
    """Records that no further code may see: no JSON of ours, or names in them that lead elsewhere."""
    for path in sorted(root.rglob("*.json")):
        name = path.relative_to(root)
        if name.parts[0].startswith(".") or name.parts[0] == "schemas":
            continue
        try:
            record = strict.load(path)
        except BadInput as e:
            yield below(root, e)
            continue
        if version_of(record):
            wrong = version_problem(record)
            if wrong:
                yield f"{name}: {wrong}"
        elif name.parts[0] == "cells" and len(name.parts) <= 4:
            yield f"{name}: not a quietgate record"
        if name.name == "capture.json":
            for one in record.get("trace_files") or [] if isinstance(record, dict) else []:
                trace = one.get("name") if isinstance(one, dict) else None
                if not isinstance(trace, str) or Path(trace).name != trace or trace in ("", ".", ".."):
                    yield f"{name}: trace_files: {str(trace)[:60]!r} is no file name"


def _grid(study: records.Record) -> Iterator[str]:
    """The cells that the config asks for are the cells that study.json lists, each launch of them too."""
    try:
        # Which cell is launched without timers is kept from a study's earlier epochs.
        history = tuple(itertools.chain(*launches_of(study)))
        asked = Study(study["config"], "study.json", history=history)
        cells = {c.id: c for c in asked.cells}
        mine_untimed = asked.about_untimed or {}
    except (BadInput, KeyError, TypeError, ValueError, AttributeError) as e:
        yield f"study.json: config: does not make a grid ({shown(repr(e))[:100]})"
        return
    listed = {c["id"]: c for c in study["cells"]}
    yield from (f"study.json: cell {c} of the config's grid is missing" for c in cells if c not in listed)
    for cell_id, cell in listed.items():
        mine = cells.get(cell_id)
        if mine is None:
            yield f"study.json: cell {cell_id} is not in the config's grid"
        elif (mine.steps, mine.nccl, mine.axes) != (cell["steps"], cell["nccl"], cell["axes"]):
            yield f"study.json: cell {cell_id} is not what its name says"
    if asked.reference.id != study["reference"]:
        yield f"study.json: reference is {study['reference']}, the config's is {asked.reference.id}"
    untimed = study.get("untimed") or {}
    for name, words in (("id", "the cell without timers"), ("twin", "its twin"), ("timers", "its timers")):
        if untimed.get(name) != mine_untimed.get(name):
            yield (
                f"study.json: untimed: {words}: {str(untimed.get(name))[:100]},"
                f" the config's: {mine_untimed.get(name)}"
            )
            break
    launches: dict[str, int] = dict.fromkeys((c["id"] for c in launched_cells(study)), 0)
    for launch in (*study["launches"], *study.get("left_out", ())):
        launches[launch["cell"]] += 1
    wanted = study["config"].get("replicates")
    for cell_id, count in launches.items():
        if isinstance(wanted, int) and count < wanted:
            yield f"study.json: {count} launches of {cell_id} are listed, the config asks for {wanted}"


def _not_measured(study: records.Record) -> Iterator[str]:
    """A study that was finished without some launches is whole, but whoever reads it should know."""
    listed, left_out = launches_of(study)
    if left_out:
        first = f"{left_out[0].cell} l{left_out[0].block}"
        asked = len(listed) + len(left_out)
        yield f"{len(left_out)} launches of {asked} asked for were not measured, the first: {first}"


def _launches(
    root: Path,
    study: records.Record,
    launches: list[LaunchRecords],
    notes: list[str],
    traces: bool,
    left_out: Collection[str],
) -> Iterator[str]:
    capture = bool(study["config"].get("capture", {}).get("enabled"))
    check = bool(study["config"].get("all_reduce", {}).get("enabled"))
    chain = (
        *(("all_reduce",) if check else ()),
        *("launch", "gate", "benchmark", "stages"),
        *(("capture",) if capture else ()),
        *("exit", "profile"),
    )
    unread = without = 0
    for found in launches:
        place = f"cells/{found.cell['id']}/{found.launch}"
        refused = {r["record"] for r in found.refused}
        yield from (f"{r['record']}: {r['why']}" for r in found.refused)
        for kind in chain:
            if kind not in found.records and f"{place}/{kind}.json" not in refused:
                yield f"{place}/{kind}.json: missing"
        for path in sorted(found.folder.glob("instances/*/exit.json")):
            yield from _breaks(path, root)
        benchmark = found.passed("benchmark")
        if benchmark is None:
            continue
        settings, steps = study["config"]["benchmark"], found.cell["steps"]
        wrong = [*numbers.problems(found.folder, benchmark, settings, steps)]
        profile = found.passed("profile")
        if profile is not None:
            wrong += numbers.profile_problems(profile, benchmark)
            if not wrong and extracted.comparable(study, found):
                if any(name.startswith(f"{place}/trace/") for name in left_out):
                    without += 1
                elif traces or extracted.is_quick(found.folder):
                    wrong += extracted.problems(found.folder, profile, steps)
                else:
                    unread += 1
        wrong += _lives(found)
        wrong += _traces(found, {name.removeprefix(f"{place}/trace/") for name in left_out})
        yield from (f"{place}/{line}" for line in wrong)
    if unread:
        notes.append(f"{unread} profiles not extracted again: their traces are large (--traces reads them)")
    if without:
        notes.append(f"{without} profiles not extracted again: their traces were left out of the archive")


def _breaks(path: Path, root: Path) -> Iterator[str]:
    """What breaks the schema of a record that no table is made of."""
    try:
        record = strict.load(path)
        if version_of(record):
            records.read(path)
    except BadInput as e:
        yield below(root, e)


def _lives(found: LaunchRecords) -> Iterator[str]:
    """The server lives of a launch, as its last record lists them, are the folders that are there."""
    ended = found.passed("exit")
    if ended is None:
        return
    folders = found.folder / "instances"
    there = {p.name for p in folders.iterdir() if p.is_dir()} if folders.is_dir() else set()
    yield from (f"exit.json: server life {i} has no folder" for i in ended["instances"] if i not in there)


def _traces(found: LaunchRecords, left_out: Collection[str]) -> Iterator[str]:
    capture = found.passed("capture")
    for one in capture["trace_files"] if capture else []:
        path = found.folder / "trace" / one["name"]
        if not path.is_file() and one["name"] in left_out:
            continue
        if not path.is_file():
            yield f"trace/{one['name']}: missing, but capture.json lists it"
        elif path.stat().st_size != one["bytes"] or sha256(path) != one["sha256"]:
            yield f"trace/{one['name']}: not the file that capture.json lists"


def _readers(study: records.Record, launches: list[LaunchRecords]) -> Iterator[str]:
    """All profiles of a table come from one version of the readers, or from none that is known here."""
    ours: list[LaunchRecords] = []
    others: list[LaunchRecords] = []
    for found in launches:
        profile = found.passed("profile")
        if profile is not None:
            (ours if extracted.comparable(study, found) else others).append(found)
    if ours and others:
        first = others[0]
        yield (
            f"launches of different versions in one table: {len(others)} profiles were extracted by other"
            f" readers than the rest (first {first.cell['id']} {first.launch})"
        )


def _products(root: Path, study: records.Record) -> Iterator[str]:
    """Tables and figures are there, and are the files that their own records name."""
    found = _record(root / "tables/tables.json", "tables", study)
    if isinstance(found, str):
        yield f"tables/tables.json: {found}"
    else:
        for table in found["tables"]:
            yield from _named(root, f"tables/{table['name']}.csv", table["sha256"])
        if found["inputs"] != len(study["launches"]):
            count = len(study["launches"])
            yield f"tables/tables.json: made from {found['inputs']} launches, the study has {count}"
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
