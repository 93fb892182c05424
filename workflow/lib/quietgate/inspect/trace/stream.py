"""Trace files read in blocks: gzip or plain, any size, never the whole document at once.

A torch profiler trace is one JSON object with a `traceEvents` array of up to millions of events.
The array is cut between two events every few megabytes and each piece decoded into typed events
that hold only the fields used here, so memory stays at one block and the speed at that of the
decoder. A cut in the wrong place cannot go unseen: the piece would not parse, and the cut moves.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec

from quietgate.errors import BadInput
from quietgate.inspect.lines import MAGICS

READ_BYTES = 1 << 18
BLOCK_BYTES = 1 << 23
HEADER_BYTES = 1 << 26
GZIP_MAGIC = b"\x1f\x8b"

# Kineto prints infinities and NaNs of its derived numbers bare, which is not JSON.
_NOT_A_NUMBER = re.compile(rb"(?<=[:\[,\s])-?(?:nan|inf|infinity)(?=\s*[,}\]])", re.IGNORECASE)
_TRAILING = re.compile(r"trailing characters \(byte (\d+)\)")
_CUTS_TRIED = 32
# Every byte beyond ASCII becomes a question mark: a damaged name is still a name.
_ASCII = bytes(b if b < 128 else 63 for b in range(256))


# Ids are kept in arrays of 64-bit integers; no larger one is the profiler's.
_LEAST, _MOST = -(2**63), 2**63 - 1
_Id = Annotated[int, msgspec.Meta(ge=_LEAST, le=_MOST)]


class Event(msgspec.Struct, gc=False):
    """One trace event, without what is never asked; `args` stays raw until it is."""

    name: str = ""
    cat: str = ""
    ts: float = 0.0
    dur: float = 0.0
    pid: int | str = 0
    tid: _Id | str = 0
    args: msgspec.Raw = msgspec.Raw()


class Args(msgspec.Struct, gc=False):
    """The arguments of an event that are used."""

    correlation: _Id = -1
    stream: _Id = -1
    external: int | None = msgspec.field(name="External id", default=None)
    grid: list[int] | None = None
    block: list[int] | None = None


_events = msgspec.json.Decoder(list[Event])
_args = msgspec.json.Decoder(Args)
_lenient = msgspec.json.Decoder()


def args_of(event: Event) -> Args:
    """An event's arguments; those of another type than expected are left at their defaults."""
    if not event.args:
        return Args()
    try:
        return _args.decode(event.args)
    except msgspec.ValidationError:
        return _coerced_args(_lenient.decode(event.args))


def _coerced_args(found: Any) -> Args:
    args = Args()
    if not isinstance(found, dict):
        return args
    for field, key in (
        ("correlation", "correlation"),
        ("stream", "stream"),
        ("external", "External id"),
    ):
        value = found.get(key)
        if isinstance(value, str) and value.lstrip("-").isdigit():
            value = int(value)
        if isinstance(value, int) and _LEAST <= value <= _MOST:
            setattr(args, field, value)
    for field in ("grid", "block"):
        value = found.get(field)
        if isinstance(value, list) and all(isinstance(v, int) for v in value):
            setattr(args, field, value)
    return args


