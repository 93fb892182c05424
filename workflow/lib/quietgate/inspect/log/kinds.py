"""Kinds of line: what a server writes over and over, the same text but for its numbers.

One line of a kind becomes a regular expression in which the numbers may vary, and one split of a block by it
reads every line of the kind at once: no line is cut out or looked at for itself. Lines of a kind that is not
known yet, or that come too seldom to be worth an expression, are handed out one by one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from quietgate.inspect.lines import Block

NUMBER = rb"[0-9]++"

_DIGITS = b"0123456789"
_RUN = re.compile(rb"[0-9]+")
_FEW = 3  # lines of a kind in a block that are not worth an expression
_MOST_KINDS = 32
_READ = b"\0"  # stands where a line was, so that the lines after it keep their numbers


def varied(text: bytes) -> bytes:
    """An expression for this text with other numbers in it."""
    return NUMBER.join(map(re.escape, _RUN.split(text)))


@dataclass(frozen=True)
class Kind:
    """A kind of line.

    Attributes:
        line: an expression for the whole line, with a group for each value worth having.
        names: the groups' names, in order.
        constants: name -> value that every line of the kind has (True, False, nan).
    """

    line: bytes
    names: tuple[str, ...] = ()
    constants: Mapping[str, bytes] = field(default_factory=dict)

    @cached_property
    def pattern(self) -> re.Pattern[bytes]:
        """Finds the line in a text that begins and ends with a line end."""
        return re.compile(b"\n" + self.line + b"(?=\n)")


@dataclass(frozen=True)
class Found:
    """Lines of one kind in a block.

    Attributes:
        before, after: how many lines of the block stand before the first and after the last of them.
        count: how many they are.
        values: their values by name.
    """

    before: int
    after: int
    count: int
    values: Mapping[str, list[bytes]]


class Unread:
    """The lines of a block that nobody has read yet."""

    def __init__(self, block: Block) -> None:
        self.block, self.text = block, block.text
        self._read = 0

    def take(self, kind: Kind) -> Found | None:
        """Read all lines of a kind, or none of them where they are few."""
        parts = kind.pattern.split(self.text)
        step = kind.pattern.groups + 1
        count = (len(parts) - 1) // step
        if count <= _FEW:
            return None
        between = parts[::step]
        self.text = (b"\n" + _READ).join(between)
        self._read += count
        values = {name: parts[i::step] for i, name in enumerate(kind.names, 1)}
        values |= {name: [value] * count for name, value in kind.constants.items()}
        return Found(between[0].count(b"\n"), between[-1].count(b"\n") - 1, count, values)

    def pull(self, marker: bytes) -> list[tuple[int, bytes]]:
        """Read all lines that contain `marker`: their indices and texts."""
        if marker not in self.text:
            return []
        lines = self.text[1:].split(b"\n")
        pulled = [(i, line) for i, line in enumerate(lines) if marker in line]
        for i, _ in pulled:
            lines[i] = _READ
        self.text = b"\n" + b"\n".join(lines)
        self._read += len(pulled)
        return pulled

    def rest(self) -> list[tuple[int, bytes]]:
        """All lines that are left: their indices and texts."""
        if self._read == self.block.count:
            return []
        return [(i, line) for i, line in enumerate(self.text[1:-1].split(b"\n")) if line != _READ]


@dataclass(frozen=True)
class Read:
    """The lines of one sort in a block.

    Attributes:
        found: those of kinds, in order of their first lines.
        odd: the others, and how many lines of the block stand before each.
        lines: how many lines the block has.
    """

    found: list[Found]
    odd: list[tuple[int, bytes]]
    lines: int


class Sort:
    """A sort of line, told by a marker, and its kinds, learned as they come.

    Args:
        marker: what makes a line one of these.
        learn: the kind of a line, or None where such lines have to be taken apart one by one.
        head: the part of a line that tells its kind.
    """

    def __init__(
        self,
        marker: bytes,
        learn: Callable[[bytes], Kind | None],
        head: Callable[[bytes], bytes] = bytes,
    ) -> None:
        self._marker, self._learn, self._head = marker, learn, head
        self._known: dict[bytes, tuple[bytes, Kind | None]] = {}

    def known(self, unread: Unread) -> list[Found]:
        """Read the lines of known kinds."""
        return [
            lines
            for sign, kind in self._known.values()
            if kind is not None and sign in unread.text and (lines := unread.take(kind)) is not None
        ]

    def others(self, unread: Unread, found: list[Found]) -> Read:
        """Read all others, which may be of a new kind; `found` is what is known already."""
        groups: dict[bytes, list[tuple[int, bytes]]] = {}
        for i, line in unread.pull(self._marker):
            groups.setdefault(self._head(line).translate(None, _DIGITS), []).append((i, line))
        odd: list[tuple[int, bytes]] = []
        for key, group in groups.items():
            if len(group) > _FEW and key not in self._known and (kind := self._new(key, group)) is not None:
                alone = Unread(Block.of(line for _, line in group))
                if (lines := alone.take(kind)) is not None:
                    first, last = group[lines.before][0], group[-1 - lines.after][0]
                    found.append(replace(lines, before=first, after=unread.block.count - 1 - last))
                    group = [group[i] for i, _ in alone.rest()]
            odd += group
        return Read(sorted(found, key=lambda lines: lines.before), odd, unread.block.count)

    def _new(self, key: bytes, group: list[tuple[int, bytes]]) -> Kind | None:
        if len(self._known) >= _MOST_KINDS:
            self._known.clear()
        # The longest text between numbers tells quickly that a block has no line of the kind.
        sign = max(_RUN.split(self._head(group[0][1])), key=len)
        kind = next(filter(None, (self._learn(line) for _, line in group)), None)
        self._known[key] = sign, kind
        return kind


def read(unread: Unread, sorts: Sequence[Sort]) -> list[Read]:
    """Read a block's lines of these sorts; the first sort that a line may belong to has it."""
    # All known kinds first: they leave little text in which to look for markers, or to count line ends.
    found = [sort.known(unread) for sort in sorts]
    unread.block.count = unread.text.count(b"\n") - 1
    return [sort.others(unread, known) for sort, known in zip(sorts, found, strict=True)]
