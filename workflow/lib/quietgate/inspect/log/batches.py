"""Batch lines of SGLang 0.3 to 0.5.23 as columns, whatever fields a version writes.

A server writes the same few kinds of line over and over: without its digits every line of a kind is the same
text, its skeleton. The first line of a kind is taken apart field by field, which tells the place of each
value among the line's numbers; all other lines of the kind are then read at once. Lines that are cut are
taken apart one by one. What a line does not have is None, never 0. Values stay as written until somebody
needs them as numbers: most of them repeat.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import overload

from quietgate.inspect.prefixes import of_users, unwrapped

Raw = bytes | None

# Field name as logged -> our name.
DECODE_FIELDS: Mapping[bytes, str] = {
    b"#running-req": "running",
    b"token usage": "usage",
    b"full token usage": "usage",
    b"accept len": "accept_length",
    b"accept rate": "accept_rate",
    b"gen throughput (token/s)": "throughput",
    b"#queue-req": "queue",
}
PREFILL_FIELDS: Mapping[bytes, str] = {
    b"#new-seq": "new_sequences",
    b"#new-token": "new_tokens",
    b"#cached-token": "cached_tokens",
    b"input throughput (token/s)": "throughput",
    b"fwd occupancy": "occupancy_percent",
}
_GRAPH = b" graph"  # "cuda graph", "npu graph", "cpu graph": one field

_FIELD = re.compile(rb"(?:^|,\s*|\.\s+|\]\s+|\s)(#?[A-Za-z][A-Za-z0-9 +/()._#-]*?): ([^,\s\"\\%]*)(%?)")
_NUMBER = re.compile(rb"[+-]?(?:\d+(?:\.\d*)?|nan|inf)")
_WHOLE = re.compile(rb"\d+\.\d\d|nan|inf")
_STAMP = re.compile(rb"\[(?:\d{4}-\d\d-\d\d[ T])?(\d\d):(\d\d):(\d\d(?:[.,]\d+)?)((?:\s+[A-Z_]+\d+)*)\s*\]")
_RANK = re.compile(rb"([A-Z_]+)(\d+)")
_DIGITS = b"0123456789."
_RUN = re.compile(rb"[0-9.]+")
_TO_SPACE = bytes(c if c in _DIGITS else 0x20 for c in range(256))
_FEW = 3  # lines of a kind that are not worth learning it
_MOST_KINDS = 256


class Stamps(Sequence[Raw]):
    """Times of day as HH:MM:SS, put together only where somebody looks."""

    def __init__(
        self,
        hours: Sequence[bytes],
        minutes: Sequence[bytes],
        seconds: Sequence[bytes],
        chosen: Sequence[int] | None = None,
    ):
        self._parts = (hours, minutes, seconds)
        self._chosen: Sequence[int] = range(len(hours)) if chosen is None else chosen

    def __len__(self) -> int:
        return len(self._chosen)

    def pick(self, indices: Sequence[int]) -> Stamps:
        """The stamps at these indices."""
        return Stamps(*self._parts, [self._chosen[i] for i in indices])

    @overload
    def __getitem__(self, index: int) -> Raw: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Raw]: ...
    def __getitem__(self, index: int | slice) -> Raw | Sequence[Raw]:
        hours, minutes, seconds = self._parts
        if isinstance(index, slice):
            return Stamps(hours, minutes, seconds, self._chosen[index])
        at = self._chosen[index]
        return b"%b:%b:%b" % (hours[at], minutes[at], seconds[at])


@dataclass
class Columns:
    """Batch lines, column by column: time of day, ranks as written, and each field's raw values."""

    stamps: Sequence[Raw]
    ranks: Sequence[bytes]
    values: Mapping[str, Sequence[Raw]]

    def __len__(self) -> int:
        return len(self.stamps)


@dataclass
class Lines:
    """Batch lines taken apart one by one, which need not have the same fields."""

    stamps: list[Raw] = field(default_factory=list)
    ranks: list[bytes] = field(default_factory=list)
    fields: list[Mapping[str, bytes]] = field(default_factory=list)

    def columns(self) -> Columns:
        """The lines as columns, None where a line lacks a field."""
        names = dict.fromkeys(name for line in self.fields for name in line)
        return Columns(self.stamps, self.ranks, {n: [line.get(n) for line in self.fields] for n in names})


@dataclass(frozen=True)
class _Kind:
    """A kind of line: how many numbers it has, and which of them is what.

    Attributes:
        numbers: how many runs of digits and dots.
        places: name -> index of its number.
        constants: name -> value that every line of the kind has (True, False, nan).
        stamp: indices of hours, minutes and seconds, or None.
        ranks: the ranks' text with a place for each number, and their indices.
        ends_in_decimals: the line's last number must have two decimals, or it is cut.
    """

    numbers: int
    places: Mapping[str, int]
    constants: Mapping[str, bytes]
    stamp: tuple[int, int, int] | None
    ranks: tuple[bytes, tuple[int, ...]]
    ends_in_decimals: bool

    def columns(self, text: bytes, lines: int) -> Columns | None:
        """All of the text's lines, or None where one of them lacks a number or is cut."""
        runs = text.translate(_TO_SPACE).split()
        if len(runs) != lines * self.numbers:
            return None

        def column(place: int) -> list[bytes]:
            return runs[place :: self.numbers]

        if self.ends_in_decimals and {run[-3:-2] for run in column(self.numbers - 1)} != {b"."}:
            return None
        values: dict[str, Sequence[Raw]] = {name: column(place) for name, place in self.places.items()}
        for name, value in self.constants.items():
            values[name] = (value,) * lines
        stamps: Sequence[Raw] = (None,) * lines
        if self.stamp is not None:
            hours, minutes, seconds = map(column, self.stamp)
            stamps = Stamps(hours, minutes, seconds)
        form, places = self.ranks
        ranks = list(map(form.__mod__, zip(*map(column, places), strict=True))) if places else [b""] * lines
        return Columns(stamps, ranks, values)


