"""Batch lines of SGLang 0.3 to 0.5.23 as columns, whatever fields a version writes.

The first line of a kind is taken apart field by field, which tells the place of each value; all other lines
of the kind are then read at once. Lines that are cut are taken apart one by one. What a line does not have is
None, never 0. Values stay as written until somebody needs them as numbers: most of them repeat.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from quietgate.inspect.log.kinds import NUMBER, Kind, Read, Sort, varied
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

# A name is short: without that, a long line of words takes minutes.
_FIELD = re.compile(rb"(?:^|,\s*|\.\s+|\]\s+|\s)(#?[A-Za-z][A-Za-z0-9 +/()._#-]{0,80}?): ([^,\s\"\\%]*)(%?)")
_NUMBER = re.compile(rb"[+-]?(?:\d+(?:\.\d*)?|nan|inf)")
_WHOLE = re.compile(rb"\d+\.\d\d|nan|inf")
_STAMP = re.compile(rb"\[(?:\d{4}-\d\d-\d\d[ T])?(\d\d:\d\d:\d\d(?:[.,]\d+)?)((?:\s+[A-Z_]+\d+)*)\s*\]")
_CLOCK = rb"[0-9]{2}+:[0-9]{2}+:[0-9]{2}+"
_DECIMALS = NUMBER + rb"\.[0-9]{2}+"


@dataclass
class Columns:
    """Batch lines, column by column.

    Attributes:
        stamps: times of day, HH:MM:SS.
        ranks: as written, " DP1 TP0".
        values: each field's values.
        after: how many lines of the block stand after the last of these, or None.
    """

    stamps: Sequence[Raw]
    ranks: Sequence[bytes]
    values: Mapping[str, Sequence[Raw]]
    after: int | None = None

    def __len__(self) -> int:
        return len(self.stamps)


@dataclass
class Lines:
    """Batch lines taken apart one by one, which need not have the same fields."""

    stamps: list[Raw] = field(default_factory=list)
    ranks: list[bytes] = field(default_factory=list)
    fields: list[Mapping[str, bytes]] = field(default_factory=list)

    def columns(self, after: int | None = None) -> Columns:
        """The lines as columns, None where a line lacks a field."""
        names = dict.fromkeys(name for line in self.fields for name in line)
        values = {name: [line.get(name) for line in self.fields] for name in names}
        return Columns(self.stamps, self.ranks, values, after)


class Batches:
    """Reads the lines of one kind of batch ("Decode batch" or "Prefill batch")."""

    def __init__(self, marker: bytes, fields: Mapping[bytes, str]):
        self._marker = marker
        self._fields = fields
        self.sort = Sort(marker, self._learned)

    def columns(self, read: Read) -> list[Columns]:
        """A block's batch lines as columns per kind; lines that only mention a batch are left out."""
        columns = [
            Columns(
                f.values.get("stamp") or [None] * f.count,
                f.values.get("ranks") or [b""] * f.count,
                f.values,
                f.after,
            )
            for f in read.found
        ]
        apart = Lines()
        for _, line in read.odd:
            self.take_apart(line, apart)
        return [*columns, apart.columns(min((read.lines - 1 - i for i, _ in read.odd), default=None))]

    def take_apart(self, line: bytes, into: Lines) -> None:
        """Add one line field by field, however it is wrapped or cut."""
        line = unwrapped(line)
        at = line.find(self._marker)
        prefix, rest = (line[:at], line[at + len(self._marker) :]) if at >= 0 else (b"", line)
        if of_users(prefix):
            return
        values: dict[str, bytes] = {}
        for name, value, _ in self._values(rest):
            if value is not None:
                values.setdefault(name, value)
        if not values:
            return
        stamps = list(_STAMP.finditer(prefix))
        into.stamps.append(stamps[-1][1] if stamps else None)
        into.ranks.append(stamps[-1][2] if stamps else b"")
        into.fields.append(values)

    def _values(self, rest: bytes) -> list[tuple[str, Raw, int]]:
        """Name, value and offset of the fields we know; None for a value that may be cut."""
        out: list[tuple[str, Raw, int]] = []
        end = len(rest.rstrip())
        for found in _FIELD.finditer(rest):
            name, value = found[1], found[2]
            if name.endswith(_GRAPH):
                if value in (b"True", b"False"):
                    out.append(("graph", value, found.start(2)))
                continue
            key = self._fields.get(name)
            if key is not None and _NUMBER.fullmatch(value):
                # What ends the line may be cut, but for two decimals and the one count that may stand there.
                whole = found.end() < end or found[3] or name == b"#queue-req" or _WHOLE.fullmatch(value)
                out.append((key, value if whole else None, found.start(2)))
        return out

    def _learned(self, line: bytes) -> Kind | None:
        """The kind of this line: an expression with a group for the stamp, the ranks and each field."""
        at = line.find(self._marker)
        if of_users(line[:at]):
            return None
        start = at + len(self._marker)
        values = self._values(line[start:])
        constants: dict[str, bytes] = {}
        groups: dict[str, tuple[int, int, bytes]] = {}  # name -> begin, end, expression
        if stamps := list(_STAMP.finditer(line, 0, start)):
            groups["stamp"] = (*stamps[-1].span(1), _CLOCK + varied(stamps[-1][1][8:]))
            if stamps[-1][2]:
                groups["ranks"] = (*stamps[-1].span(2), varied(stamps[-1][2]))
        for name, value, offset in values:
            if name in groups or name in constants:
                continue
            if value is None or value[:1] in b"+-":
                return None  # other lines of the kind are whole; a sign would have to vary too
            if value[:1].isdigit():
                begin = start + offset
                shape = _DECIMALS if _WHOLE.fullmatch(value) else varied(value)
                groups[name] = begin, begin + len(value), shape
            else:
                constants[name] = value
        expression, at = b"", 0
        for begin, end, shape in groups.values():
            expression += varied(line[at:begin]) + b"(%b)" % shape
            at = end
        return Kind(expression + varied(line[at:]), tuple(groups), constants) if values else None
