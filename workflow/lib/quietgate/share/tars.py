"""Solid archives (.tar.xz): read in one pass, in flat memory, by a reader that knows as little as it can.

Only plain files and folders are known, and of extended headers only those that give a long name: what is
written elsewhere in a tar (links, sparse maps, sizes a second time, defaults for all entries) is refused, so
that no two programs can disagree about what an archive holds.
"""

from __future__ import annotations

import io
import lzma
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from quietgate.errors import BadInput
from quietgate.share import contents
from quietgate.share.contents import Entries, Entry

MAGIC = b"\xfd7zXZ\0"
# Twice what anything packed with `xz -9` needs (a dictionary of 64 MiB); a header may ask for 4 GiB.
MEMORY_BYTES = 128 * 2**20

_CHUNK = 2**20
_BLOCK = tarfile.BLOCKSIZE
_FILE, _FOLDER, _EXTENDED = (tarfile.REGTYPE, tarfile.AREGTYPE), tarfile.DIRTYPE, tarfile.XHDTYPE
# Longer than any name that is admitted.
_MAX_EXTENDED_BYTES = 16 * 2**10
# What an extended header may hold besides the name: nothing that changes what is unpacked, or how much.
_WITHOUT_EFFECT = {b"mtime", b"atime", b"ctime", b"uid", b"gid", b"uname", b"gname", b"comment"}


def entries(path: Path) -> Entries:
    """Every entry of the .tar.xz at `path`, in its order; the bytes of an entry passed over are unpacked too.

    BadInput where the archive is damaged, cut or followed by something, and where more memory or more growth
    is asked for than results need.
    """
    with path.open("rb") as file:
        yield from _entries(io.BufferedReader(_Unpacked(file), _CHUNK))


def _damaged(why: str) -> BadInput:
    return BadInput(f"not a whole .tar.xz file ({why}); fetch it again")


def _not_unpacked(why: str) -> BadInput:
    if "Memory usage limit" not in why:
        return _damaged(why)
    return BadInput(
        f"takes more than {MEMORY_BYTES >> 20} MiB of memory to unpack, `xz -9` half of it; refused"
    )


class _Unpacked(io.RawIOBase):
    """What an xz file unpacks to, bounded in memory, in all, and by the size of the file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._packed = file.seek(0, io.SEEK_END)
        file.seek(0)
        self._size = 0
        self._xz = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MEMORY_BYTES)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._next(len(buffer))
        buffer[: len(data)] = data
        self._size += len(data)
        if self._size > contents.MAX_TOTAL_BYTES:
            raise contents.too_big()
        if why := contents.grows(self._size, self._packed):
            raise BadInput(f"{why}; refused")
        return len(data)

    def _next(self, most: int) -> bytes:
        while not self._xz.eof:
            packed = self._file.read(_CHUNK) if self._xz.needs_input else b""
            if self._xz.needs_input and not packed:
                raise _damaged("cut short")
            try:
                data = self._xz.decompress(packed, most)
            except lzma.LZMAError as e:
                raise _not_unpacked(str(e)) from None
            if data:
                return data
        if self._xz.unused_data or self._file.read(1):
            raise _damaged("something follows its end")
        return b""


def _entries(tar: io.BufferedReader) -> Entries:
    while any(block := _exactly(tar, _BLOCK)):
        entry = _entry(tar, block)
        data = _bytes(tar, entry.size)
        yield entry, data
        for _ in data:
            pass
        _exactly(tar, -entry.size % _BLOCK)
    while rest := tar.read(_CHUNK):
        if any(rest):
            raise _damaged("something follows the tar's end")


def _exactly(tar: io.BufferedReader, size: int) -> bytes:
    data = tar.read(size)
    if len(data) < size:
        raise _damaged("the tar in it is cut short")
    return data


def _bytes(tar: io.BufferedReader, size: int) -> Iterator[bytes]:
    while size:
        chunk = _exactly(tar, min(size, _CHUNK))
        size -= len(chunk)
        yield chunk


def _entry(tar: io.BufferedReader, block: bytes) -> Entry:
    """The entry whose first header is `block`, with the name of an extended header before its own."""
    kind, size, name = _header(block)
    if kind == _EXTENDED:
        if size > _MAX_EXTENDED_BYTES:
            raise BadInput("a tar header longer than any name; refused")
        long_name = _long_name(_exactly(tar, size))
        _exactly(tar, -size % _BLOCK)
        kind, size, name = _header(_exactly(tar, _BLOCK))
        name = name if long_name is None else long_name
    odd = None
    if kind in (tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE):
        odd = "a link or a device"
    elif kind not in (*_FILE, _FOLDER):
        odd = "a kind of tar entry that results do not hold"
    elif kind == _FOLDER and size:
        odd = "a folder with bytes of its own"
    return Entry(name, kind == _FOLDER, size, odd)


def _header(block: bytes) -> tuple[bytes, int, str]:
    """Type, size in bytes and name, as one header says them."""
    try:
        size = tarfile.TarInfo.frombuf(block, "utf-8", "replace").size
    except tarfile.HeaderError as e:
        raise _damaged(f"no tar in it, or a damaged one: {e}") from None
    if size < 0 or block[257:262] != b"ustar":
        raise _damaged("no tar in it, or a damaged one")
    # Not cut at the first NUL, so that nothing can hide behind one.
    prefix, name = (_text(field.rstrip(b"\0")) for field in (block[345:500], block[:100]))
    return block[156:157], size, f"{prefix}/{name}" if prefix else name


def _long_name(records: bytes) -> str | None:
    """The name that an extended header gives, if any; BadInput where it says what has an effect besides."""
    found: dict[bytes, bytes] = {}
    while records:
        digits = records[:9].partition(b" ")[0]
        length = int(digits) if digits.isdigit() else 0
        record, records = records[:length], records[length:]
        key, equals, value = record[len(digits) + 1 : -1].partition(b"=")
        if not equals or len(record) != length or not record.endswith(b"\n"):
            raise _damaged("a damaged extended header in the tar")
        if key in found or key not in {b"path", *_WITHOUT_EFFECT}:
            raise BadInput(f"{_text(key)[:40]!r} in a tar header, which results do not need; refused")
        found[key] = value
    return _text(found[b"path"]) if b"path" in found else None


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")
