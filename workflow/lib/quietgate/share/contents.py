"""What an archive of results may hold: the rules for every entry, whatever the archive's form.

The forms (`zips`, `tars`) say what an archive claims to hold; nothing of it is believed before it passed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from quietgate.errors import BadInput

# What a study of some hundred cells stays far below.
MAX_FILES = 100_000
MAX_FILE_BYTES = 2 * 2**30
MAX_TOTAL_BYTES = 16 * 2**30
# Logs of one repeated line shrink to a hundredth; what shrinks further was made to.
MAX_RATIO = 250
# Below this size a high ratio does no harm.
SMALL_BYTES = 4 * 2**20
MAX_DEPTH = 12
MAX_NAME = 200

# Names without an extension that belong to an archive.
PLAIN_NAMES = {"SHA256SUMS", "Snakefile", "LICENSE"}
EXTENSIONS = {
    ".json", ".jsonl", ".gz", ".csv", ".txt", ".log", ".pdf", ".svg", ".png",
    ".html", ".md", ".yaml", ".patch",
}  # fmt: skip

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+@=-]*")


@dataclass(frozen=True)
class Entry:
    """A file or folder as an archive lists it.

    Attributes:
        name: as the archive says it, not as a library made it readable; also where it is written.
        size: of the unpacked file, as the archive says.
        odd: what only this form of archive can be refused for, or None.
    """

    name: str
    is_folder: bool
    size: int
    odd: str | None = None


# An entry, and its bytes for whoever wants them before the next entry is asked for.
Entries = Iterator[tuple[Entry, Iterator[bytes]]]


def admitted(entries: Iterable[Entry]) -> list[Entry]:
    """The entries, each looked at before the next is asked for; BadInput at the first that is refused."""
    found: list[Entry] = []
    seen: set[str] = set()
    total = 0
    for entry in entries:
        total += entry.size
        if len(found) == MAX_FILES:
            raise BadInput(f"more than {MAX_FILES} files; refused")
        name = PurePosixPath(entry.name).as_posix().casefold()
        why = _odd(entry) or ("there twice" if name in seen else None)
        if why:
            raise refused(entry, why)
        if total > MAX_TOTAL_BYTES:
            raise too_big()
        seen.add(name)
        found.append(entry)
    parents = {p.as_posix().casefold() for e in found for p in PurePosixPath(e.name).parents}
    for entry in found:
        if not entry.is_folder and entry.name.casefold() in parents:
            raise refused(entry, "a file and a folder")
    return found


def refused(entry: Entry, why: str) -> BadInput:
    """The error that refuses an archive for one of its entries."""
    return BadInput(f"{entry.name[:120]!r}: {why}; refused")


def too_big() -> BadInput:
    """The error that refuses an archive for all that it unpacks to."""
    return BadInput(f"unpacks to more than {MAX_TOTAL_BYTES >> 30} GiB; refused")


def grows(size: int, packed: int) -> str | None:
    """Why `size` bytes are not unpacked from `packed` ones, or None."""
    if size > SMALL_BYTES and size > MAX_RATIO * max(packed, 1):
        return f"grows more than {MAX_RATIO}-fold when unpacked"
    return None


def _odd(entry: Entry) -> str | None:
    """Why an entry does not belong into results, or None."""
    if entry.odd:
        return entry.odd
    name = entry.name
    parts = (name.removesuffix("/") if entry.is_folder else name).split("/")
    if name.startswith("/") or "\\" in name or re.match(r"[A-Za-z]:", name):
        return "an absolute path or one of another system"
    if any(part in ("", ".", "..") for part in parts):
        return "a path that leads elsewhere"
    if len(parts) > MAX_DEPTH or any(len(p) > MAX_NAME or not _NAME.fullmatch(p) for p in parts):
        return "an odd name"
    if entry.is_folder:
        return None
    if PurePosixPath(name).suffix not in EXTENSIONS and parts[-1] not in PLAIN_NAMES:
        return "a type of file that results do not hold"
    if entry.size > MAX_FILE_BYTES:
        return f"larger than {MAX_FILE_BYTES >> 30} GiB"
    return None
