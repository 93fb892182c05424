"""Results that somebody sent: a folder or a zip, opened so that nothing in it can do harm.

A zip is unpacked into a scratch folder of ours after every name, type and size was looked at; a folder
is read where it lies. Whatever is odd is refused with one line.
"""

from __future__ import annotations

import contextlib
import lzma
import os
import re
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

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
# A run's private state, which is neither shared nor checked.
PRIVATE = {".live", ".set-aside", ".snakemake"}

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+@=-]*")
_CHUNK = 2**20


@contextlib.contextmanager
def opened(path: Path, scratch: Path | None = None) -> Iterator[Path]:
    """The folder that holds study.json of the results at `path`; BadInput where they are not safe to read.

    Args:
        path: a results folder, or an archive as `share` writes it.
        scratch: where to unpack an archive (default: a temporary folder, removed afterwards).
    """
    path = Path(path)
    if _is_folder(path):
        yield path / _top(path, files(path))
        return
    with contextlib.ExitStack() as stack:
        if scratch is None:
            made = stack.enter_context(tempfile.TemporaryDirectory(prefix="quietgate-"))
            scratch = Path(made)
        with _zip(path) as archive:
            top = _look_at(path, archive.infolist())
            _unpack(path, archive, scratch)
        with said_of(path, scratch):
            yield scratch / top


def look(path: Path) -> None:
    """BadInput where `opened` would refuse the results at `path` before it unpacks anything."""
    path = Path(path)
    if _is_folder(path):
        _top(path, files(path))
        return
    with _zip(path) as archive:
        _look_at(path, archive.infolist())