class TraceFile:
    """One trace file. Iterate `blocks()` once; `meta` is complete when it is exhausted."""

    def __init__(self, path: Path):
        self.path = Path(path)
        self.meta: dict[str, Any] = {}
        self.json_bytes = 0

    def blocks(self) -> Iterator[list[Event]]:
        """The events, a few megabytes of JSON at a time; BadInput for a cut or damaged file."""
        chunks = self.chunks()
        data, in_array = self._header(chunks)
        if not in_array:
            return
        pieces, size = [data], len(data)
        for chunk in chunks:
            pieces.append(chunk)
            size += len(chunk)
            if size < BLOCK_BYTES:
                continue
            data = b"".join(pieces)
            events, data, ended = self._split(data)
            if events is not None:
                yield events
            if ended:
                pieces = [data, *chunks]
                self._tail(b"".join(pieces))
                return
            pieces, size = [data], len(data) if events is not None else 0
        yield self._rest(b"".join(pieces))

    def _bad(self, what: str) -> BadInput:
        return BadInput(f"{self.path}: {what}")

    def chunks(self) -> Iterator[bytes]:
        """The file's JSON text in pieces, uncompressed; BadInput where it is cut or damaged."""
        try:
            with self.path.open("rb") as f:
                first = f.read(READ_BYTES)
                if not first:
                    raise self._bad("is empty; the profiler wrote nothing")
                plain = not first.startswith(GZIP_MAGIC)
                yield from self._counted(iter_plain(first, f) if plain else iter_gzip(first, f))
        except OSError as e:
            raise self._bad(e.strerror or str(e)) from None
        except EOFError:
            raise self._bad(
                f"gzip data cut short after {self.json_bytes / 1e6:.1f} MB of JSON; copy it again"
            ) from None
        except zlib.error as e:
            raise self._bad(f"gzip data damaged after {self.json_bytes / 1e6:.1f} MB of JSON ({e})") from None

    def _counted(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self.json_bytes += len(chunk)
            yield chunk

    def _header(self, chunks: Iterator[bytes]) -> tuple[bytes, bool]:
        """What follows the opening of the event array; the keys before it go to `meta`."""
        data = b""
        for chunk in chunks:
            data += chunk
            if data.lstrip()[:1] == b"[":  # the bare-array form of the trace format
                return data[data.index(b"[") + 1 :], True
            key = data.find(b'"traceEvents"')
            start = data.find(b"[", key) if key >= 0 else -1
            if start >= 0:
                self._meta(data[:start] + b"[]}")
                return data[start + 1 :], True
            if len(data) > HEADER_BYTES:
                raise self._bad('no "traceEvents" near its start; is it a torch profiler trace?')
        try:
            found = _lenient.decode(data)
        except msgspec.DecodeError as e:
            for magic, kind in MAGICS:
                if data.startswith(magic):
                    raise self._bad(f"{kind}, not a trace as JSON or gzip; unpack it first") from None
            raise self._bad(f"not a trace: JSON expected ({e})") from None
        if not isinstance(found, dict):
            raise self._bad('not a trace: no "traceEvents" in it')
        self.meta.update(found)
        return b"", False

    def _meta(self, text: bytes) -> None:
        try:
            found = _lenient.decode(_NOT_A_NUMBER.sub(b"null", text))
        except msgspec.DecodeError:
            return  # a header that does not parse costs its rank and device names, not the events
        if isinstance(found, dict):
            found.pop("traceEvents", None)
            self.meta.update(found)

    def _split(self, data: bytes) -> tuple[list[Event] | None, bytes, bool]:
        """Decode up to the last event that surely ends in `data`.

        Returns the events (None where no cut was found yet), what is left, and whether the array
        has ended.
        """
        cut = len(data)
        for _ in range(_CUTS_TRIED):
            cut = data.rfind(b"},", 0, cut)
            if cut < 0:
                break
            if data[cut + 2 : cut + 66].lstrip()[:1] != b"{":
                continue
            piece = b"[" + data[: cut + 1] + b"]"
            try:
                return decode(piece), data[cut + 2 :], False
            except msgspec.DecodeError as e:
                ended = _TRAILING.search(str(e))
                if ended:
                    end = int(ended.group(1)) - 1
                    return decode(piece[:end]), data[end - 1 :], True
        if len(data) > 8 * BLOCK_BYTES:
            raise self._bad(f"malformed JSON before {self.json_bytes / 1e6:.1f} MB")
        return None, data, False

    def _rest(self, data: bytes) -> list[Event]:
        piece = b"[" + data
        try:
            return decode(piece)
        except msgspec.DecodeError as e:
            ended = _TRAILING.search(str(e))
            if ended:
                end = int(ended.group(1)) - 1
                self._tail(piece[end:])
                try:
                    return decode(piece[:end])
                except msgspec.DecodeError as again:
                    e = again
            truncated = "truncated" in str(e)
            what = "JSON cut short" if truncated else f"malformed JSON ({e})"
            raise self._bad(f"{what} near {self.json_bytes / 1e6:.1f} MB; copy it again") from None

    def _tail(self, text: bytes) -> None:
        rest = text.strip().removeprefix(b",")
        if rest.strip():
            self._meta(b"{" + rest)


def decode(piece: bytes) -> list[Event]:
    """Typed events of a JSON array; tolerant of bare NaNs, bad UTF-8 and odd types.

    What is mended keeps its length: the places that errors name must hold for the original too.
    """
    try:
        return _events.decode(piece)
    except msgspec.ValidationError:
        return _coerced_events(piece)
    except msgspec.DecodeError as e:
        if "UTF-8" in str(e):
            piece = piece.translate(_ASCII)
        elif "invalid character" not in str(e) or not _NOT_A_NUMBER.search(piece):
            raise
        mended = _NOT_A_NUMBER.sub(lambda found: b"0".ljust(len(found[0])), piece)
    try:
        return _events.decode(mended)
    except msgspec.ValidationError:
        return _coerced_events(mended)


def _coerced_events(piece: bytes) -> list[Event]:
    """Events one by one: numbers in quotes are read, what is no event is left out."""
    found: list[Event] = []
    for raw in msgspec.json.decode(piece, type=list[msgspec.Raw]):
        try:
            event = msgspec.json.decode(raw, type=Event, strict=False)
        except msgspec.ValidationError:
            continue
        if math.isfinite(event.ts) and math.isfinite(event.dur):  # "nan" in quotes is a number too
            found.append(event)
    return found


def iter_plain(first: bytes, f: Any) -> Iterator[bytes]:
    """The chunks of an uncompressed file."""
    chunk = first
    while chunk:
        yield chunk
        chunk = f.read(READ_BYTES)


def iter_gzip(first: bytes, f: Any) -> Iterator[bytes]:
    """The uncompressed chunks of a gzip file of one or more members; EOFError where it is cut.

    zlib checks length and CRC of each member at its end.
    """
    inflate = zlib.decompressobj(wbits=31)
    chunk = first
    while chunk:
        data = inflate.decompress(chunk)
        if data:
            yield data
        if inflate.eof:
            chunk = inflate.unused_data.lstrip(b"\0") or f.read(READ_BYTES).lstrip(b"\0")
            if not chunk:
                return
            inflate = zlib.decompressobj(wbits=31)
            continue
        chunk = f.read(READ_BYTES)
    raise EOFError
