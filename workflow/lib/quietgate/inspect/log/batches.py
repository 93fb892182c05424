"""Batch lines of SGLang 0.3 to 0.5.23 as columns, whatever fields a version writes.

A server writes the same few shapes of line over and over. The first line of a shape is taken apart field by
field and turned into one regular expression, which then reads whole blocks at once; lines that fit no
shape (cut, wrapped by a shipper) are taken apart one by one. What a line does not have is None, never 0.
Values stay as written until somebody needs them as numbers: most of them repeat.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from quietgate.inspect.prefixes import unwrapped

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
_STANDARD = rb"\[(?:\d{4}-\d\d-\d\d )?(\d\d:\d\d:\d\d)(?:\.\d+)?((?: [A-Z_]+\d+)*)\] "
_STANDARD_PREFIX = re.compile(_STANDARD)
_STAMP = re.compile(rb"\[(?:\d{4}-\d\d-\d\d[ T])?(\d\d:\d\d:\d\d)(?:[.,]\d+)?((?:\s+[A-Z_]+\d+)*)\s*\]")
_CHECKED = 7  # of a literal between two values, so many last bytes are compared, the rest is counted
_MOST_SHAPES = 8


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
class _Shape:
    """One kind of line: an expression with a group per value, and the values that are always the same."""

    pattern: re.Pattern[bytes]
    names: tuple[str, ...]
    constants: Mapping[str, bytes]

    def columns(self, text: bytes) -> Columns | None:
        """All lines of this kind in the text."""
        rows = self.pattern.findall(text)
        if not rows:
            return None
        stamps, ranks, *values = zip(*rows, strict=True)
        columns: dict[str, Sequence[Raw]] = dict(zip(self.names, values, strict=True))
        for name, value in self.constants.items():
            columns[name] = (value,) * len(rows)
        return Columns(stamps, ranks, columns)


class Batches:
    """Reads the lines of one kind ("Decode batch" or "Prefill batch")."""

    def __init__(self, marker: bytes, fields: Mapping[bytes, str]):
        self._marker = marker
        self._fields = fields
        self._shapes: list[_Shape] = []

    def read(self, lines: list[bytes]) -> list[Columns]:
        """The batch lines among these, as columns per shape; lines that only mention one are left out."""
        text = b"\n".join(lines) + b"\n"
        while True:
            found = [c for shape in self._shapes if (c := shape.columns(text)) is not None]
            if sum(map(len, found)) == len(lines):
                return found
            if not self._learn_from(lines):
                break
        odd = Lines()
        for line in self._odd(lines):
            self.take_apart(line, odd)
        return [*found, odd.columns()]

    def _odd(self, lines: list[bytes]) -> list[bytes]:
        """The lines that fit no shape."""
        return [x for x in lines if not any(s.pattern.fullmatch(x + b"\n") for s in self._shapes)]

    def _learn_from(self, lines: list[bytes]) -> bool:
        """Learn a shape from a line that has none yet; False where there is nothing to learn."""
        if len(self._shapes) >= _MOST_SHAPES:
            return False
        for line in self._odd(lines)[:3]:
            if (shape := self._shape(line)) is not None:
                self._shapes.append(shape)
                return True
        return False

    def take_apart(self, line: bytes, into: Lines) -> None:
        """Add one line field by field, however it is wrapped or cut."""
        line = unwrapped(line)
        at = line.find(self._marker)
        prefix, rest = (line[:at], line[at + len(self._marker) :]) if at >= 0 else (b"", line)
        values: dict[str, bytes] = {}
        end = len(rest.rstrip())
        for found in _FIELD.finditer(rest):
            name, value = found[1], found[2]
            if name.endswith(_GRAPH):
                if value in (b"True", b"False"):
                    values["graph"] = value
                continue
            key = self._fields.get(name)
            # Every number but a count has two decimals: one that ends the line with fewer may be cut.
            complete = found.end() < end or bool(found[3]) or name.startswith(b"#") or _WHOLE.fullmatch(value)
            if key is not None and key not in values and complete and _NUMBER.fullmatch(value):
                values[key] = value
        if not values:
            return
        stamps = list(_STAMP.finditer(prefix))
        into.stamps.append(stamps[-1][1] if stamps else None)
        into.ranks.append(stamps[-1][2] if stamps else b"")
        into.fields.append(values)

    def _shape(self, line: bytes) -> _Shape | None:
        """The shape of a line, or None where the line is no model for others."""
        at = line.find(self._marker)
        if at < 0:
            return None
        prefix, rest = line[:at], line[at + len(self._marker) :]
        standard = _STANDARD_PREFIX.search(prefix)
        if standard is None or standard.end() != len(prefix):
            return None
        # Without ranks the line's stamp ends at once; else any ranks will do.
        head = _STANDARD if standard[2] else _STANDARD.replace(rb"((?: [A-Z_]+\d+)*)", b"()")
        pattern = (b"" if standard.start() == 0 else rb"[^\n]*") + head + re.escape(self._marker)
        names: list[str] = []
        constants: dict[str, bytes] = {}
        done = 0
        found = None
        for found in _FIELD.finditer(rest):
            value = self._value(found, names, constants)
            if value is None:
                return None
            pattern += _literal(rest[done : found.start(2)]) + value
            done = found.end(2)
        if found is None or not names:
            return None
        ending = rest[done:]
        if not ending and not found[1].startswith(b"#") and not _WHOLE.fullmatch(found[2]):
            return None  # perhaps cut
        # A shipper's JSON goes on behind the line, with a time of its own.
        pattern += rb'\\n"[^\n]*\n' if ending.startswith(b'\\n"') else re.escape(ending) + rb"\n"
        return _Shape(re.compile(pattern, re.S), tuple(names), constants)

    def _value(self, found: re.Match[bytes], names: list[str], constants: dict[str, bytes]) -> bytes | None:
        """The expression for a field's value."""
        name, value = found[1], found[2]
        if name.endswith(_GRAPH):
            if value not in (b"True", b"False") or "graph" in constants:
                return None
            constants["graph"] = value
            return value
        key = self._fields.get(name)
        if key is None or key in names:
            return rb'[^,\s"\\%]*'
        names.append(key)
        if value == b"nan":
            return rb"(nan)"
        if name.startswith(b"#"):
            return rb"(\d+)" if value.isdigit() else None
        return rb"(\d+\.\d\d)" if _WHOLE.fullmatch(value) else None


def _literal(text: bytes) -> bytes:
    """What stands between two values: its end compared byte by byte, its length counted."""
    if b"[" in text:  # "Decode batch [123], ..." counts iterations
        return re.sub(rb"\\\[\d+\\\]", rb"\\[\\d+\\]", re.escape(text))
    if len(text) <= _CHECKED + 2:
        return re.escape(text)
    return b".{%d}" % (len(text) - _CHECKED) + re.escape(text[-_CHECKED:])
