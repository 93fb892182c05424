"""Zip archives: what they list, and the bytes of each file."""

from __future__ import annotations

import contextlib
import lzma
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from quietgate.errors import BadInput
from quietgate.share.contents import Entries, Entry, grows

MAGIC = b"PK"
_CHUNK = 2**20
# LZMA: archives made with --tight before those were .tar.xz.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA)


def entries(path: Path) -> Entries:
    """Every entry of the zip at `path`, from its directory; nothing is unpacked for an entry passed over."""
    with _whole(), zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            yield _entry(info), _bytes(archive, info)


@contextlib.contextmanager
def _whole() -> Iterator[None]:
    try:
        yield
    except (
        zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error,
        EOFError, NotImplementedError, RuntimeError, ValueError,
    ) as e:  # fmt: skip
        raise BadInput(f"not a whole zip file ({e}); fetch it again") from None


def _bytes(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[bytes]:
    with _whole(), archive.open(info) as source:
        while chunk := source.read(_CHUNK):
            yield chunk


def _entry(info: zipfile.ZipInfo) -> Entry:
    # What the archive says, not what zipfile made of it: it cuts names at NUL and turns backslashes.
    return Entry(info.orig_filename, info.is_dir(), info.file_size, _odd(info))


def _odd(info: zipfile.ZipInfo) -> str | None:
    mode = info.external_attr >> 16
    if mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "a link or a device"
    if info.flag_bits & 0x1:
        return "encrypted"
    if info.compress_type not in _METHODS:
        return "compressed in a way that results are not"
    return None if info.is_dir() else grows(info.file_size, info.compress_size)