def _is_folder(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as e:
        reason = e.strerror if isinstance(e, OSError) else e
        raise BadInput(f"{shown(path)}: {reason or e}; name a results folder or a zip of one") from None
    if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        raise BadInput(f"{shown(path)}: neither a folder nor a zip file")
    return stat.S_ISDIR(mode)


@contextlib.contextmanager
def said_of(path: Path, folder: Path) -> Iterator[None]:
    """Bad input in `folder`, a scratch one of ours, is said of `path`, which a person knows."""
    try:
        yield
    except BadInput as e:
        raise BadInput(str(e).replace(shown(folder), shown(path))) from None


def below(root: Path, text: object) -> str:
    """A message with the files in `root` named by their path below it, as all that is said of results."""
    # A relative root such as `.` or `a` may also be the end of another path in the message.
    return re.sub(rf"(?<![\w./-]){re.escape(shown(root))}/", "", str(text))


def shown(text: object) -> str:
    """Somebody else's name as one line that a terminal cannot be steered with."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in str(text))


def files(root: Path) -> Iterator[str]:
    """Every file below `root`, as a sorted path with slashes; BadInput on links, devices, odd names.

    Hidden private folders of a run are passed over.
    """
    found: list[str] = []
    _walk(root, "", found)
    yield from sorted(found)


def _walk(root: Path, below: str, found: list[str]) -> None:
    if below.count("/") > MAX_DEPTH:
        raise BadInput(f"{shown(root / below)}: folders nested more than {MAX_DEPTH} deep")
    with os.scandir(root / below) as entries:
        for entry in entries:
            if entry.name in PRIVATE:
                continue
            place = f"{below}{entry.name}"
            if entry.is_symlink():
                raise BadInput(f"{shown(root / place)}: a link; results hold files only")
            if entry.is_dir(follow_symlinks=False):
                _walk(root, f"{place}/", found)
            elif not entry.is_file(follow_symlinks=False):
                raise BadInput(f"{shown(root / place)}: neither a file nor a folder")
            else:
                if entry.stat(follow_symlinks=False).st_size > MAX_FILE_BYTES:
                    raise BadInput(f"{shown(root / place)}: larger than {MAX_FILE_BYTES >> 30} GiB")
                found.append(place)
                if len(found) > MAX_FILES:
                    raise BadInput(f"{shown(root)}: more than {MAX_FILES} files")


def _top(path: Path, names: Iterable[str]) -> str:
    """Where study.json is among the files: "" or the only folder that has one."""
    tops = {n.removesuffix("study.json") for n in names if re.fullmatch(r"([^/]+/)?study\.json", n)}
    if "" in tops or len(tops) == 1:
        return "" if "" in tops else tops.pop()
    what = f"{len(tops)} studies" if tops else "no study.json"
    raise BadInput(f"{shown(path)}: {what} in it; name the folder or the archive of one study")


@contextlib.contextmanager
def _zip(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (
        zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error,
        EOFError, NotImplementedError, RuntimeError, ValueError,
    ) as e:  # fmt: skip
        raise BadInput(f"{shown(path)}: not a whole zip file ({shown(e)}); fetch it again") from None
    except OSError as e:
        raise BadInput(f"{shown(path)}: {e.strerror or e}") from None


def _unpack(path: Path, archive: zipfile.ZipFile, target: Path) -> None:
    left = MAX_TOTAL_BYTES
    for entry in archive.infolist():
        if not entry.is_dir():
            left -= _unpack_one(path, archive, entry, target)
            if left < 0:
                raise _too_big(path)


def _too_big(path: Path) -> BadInput:
    return BadInput(f"{shown(path)}: unpacks to more than {MAX_TOTAL_BYTES >> 30} GiB; refused")


def _look_at(path: Path, entries: list[zipfile.ZipInfo]) -> str:
    """Refuse an archive by its list of contents, before a byte is unpacked; else where its study.json is."""
    if len(entries) > MAX_FILES:
        raise BadInput(f"{shown(path)}: more than {MAX_FILES} files; refused")
    if sum(e.file_size for e in entries) > MAX_TOTAL_BYTES:
        raise _too_big(path)
    seen: set[str] = set()
    for entry in entries:
        why = _odd(entry)
        name = PurePosixPath(entry.filename).as_posix().casefold()
        if why is None and name in seen:
            why = "there twice"
        if why:
            raise BadInput(f"{shown(path)}: {shown(entry.orig_filename)[:120]!r}: {why}; refused")
        seen.add(name)
    parents = {p.as_posix().casefold() for e in entries for p in PurePosixPath(e.filename).parents}
    for entry in entries:
        if not entry.is_dir() and entry.filename.casefold() in parents:
            raise BadInput(f"{shown(path)}: {entry.filename!r}: a file and a folder; refused")
    return _top(path, (entry.filename for entry in entries))


def _odd(entry: zipfile.ZipInfo) -> str | None:
    """Why an entry of a zip does not belong into results, or None."""
    # What the archive says, not what zipfile made of it: it cuts names at NUL and turns backslashes.
    name = entry.orig_filename
    parts = name.removesuffix("/").split("/")
    if name.startswith("/") or "\\" in name or re.match(r"[A-Za-z]:", name):
        return "an absolute path or one of another system"
    if any(part in ("", ".", "..") for part in parts):
        return "a path that leads elsewhere"
    if len(parts) > MAX_DEPTH or any(len(p) > MAX_NAME or not _NAME.fullmatch(p) for p in parts):
        return "an odd name"
    mode = entry.external_attr >> 16
    if mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "a link or a device"
    if entry.flag_bits & 0x1:
        return "encrypted"
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA):
        return "compressed in a way that results are not"
    if entry.is_dir():
        return None
    if PurePosixPath(name).suffix not in EXTENSIONS and parts[-1] not in PLAIN_NAMES:
        return "a type of file that results do not hold"
    if entry.file_size > MAX_FILE_BYTES:
        return f"larger than {MAX_FILE_BYTES >> 30} GiB"
    if entry.file_size > SMALL_BYTES and entry.file_size > MAX_RATIO * max(entry.compress_size, 1):
        return f"grows more than {MAX_RATIO}-fold when unpacked"
    return None


def _unpack_one(path: Path, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, target: Path) -> int:
    place = target / entry.filename
    place.parent.mkdir(parents=True, exist_ok=True)
    size = 0
    with archive.open(entry) as source, place.open("xb") as out:
        while chunk := source.read(_CHUNK):
            size += len(chunk)
            # A header may lie about the size.
            if size > entry.file_size:
                raise BadInput(f"{shown(path)}: {entry.filename!r}: larger than it says; refused")
            out.write(chunk)
    return size
