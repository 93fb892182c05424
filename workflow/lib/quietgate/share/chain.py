"""The records that each launch left: all there, its own, and what its raw requests and traces give."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from quietgate import records
from quietgate.analyse.launch_records import LaunchRecords
from quietgate.errors import BadInput
from quietgate.files import sha256
from quietgate.share import extracted, numbers, strict
from quietgate.share.archive import below
from quietgate.share.migrate import version_of
from quietgate.wording import counted


def problems(
    root: Path,
    study: records.Record,
    launches: list[LaunchRecords],
    notes: list[str],
    traces: bool,
    left_out: Collection[str],
) -> Iterator[str]:
    """One line for each record that is missing, refused or not what its sources give.

    Args:
        launches: every launch of the study, as read.
        notes: gets a line where profiles were not extracted again.
        traces: also read traces that are so large that it takes long.
        left_out: files that are missing on purpose.
    """
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
        notes.append(
            f"{counted(unread, 'profile')} not extracted again: their traces are large (--traces reads them)"
        )
    if without:
        notes.append(
            f"{counted(without, 'profile')} not extracted again: their traces were left out of the archive"
        )


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
