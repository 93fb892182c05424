"""What somebody shared, made again and compared file by file."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from quietgate import provenance
from quietgate.errors import BadInput
from quietgate.files import read_json
from quietgate.share.archive import below, shown
from quietgate.share.remake import ARCHIVE, remake
from quietgate.wording import counted

IDENTICAL = "identical"
# Bytes differ, but what is said is the same: other libraries drew it, or rounded the last digit.
SAME = "same data"
DIFFERS = "differs"

# Two machines may round the last digits of a sum differently; nothing that was measured is this exact.
_TOLERANCE = 1e-9
_DRAWN_BY = ("matplotlib", "seaborn", "numpy", "pandas", "scipy")
# Pictures are what libraries make of the data beside them.
_PICTURES = {".pdf", ".svg", ".png"}


@dataclass(frozen=True)
class Verdict:
    """What became of one file.

    Attributes:
        file: its path below the results.
        verdict: IDENTICAL, SAME or DIFFERS.
        why: what differs, in one line; empty where nothing does.
    """

    file: str
    verdict: str
    why: str = ""

    def __str__(self) -> str:
        return f"{self.verdict:<10} {shown(self.file)}" + (f": {shown(self.why)}" if self.why else "")


def redraw(root: Path, scratch: Path) -> tuple[list[Verdict], list[str]]:
    """Make every table and figure of the results in `root` again in `scratch` and compare.

    Returns:
        A verdict per file, tables first, and notes on what could not be made as it was.
    """
    notes = remake(root, scratch)
    versions = changed_versions(root)
    if versions:
        notes.append(f"drawn with other library versions: {', '.join(versions)}")
    verdicts = [
        _compare(root, scratch, name, versions)
        for folder in ("tables", "figures")
        for name in _names(root, scratch, folder)
    ]
    if (root / "report.html").is_file():
        verdicts.append(_report(root, scratch, verdicts))
    return verdicts, notes


def changed_versions(root: Path) -> list[str]:
    """Libraries that draw and are here in another version than where the figures were made."""
    made = read_json(root / ARCHIVE) or read_json(root / "study.json") or {}
    before = made.get("versions")
    now = provenance.versions()
    return [
        f"{name} {shown(before[name])} there, {now.get(name, 'none')} here"
        for name in _DRAWN_BY
        if isinstance(before, Mapping) and name in before and before[name] != now.get(name)
    ]


def other_code(root: Path) -> str | None:
    """A sentence where an archive was made by other code than this: what differs may be the code's doing."""
    archive = read_json(root / ARCHIVE)
    code = archive.get("code") if isinstance(archive, Mapping) else None
    if not isinstance(code, Mapping) or code.get("sources") in (None, provenance.sources()):
        return None
    commit = f", at commit {shown(code['commit'])}" if code.get("commit") else ""
    return (
        f"made by another version of this code{commit}: what differs may be the code's doing; check that"
        " version out to compare bytes"
    )


def _names(root: Path, scratch: Path, folder: str) -> list[str]:
    present = {
        f"{folder}/{p.name}"
        for top in (root, scratch)
        if (top / folder).is_dir()
        for p in (top / folder).iterdir()
    }
    return sorted(present)


def _compare(root: Path, scratch: Path, name: str, versions: list[str]) -> Verdict:
    there, here = root / name, scratch / name
    if not here.is_file():
        return Verdict(name, DIFFERS, "is not made from these records")
    if not there.is_file():
        return Verdict(name, DIFFERS, "is missing in the results")
    if there.read_bytes() == here.read_bytes():
        return Verdict(name, IDENTICAL)
    if there.suffix in _PICTURES:
        return _picture(there, here, name, versions)
    if there.suffix == ".csv":
        return _of(name, table_difference(there, here))
    if there.suffix == ".json":
        return _of(name, _record_difference(there, here))
    return Verdict(name, DIFFERS, "its text is another")


def _of(name: str, difference: tuple[str, str]) -> Verdict:
    return Verdict(name, *difference)


