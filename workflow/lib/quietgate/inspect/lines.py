"""Text files as blocks of whole lines: any size in flat memory, plain or gzip, junk refused in one line."""

from __future__ import annotations

import gzip
import itertools
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import IO

from quietgate.errors import BadInput

BLOCK_BYTES = 256 << 10
# A "line" longer than this is no log line; it is cut so that memory stays flat.
LONGEST_LINE = 4 << 20

_ANSI = re.compile(rb"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
# What a file that is no text begins with.
MAGICS = (
    (b"PK\x03\x04", "a zip archive"),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed"),
    (b"\xfd7zXZ", "xz-compressed"),
    (b"BZh", "bzip2-compressed"),
    (b"\x7fELF", "a program"),
    (b"\x89PNG", "a picture"),
    (b"%PDF", "a PDF"),
    (b"SQLite format", "a database"),
)


@dataclass
class Block:
    """Whole lines of a file, without colour codes.

    Attributes:
        first: number of the first line in the file, from 1.
        text: the lines, with a line end before the first and after each; what a carriage return separates
            stands as lines of its own.
        numbers: number of each line where carriage returns split some, else None (consecutive).
        cut: the last line has no line end in the file.
    """

    first: int
    text: bytes
    numbers: list[int] | None = None
    cut: bool = False

    @cached_property
    def count(self) -> int:
        """How many lines, which a reader that knows it may tell."""
        return len(self.lines) if "lines" in vars(self) else self.text.count(b"\n") - 1

    @cached_property
    def lines(self) -> list[bytes]:
        """The lines, without their line ends."""
        return self.text[1:-1].split(b"\n")

    @classmethod
    def of(cls, lines: Iterable[bytes], first: int = 1, numbers: list[int] | None = None) -> Block:
        """A block of these lines."""
        return cls(first, b"\n%b\n" % b"\n".join(lines), numbers)

    def number(self, index: int) -> int:
        """The file's line number of line `index` of the block, counted from 0."""
        return self.first + index if self.numbers is None else self.numbers[index]


def blocks(path: Path, what: str = "log", tolerant: bool = False) -> Iterator[Block]:
    """The lines of a file in blocks, colour codes removed.

    Args:
        path: a text file, plain or gzip (told by its first bytes, not its name).
        what: what the user was asked for, for the message.
        tolerant: take what can be read and end quietly (a dead server's own log), instead of BadInput.
    """
    try:
        yield from _of_chunks(_chunks(Path(path), what))
    except BadInput:
        if not tolerant:
            raise


def blocks_of_text(text: str | bytes) -> Iterator[Block]:
    """The same for text already in memory."""
    data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    yield from _of_chunks(data[i : i + BLOCK_BYTES] for i in range(0, len(data), BLOCK_BYTES))


def beginning(path: Path) -> bytes:
    """The first piece of a text file, plain or gzip; empty where it cannot be read, or read only once."""
    try:
        return next(_chunks(Path(path), "file"), b"") if Path(path).is_file() else b""
    except BadInput:
        return b""


def read_text(path: Path, what: str) -> str:
    """A whole small file as text (BOM and colours dropped, bad bytes replaced); BadInput on junk."""
    data = _ANSI.sub(b"", b"".join(_chunks(Path(path), what)))
    return data.decode("utf-8", "replace").removeprefix("\ufeff")


def _of_chunks(chunks: Iterable[bytes]) -> Iterator[Block]:
    carry, first = b"", 1
    for chunk in chunks:
        end = chunk.rfind(b"\n")
        if end >= 0:
            text = b"".join((b"\n", carry, memoryview(chunk)[: end + 1]))
            carry = chunk[end + 1 :]
            block = _block(text, first)
            yield block
            # A carriage return makes no line of its own.
            first += block.count if block.numbers is None else text.count(b"\n") - 1
        elif len(carry) + len(chunk) < LONGEST_LINE:
            carry += chunk
        else:
            yield _block(b"\n%b%b\n" % (carry, chunk), first, cut=True)
            carry = b""
    if carry := _ANSI.sub(b"", carry):
        yield _block(b"\n%b\n" % carry, first, cut=True)


def _block(text: bytes, first: int, *, cut: bool = False) -> Block:
    if b"\x1b" in text:
        text = _ANSI.sub(b"", text)
    if b"\r" in text:
        text = text.replace(b"\r\n", b"\n")
    if b"\r" not in text:
        return Block(first, text, cut=cut)
    # A progress bar rewrites its line; a log line may stand behind the last rewriting.
    lines = [line.split(b"\r") for line in Block(first, text).lines]
    numbers = [first + i for i, pieces in enumerate(lines) for _ in pieces]
    return replace(Block.of(itertools.chain(*lines), first, numbers), cut=cut)


def _chunks(path: Path, what: str) -> Iterator[bytes]:
    if path.is_dir():
        raise BadInput(f"{path}: a folder; name the {what} file itself")
    try:
        with path.open("rb") as f:
            head = f.read(BLOCK_BYTES)
            if not head:
                raise BadInput(f"{path}: empty; no {what} to read")
            f.seek(0) if f.seekable() else None
            if head[:2] == b"\x1f\x8b":
                yield from _gunzipped(path, f, what)
                return
            _refuse_junk(path, head, what)
            if not f.seekable():
                yield head
            while chunk := f.read(BLOCK_BYTES):
                yield chunk
    except OSError as e:
        raise BadInput(f"{path}: cannot be read ({e.strerror or e})") from None


def _gunzipped(path: Path, f: IO[bytes], what: str) -> Iterator[bytes]:
    first = True
    try:
        with gzip.GzipFile(fileobj=f) as z:
            while chunk := z.read(BLOCK_BYTES):
                if first:
                    _refuse_junk(path, chunk, what)
                first = False
                yield chunk
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise BadInput(f"{path}: cut or damaged gzip file; copy the {what} again") from None
    if first:
        raise BadInput(f"{path}: empty inside its gzip wrapper; no {what} to read")


def _refuse_junk(path: Path, head: bytes, what: str) -> None:
    for magic, name in MAGICS:
        if head.startswith(magic):
            raise BadInput(f"{path}: {name}, not a text {what}; unpack or name the {what} itself")
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise BadInput(f"{path}: UTF-16 text; convert it to UTF-8 first (iconv -f UTF-16 -t UTF-8)")
    # A log that a crash left with some NULs is still a log; a binary file is full of control bytes.
    sample = head[:65536]
    control = len(sample) - len(sample.translate(None, bytes([*range(9), *range(14, 27), 28, 29, 30, 31])))
    if control > 0.02 * len(sample) or (control and len(sample) < 64):
        raise BadInput(f"{path}: binary, not a text {what}")
    if sample.count(b"\xff") + sample.count(b"\xfe") > 0.02 * len(sample):
        raise BadInput(f"{path}: binary, not a text {what}")