class Batches:
    """Reads the lines of one kind of batch ("Decode batch" or "Prefill batch")."""

    def __init__(self, marker: bytes, fields: Mapping[bytes, str]):
        self._marker = marker
        self._fields = fields
        self._kinds: dict[bytes, _Kind | None] = {}

    def read(self, lines: list[bytes]) -> list[Columns]:
        """The batch lines among these, as columns per kind; lines that only mention a batch are left out."""
        text = b"\n".join(lines) + b"\n"
        skeletons = text.translate(None, _DIGITS)
        first = lines[0].translate(None, _DIGITS)
        if skeletons == (first + b"\n") * len(lines):
            groups = {first: lines}
        else:
            groups = {}
            for line, skeleton in zip(lines, skeletons.split(b"\n"), strict=False):
                groups.setdefault(skeleton, []).append(line)
        found: list[Columns] = []
        odd = Lines()
        for skeleton, group in groups.items():
            columns = None
            if len(group) > _FEW and (kind := self._kind(skeleton, group[0])) is not None:
                joined = text if len(group) == len(lines) else b"\n".join(group) + b"\n"
                columns = kind.columns(joined, len(group))
            if columns is not None:
                found.append(columns)
            else:
                for line in group:
                    self.take_apart(line, odd)
        return [*found, odd.columns()]

    def take_apart(self, line: bytes, into: Lines) -> None:
        """Add one line field by field, however it is wrapped or cut."""
        line = unwrapped(line)
        at = line.find(self._marker)
        prefix, rest = (line[:at], line[at + len(self._marker) :]) if at >= 0 else (b"", line)
        if of_users(prefix):
            return
        values: dict[str, bytes] = {}
        for name, value, _ in self._values(rest):
            values.setdefault(name, value)
        if not values:
            return
        stamps = list(_STAMP.finditer(prefix))
        into.stamps.append(b":".join(stamps[-1].groups()[:3]) if stamps else None)
        into.ranks.append(stamps[-1][4] if stamps else b"")
        into.fields.append(values)

    def _values(self, rest: bytes) -> list[tuple[str, bytes, int]]:
        """Name, value and offset of the fields we know, as far as they are surely complete."""
        out = []
        end = len(rest.rstrip())
        for found in _FIELD.finditer(rest):
            name, value = found[1], found[2]
            if name.endswith(_GRAPH):
                if value in (b"True", b"False"):
                    out.append(("graph", value, found.start(2)))
                continue
            key = self._fields.get(name)
            # What ends the line may be cut, but for two decimals and for the one count that may stand there.
            complete = found.end() < end or found[3] or name == b"#queue-req" or _WHOLE.fullmatch(value)
            if key is not None and complete and _NUMBER.fullmatch(value):
                out.append((key, value, found.start(2)))
        return out

    def _kind(self, skeleton: bytes, line: bytes) -> _Kind | None:
        """What is known of a kind of line, learned from this one where it is new."""
        if skeleton not in self._kinds:
            if len(self._kinds) >= _MOST_KINDS:
                self._kinds.clear()
            self._kinds[skeleton] = self._learned(line)
        return self._kinds[skeleton]

    def _learned(self, line: bytes) -> _Kind | None:
        at = line.find(self._marker)
        if at < 0 or of_users(line[:at]):
            return None
        runs = [found.start() for found in _RUN.finditer(line)]
        start = at + len(self._marker)
        places: dict[str, int] = {}
        constants: dict[str, bytes] = {}
        for name, value, offset in self._values(line[start:]):
            if name in places or name in constants:
                continue
            if value[:1].isdigit():
                if start + offset not in runs:
                    return None
                places[name] = runs.index(start + offset)
            else:
                constants[name] = value
        if not places:
            return None
        stamps = list(_STAMP.finditer(line[:at]))
        stamp: tuple[int, int, int] | None = None
        ranks: tuple[bytes, tuple[int, ...]] = (b"", ())
        if stamps:
            last = stamps[-1]
            hours, minutes, seconds = (runs.index(last.start(i)) for i in (1, 2, 3))
            stamp = (hours, minutes, seconds)
            numbers = [m.start(2) + last.start(4) for m in _RANK.finditer(last[4])]
            ranks = (_RANK.sub(rb"\1%b", last[4]), tuple(runs.index(n) for n in numbers))
        last_field = list(_FIELD.finditer(line, start))[-1]
        at_end = last_field.end() >= len(line.rstrip()) and not last_field[3]
        decimals = at_end and not last_field[1].startswith(b"#") and b"." in last_field[2]
        return _Kind(len(runs), places, constants, stamp, ranks, decimals)