def _picture(there: Path, here: Path, name: str, versions: list[str]) -> Verdict:
    """A picture with other bytes: by the data and the caption beside it."""
    data = [p.with_suffix(".csv") for p in (there, here)]
    caption = [p.with_suffix(".txt") for p in (there, here)]
    if not all(p.is_file() for p in (*data, *caption)):
        return Verdict(name, DIFFERS, f"other bytes, and no {data[0].name} to compare by")
    if caption[0].read_bytes() != caption[1].read_bytes():
        return Verdict(name, DIFFERS, f"{caption[0].name} differs")
    rounded = data[0].read_bytes() != data[1].read_bytes()
    if rounded and table_difference(*data)[0] == DIFFERS:
        return Verdict(name, DIFFERS, f"{data[0].name} differs")
    if versions:
        return Verdict(name, SAME, "drawn by other library versions from the same numbers")
    if rounded:
        return Verdict(name, SAME, "drawn from numbers that are equal but for their last digits")
    return Verdict(name, DIFFERS, "other bytes from the same library versions and numbers")


def table_difference(there: Path, here: Path) -> tuple[str, str]:
    """Verdict on two tables with different bytes, and the first difference or the largest one."""
    try:
        a, b = (pd.read_csv(p, dtype=str, keep_default_na=False) for p in (there, here))
    except (ValueError, OSError) as e:
        return DIFFERS, f"not a table ({str(e).splitlines()[0]})"
    if list(a.columns) != list(b.columns):
        other = sorted(set(a.columns) ^ set(b.columns))
        return DIFFERS, f"other columns ({', '.join(other[:5]) or 'in another order'})"
    if len(a) != len(b):
        return DIFFERS, f"{counted(len(a), 'row')}, {len(b)} redrawn"
    largest = 0.0
    for column in a.columns:
        for row, (x, y) in enumerate(zip(a[column], b[column], strict=True), start=2):
            if x == y:
                continue
            off = relative_difference(x, y)
            if off is None or off > _TOLERANCE:
                return DIFFERS, f"line {row}, {column}: {x[:60]!r}, redrawn {y[:60]!r}"
            largest = max(largest, off)
    return SAME, f"numbers equal but for their last digits (at most {largest:.1e}, relative)"


def relative_difference(x: Any, y: Any) -> float | None:
    """|x - y| over the larger of the two, or None where they are not two numbers."""
    try:
        a, b = float(x), float(y)
    except (TypeError, ValueError):
        return None
    if not (math.isfinite(a) and math.isfinite(b)):
        return None
    return abs(a - b) / max(abs(a), abs(b)) if a != b else 0.0


def _record_difference(there: Path, here: Path) -> tuple[str, str]:
    a, b = read_json(there), read_json(here)
    for place, x, y in differences(a, b):
        # Digests of files follow the files, each of which has its own verdict.
        if "sha256" in place or "/files/" in place:
            continue
        off = relative_difference(x, y) if not isinstance(x, bool) and not isinstance(y, bool) else None
        if off is None or off > _TOLERANCE:
            return DIFFERS, f"{place}: {json.dumps(x)[:60]}, redrawn {json.dumps(y)[:60]}"
    return SAME, "only digests of other files or last digits differ"


def differences(a: Any, b: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where two JSON values differ, as (place, a's value, b's value)."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in dict.fromkeys([*a, *b]):
            yield from differences(a.get(key), b.get(key), f"{place}/{key}")
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            yield from differences(x, y, f"{place}/{i}")
    elif a != b or type(a) is not type(b):
        yield place, a, b


def _report(root: Path, scratch: Path, verdicts: list[Verdict]) -> Verdict:
    """The page holds the figures, so it can only be as identical as they are."""
    name = "report.html"
    if (root / name).read_bytes() == (scratch / name).read_bytes():
        return Verdict(name, IDENTICAL)
    if any(v.verdict == SAME for v in verdicts) and not any(v.verdict == DIFFERS for v in verdicts):
        return Verdict(name, SAME, "holds figures or numbers that are the same but for their bytes")
    return Verdict(name, DIFFERS, "other bytes")


def failed(verdicts: list[Verdict]) -> bool:
    """Whether anything that was shared does not follow from the records."""
    return any(v.verdict == DIFFERS for v in verdicts)


def attempt(root: Path, scratch: Path) -> tuple[list[Verdict], list[str]]:
    """`redraw`, with records that do not make a study as a verdict instead of an exception."""
    try:
        return redraw(root, scratch)
    except BadInput as e:
        lines = below(root, e).splitlines()
        return [Verdict("tables", DIFFERS, f"cannot be made: {line}") for line in lines], []
