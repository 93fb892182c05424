"""What was asked for in a results folder before: the launches that its study.json lists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from quietgate import records
from quietgate.errors import BadInput
from quietgate.files import read_json
from quietgate.study.epochs import Asked

STUDY = "study.json"


def history_of(results: Path) -> tuple[Asked, ...]:
    """The launches that the study in this folder had asked for, if it was finished; else none.

    Those of cells that have left its grid since are among them, as long as they lie there.
    A study of several epochs was finished once: while a later one is measured, interrupted or retried, every
    launch keeps its place. Where study.json was set aside and the run ended before it was written again, what
    that run knew still holds. BadInput where study.json is damaged: see `_record`.
    """
    old = _record(results)
    if old is None:
        frozen = read_json(results / ".live" / STUDY) or {}
        known = tuple(Asked(*asked) for asked in frozen.get("history", ()))
        return known if any((results / "cells" / a.cell / f"l{a.block}").exists() for a in known) else ()
    listed, left_out = launches_of(old)
    asked = (*listed, *left_out)
    if any(a.epoch > 1 for a in asked) or all(_ended(results, a) for a in listed):
        return (*asked, *_gone(results, asked))
    return ()


def _gone(results: Path, asked: Sequence[Asked]) -> Iterator[Asked]:
    """The launches of cells that left the grid and lie there whole: a cell that comes back has its place."""
    blocks: dict[int, dict[int, None]] = {}
    for a in asked:
        blocks.setdefault(a.epoch, {})[a.block] = None
    listed = {a.cell for a in asked}
    for folder in sorted((results / "cells").glob("*")):
        for epoch, numbers in blocks.items():
            launches = [Asked(folder.name, number, epoch) for number in numbers]
            if folder.name not in listed and all(_ended(results, a) for a in launches):
                yield from launches


def _ended(results: Path, asked: Asked) -> bool:
    return (results / "cells" / asked.cell / f"l{asked.block}" / "exit.json").exists()


def launches_of(study_record: Mapping[str, Any]) -> tuple[tuple[Asked, ...], tuple[Asked, ...]]:
    """The launches that a study.json lists, and those that it says were left out."""
    listed, left_out = (
        tuple(Asked(x["cell"], int(x["block"]), int(x.get("epoch", 1))) for x in study_record.get(name, ()))
        for name in ("launches", "left_out")
    )
    return listed, left_out


def misnamed(study_record: Mapping[str, Any]) -> str | None:
    """The first launch of a study.json that is not named after its block, in words; None where all are."""
    for name in ("launches", "left_out"):
        for i, x in enumerate(study_record.get(name, ())):
            if x["launch"] != f"l{int(x['block'])}":
                launch = f"launch {x['launch'][:20]} of {x['cell'][:60]}"
                return f"{name}/{i}: {launch} is said to be of block {x['block']}"
    return None


def was_left_out(results: Path) -> bool:
    """Whether the study in this folder was last finished without some of its launches; BadInput as above."""
    old = _record(results)
    return old is not None and bool(launches_of(old)[1])


def _record(results: Path) -> records.Record | None:
    """The study.json in this folder, None where there is none.

    A damaged one is refused, not set aside and written anew as a launch's record is: which launches belong to
    which epoch stands nowhere else.
    """
    path = results / STUDY
    if not path.exists():
        return None
    try:
        record = records.read(path, "study")
        if wrong := misnamed(record):
            raise BadInput(f"{path}: {wrong}")
        return record
    except BadInput as e:
        raise BadInput(
            f"{e}; put it back as it was, or move it away to have it written anew (a study whose grid"
            " has grown may then ask for some launches again)"
        ) from None
