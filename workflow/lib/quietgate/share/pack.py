"""The files of a folder as one archive: one order, time and mode; the same files give the same bytes."""

from __future__ import annotations

import lzma
import shutil
import tarfile
import zipfile
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from quietgate.errors import BadInput
from quietgate.share.archive import files, look, shown

_CHUNK = 2**20
# These do not get smaller.
_STORED = {".gz", ".png", ".pdf"}
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}]


def pack(root: Path, path: Path, date: str, tight: bool = False) -> None:
    """Write every file below `root` into the archive `path`; BadInput where a reader would refuse it.

    Args:
        date: YYYY-MM-DD, the time of every entry.
        tight: a .tar.xz, which makes use of what the files have in common, instead of a zip.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    time = datetime.fromisoformat(date).replace(tzinfo=UTC)
    try:
        (_tar if tight else _zip)(root, temporary, time)
        _look(temporary, path)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _zip(root: Path, path: Path, time: datetime) -> None:
    with zipfile.ZipFile(path, "w") as out:
        for name in _reading_order(files(root)):
            entry = zipfile.ZipInfo(name, (max(time.year, 1980), time.month, time.day, 0, 0, 0))
            entry.create_system = 3
            entry.external_attr = 0o100644 << 16
            stored = Path(name).suffix in _STORED
            entry.compress_type = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
            entry.file_size = (root / name).stat().st_size
            with (root / name).open("rb") as source, out.open(entry, "w") as file:
                shutil.copyfileobj(source, file, _CHUNK)


def _tar(root: Path, path: Path, time: datetime) -> None:
    with lzma.open(path, "wb", filters=_FILTERS) as out, tarfile.open(fileobj=out, mode="w") as tar:
        for name in _reading_order(files(root)):
            entry = tarfile.TarInfo(name)
            entry.size = (root / name).stat().st_size
            entry.mtime = int(time.timestamp())
            tar.format = _format(entry)
            with (root / name).open("rb") as source:
                tar.addfile(entry, source)


def _format(entry: tarfile.TarInfo) -> Literal[0, 2]:
    """USTAR, which every program reads, but for a name that it has no room for."""
    try:
        entry.tobuf(tarfile.USTAR_FORMAT)
    except ValueError:
        return tarfile.PAX_FORMAT
    return tarfile.USTAR_FORMAT


def _look(temporary: Path, path: Path) -> None:
    """Refuse to share what nobody could read: logs of one repeated line may shrink too far to be trusted."""
    try:
        look(temporary)
    except BadInput as e:
        said = str(e).replace(shown(temporary), shown(path))
        raise BadInput(f"{said} by whoever reads it (--small leaves logs out)") from None


def _reading_order(names: Iterable[str]) -> list[str]:
    """What a person opens first comes first."""
    first = ("REVIEWERS.md", "study.json", "report.html")
    return sorted(names, key=lambda n: (first.index(n) if n in first else len(first), n))
