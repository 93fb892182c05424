"""Batch lines of SGLang 0.3 to 0.5.23 as columns of numbers, whatever fields a version writes.

A server writes the same shape of line over and over. The first line of a shape is taken apart field by
field and turned into one regular expression, which then reads whole blocks at once; lines that do not
fit it (cut, another version, a foreign prefix) are taken apart one by one. What a line does not
have is None, never 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from quietgate.inspect.prefixes import stamp, unwrapped

Number = float | None

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
    b"token usage": "usage",
    b"full token usage": "usage",
    b"#running-req": "running",
    b"#queue-req": "queue",
    b"input throughput (token/s)": "throughput",
    b"fwd occupancy": "occupancy_percent",
}
_GRAPH = b" graph"  # "cuda graph", "npu graph", "cpu graph": one field, 1.0 for True

_FIELD = re.compile(rb"(?:^|,\s*|\.\s+|\]\s+|\s)(#?[A-Za-z][A-Za-z0-9 +/()._#-]*?): ([^,\s\"\\%]*)(%?)")
_NUMBER = re.compile(rb"[+-]?(?:\d+(?:\.\d*)?|nan|inf)", re.I)
_WHOLE = re.compile(rb"\d+\.\d\d")
_STANDARD = rb"\[(?:\d{4}-\d\d-\d\d )?(\d\d):(\d\d):(\d\d)(?:\.\d+)?((?: [A-Z_]+\d+)*)\] "
_STANDARD_PREFIX = re.compile(_STANDARD)
_MOST_SHAPES = 6


@dataclass
class Columns:
    """Batch lines, column by column; `values[name]` is None where no line has the field."""

    seconds: list[Number] = field(default_factory=list)
    ranks: list[bytes] = field(default_factory=list)
    values: dict[str, list[Number]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.seconds)

    def append(self, seconds: Number, ranks: bytes, values: Mapping[str, Number]) -> None:
        """Add one line."""
        before = len(self.seconds)
        self.seconds.append(seconds)
        self.ranks.append(ranks)
        for name in values:
            if name not in self.values:
                self.values[name] = [None] * before
        for name, column in self.values.items():
            column.append(values.get(name))


@dataclass(frozen=True)
class _Shape:
    pattern: re.Pattern[bytes]
    names: tuple[str, ...]

    def columns(self, text: bytes, lines: int) -> Columns | None:
        """All lines at once, or None where one of them has another shape."""
        rows = self.pattern.findall(text)
        if len(rows) != lines:
            return None
        hours, minutes, seconds, ranks, *values = zip(*rows, strict=True)
        clock = [
            3600.0 * int(h) + 60 * int(m) + int(s) for h, m, s in zip(hours, minutes, seconds, strict=True)
        ]
        return Columns(
            clock,  # type: ignore[arg-type]
            list(ranks),
            {name: _numbers(name, column) for name, column in zip(self.names, values, strict=True)},
        )


def _numbers(name: str, column: tuple[bytes, ...]) -> list[Number]:
    if name == "graph":
        return [1.0 if v == b"True" else 0.0 for v in column]
    return list(map(float, column))


class Batches:
    """Reads the lines of one kind ("Decode batch" or "Prefill batch")."""

    def __init__(self, marker: bytes, fields: Mapping[bytes, str]):
        self._marker = marker
        self._fields = fields
        self._shapes: list[_Shape] = []

    def read(self, lines: list[bytes]) -> Columns:
        """The lines that are batch lines, as columns; others among them are left out."""
        text = b"\n".join(lines) + b"\n"
        for shape in self._shapes:
            if (columns := shape.columns(text, len(lines))) is not None:
                return columns
        columns = Columns()
        for line in lines:
            self._one(line, columns)
        return columns

    def _one(self, line: bytes, columns: Columns) -> None:
        for shape in self._shapes:
            one = shape.columns(line + b"\n", 1)
            if one is not None:
                columns.append(one.seconds[0], one.ranks[0], {n: v[0] for n, v in one.values.items()})
                return
        if len(self._shapes) < _MOST_SHAPES:
            self._learn(line)
        self.take_apart(line, columns)

    def take_apart(self, line: bytes, columns: Columns) -> None:
        """Add one line field by field, however it is wrapped or cut."""
        line = unwrapped(line)
        at = line.find(self._marker)
        prefix, rest = (line[:at], line[at + len(self._marker) :]) if at >= 0 else (b"", line)
        values: dict[str, Number] = {}
        end = len(line.rstrip()) - (len(line) - len(rest))
        for name, value, percent, last in ((m[1], m[2], m[3], m.end() >= end) for m in _FIELD.finditer(rest)):
            if name.endswith(_GRAPH):
                if value in (b"True", b"False"):
                    values["graph"] = 1.0 if value == b"True" else 0.0
            elif (key := self._fields.get(name)) is not None and key not in values:
                number = _number(value, complete=not last or bool(percent), whole=name.startswith(b"#"))
                if number is not None:
                    values[key] = number
        if not values or ("running" not in values and "throughput" not in values and at >= 0):
            return
        _, seconds, _ = stamp(prefix)
        columns.append(seconds, _ranks_text(prefix), values)

    def _learn(self, line: bytes) -> None:
        at = line.find(self._marker)
        if at < 0:
            return
        prefix, rest = line[:at], line[at + len(self._marker) :]
        standard = _STANDARD_PREFIX.search(prefix)
        if standard is None or standard.end() != len(prefix):
            return
        pattern = b"" if standard.start() == 0 else rb"[^\n]*"
        pattern += _STANDARD + re.escape(self._marker)
        names: list[str] = []
        done = 0
        for found in _FIELD.finditer(rest):
            pattern += re.escape(rest[done : found.start(2)])
            captured = self._captured(found[1], found[2], names)
            if captured is None:
                return
            pattern += captured
            done = found.end(2)
        if not names:
            return
        pattern = re.sub(rb"\\\[\d+\\\]", rb"\\[\\d+\\]", pattern, count=1)  # SGLANG_LOG_FORWARD_ITERS
        ending = rest[done:]
        # A shipper's JSON goes on behind the line, with a time of its own.
        pattern += rb'\\n"[^\n]*\n' if ending.startswith(b'\\n"') else re.escape(ending) + rb"\n"
        self._shapes.append(_Shape(re.compile(pattern), tuple(names)))

    def _captured(self, name: bytes, value: bytes, names: list[str]) -> bytes | None:
        """The pattern for a field's value; None where this line is no good model for others."""
        if name.endswith(_GRAPH):
            if "graph" in names or value not in (b"True", b"False"):
                return None
            names.append("graph")
            return rb"(True|False)"
        key = self._fields.get(name)
        if key is None or key in names:
            return rb'[^,\s"\\%]*'
        names.append(key)
        if name.startswith(b"#"):
            return rb"(\d+)" if value.isdigit() else None
        return rb"(\d+\.\d\d|nan)" if _WHOLE.fullmatch(value) or value == b"nan" else None


def _number(value: bytes, complete: bool, whole: bool) -> Number:
    """A value as a number; at the end of a line only if it is surely not cut (all have two decimals)."""
    if not complete and not whole and not (_WHOLE.fullmatch(value) or value in (b"nan", b"inf")):
        return None
    return float(value) if _NUMBER.fullmatch(value) else None


def _ranks_text(prefix: bytes) -> bytes:
    """The innermost bracket's ranks as they stand, " DP1 TP4", or nothing."""
    found = list(_RANKS_TEXT.finditer(prefix))
    return found[-1][1] if found else b""


_RANKS_TEXT: re.Pattern[bytes] = re.compile(rb"\[[^\]\n]*?((?: [A-Z_]+\d+)*)\]")

Reader = Callable[[list[bytes]], Columns]
