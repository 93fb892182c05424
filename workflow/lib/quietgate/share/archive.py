"""Results that somebody sent: a folder or an archive, opened so that nothing in it can do harm.

An archive, a zip or a .tar.xz, is unpacked into a scratch folder of ours after every name, type and size was
looked at; a folder is read where it lies. Whatever is odd is refused with one line.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from quietgate.errors import BadInput
from quietgate.share import tars, zips
from quietgate.share.contents import MAX_DEPTH, MAX_FILE_BYTES, MAX_FILES, Entries, Entry, admitted, refused

# A run's private state, which is neither shared nor checked.
PRIVATE = {".live", ".set-aside", ".snakemake"}

_READ = "a results folder, or a .zip or .tar.xz of one"


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
        listed = _listed(path)
        top = _top(path, (entry.name for entry in listed))
        _unpack(path, listed, scratch)
        with said_of(path, scratch):
            yield scratch / top


def look(path: Path) -> None:
    """BadInput where `opened` would refuse the results at `path` before it writes anything.

    A zip lists what it holds. A .tar.xz does not: it is unpacked once from end to end, and nothing is kept.
    """
    path = Path(path)
    _top(path, files(path) if _is_folder(path) else (entry.name for entry in _listed(path)))


def _is_folder(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as e:
        reason = e.strerror if isinstance(e, OSError) else e
        raise BadInput(f"{shown(path)}: {reason or e}; name {_READ}") from None
    if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        raise BadInput(f"{shown(path)}: neither a folder nor a file; name {_READ}")
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


def _listed(path: Path) -> list[Entry]:
    """Every entry of the archive at `path`, as it was admitted."""
    with _entries(path) as found:
        return admitted(entry for entry, _ in found)


@contextlib.contextmanager
def _entries(path: Path) -> Iterator[Entries]:
    """The entries of the archive at `path`, its form told by its first bytes; errors are said of `path`."""
    try:
        with path.open("rb") as file:
            start = file.read(len(tars.MAGIC))
        if not start.startswith((tars.MAGIC, zips.MAGIC)):
            raise BadInput(f"neither a zip nor a .tar.xz; name {_READ}")
        form = tars if start == tars.MAGIC else zips
        with contextlib.closing(form.entries(path)) as found:
            yield found
    except BadInput as e:
        raise BadInput(f"{shown(path)}: {shown(e)}") from None
    except OSError as e:
        raise BadInput(f"{shown(path)}: {e.strerror or e}") from None


def _unpack(path: Path, listed: list[Entry], target: Path) -> None:
    """Write the files of the archive at `path` into `target`: what was listed before, and nothing else."""
    with _entries(path) as found:
        expected = iter(listed)
        for entry, data in found:
            if entry != next(expected, None):
                raise BadInput("changed while it was read; refused")
            if not entry.is_folder:
                _write(entry, data, target / entry.name)
        if next(expected, None):
            raise BadInput("changed while it was read; refused")


def _write(entry: Entry, data: Iterator[bytes], place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    size = 0
    with place.open("xb") as out:
        for chunk in data:
            size += len(chunk)
            # A header may lie about the size.
            if size > entry.size:
                raise refused(entry, "larger than it says")
            out.write(chunk)
