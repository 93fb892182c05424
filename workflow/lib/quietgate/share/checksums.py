"""SHA256SUMS: what every file of a study's results held when they were finished.

The format is that of `sha256sum`, so that anybody can check it without this code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from quietgate.errors import BadInput
from quietgate.files import sha256, write_atomic
from quietgate.share.archive import files, shown

NAME = "SHA256SUMS"

_LINE = re.compile(r"([0-9a-f]{64})  ([^\x00-\x1f\x7f]+)")


def write(root: Path, names: Iterable[str]) -> None:
    """Write SHA256SUMS in `root` over the files named (paths below `root`)."""
    lines = [f"{sha256(root / name)}  {name}\n" for name in sorted(names) if name != NAME]
    write_atomic(root / NAME, "".join(lines))


def read(root: Path) -> dict[str, str] | None:
    """Path -> SHA-256 as listed in `root`, or None where there is no list; BadInput if it is damaged."""
    path = root / NAME
    if not path.is_file():
        return None
    listed: dict[str, str] = {}
    try:
        text = path.read_bytes().decode()
    except (OSError, ValueError) as e:
        raise BadInput(f"{shown(path)}: not readable ({shown(e)})") from None
    if not text.endswith("\n"):
        raise BadInput(f"{shown(path)}: cut off at its end")
    for number, line in enumerate(text[:-1].split("\n"), start=1):
        found = _LINE.fullmatch(line)
        if not found or found[2] in listed:
            raise BadInput(f"{shown(path)}:{number}: not a line of sha256sum")
        listed[found[2]] = found[1]
    if list(listed) != sorted(listed):
        raise BadInput(f"{shown(path)}: its lines are not in order")
    return listed


def problems(root: Path) -> tuple[list[str], list[str]]:
    """What differs from SHA256SUMS: changed and missing files, and files it does not list.

    Both lists are empty where there is no SHA256SUMS.
    """
    listed = read(root)
    if listed is None:
        return [], []
    present = set(files(root)) - {NAME}
    changed = [f"{name}: missing, but listed in {NAME}" for name in listed if name not in present]
    for name in sorted(present & set(listed)):
        if sha256(root / name) != listed[name]:
            changed.append(f"{name}: its bytes are not the ones listed in {NAME}")
    extra = [f"{name}: not listed in {NAME}" for name in sorted(present - set(listed))]
    return [shown(line) for line in changed], [shown(line) for line in extra]
