"""Whether results are whole, unchanged, and agree with themselves.

Looked at, in order: every file's bytes (SHA256SUMS), every record's schema, that no cell is missing, that
records belong together (digests, server lives, gates), the numbers recomputed from the raw requests, what
tables and figures say of their own files, that one table holds one version of everything, and that what an
archive says besides is what its records say.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from quietgate.analyse import tables
from quietgate.errors import BadInput
from quietgate.files import read_json
from quietgate.share import chain, checksums, grid, mixture, products, restated, strict
from quietgate.share.archive import below, opened, shown
from quietgate.share.migrate import version_of, version_problem
from quietgate.share.remake import ARCHIVE
from quietgate.share.study_record import read_study
from quietgate.wording import counted

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
    report.problems += grid.problems(study)
    report.notes += grid.notes(study)
    report.problems += [
        f"{ARCHIVE}: left_out names {shown(name)[:80]}, which is here"
        for name in left_out
        if (root / name).exists()
    ]
    if report.readable:
        launches = tables.read_all(root, study)
        report.problems += chain.problems(root, study, launches, report.notes, traces, left_out)
        report.problems += mixture.problems(launches)
        report.problems += mixture.readers(study, launches)
        report.problems += products.problems(root, study)
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
        notes.append(f"not listed in {checksums.NAME}: {counted(len(extra), 'file')}, the first: {extra[0]}")
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
