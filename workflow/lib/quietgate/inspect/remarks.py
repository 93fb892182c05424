"""What a server says besides its batches and requests: the lines that tell how it starts, fails and ends."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate

from quietgate.inspect.lines import Block


class Remarks:
    """Such lines of a block, looked through for words.

    A server repeats itself with other numbers, so all of its lines without their digits, each once, are
    looked through first. Words to look for therefore have no digits.

    Attributes:
        lines: the lines.
        text: the same in one piece.
    """

    def __init__(self, block: Block, indexed: list[tuple[int, bytes]]) -> None:
        self.lines = [line for _, line in indexed]
        self.text = b"\n".join(self.lines)
        self._block, self._indexed = block, indexed
        self._said = b"\n".join(set(self.text.translate(None, b"0123456789").split(b"\n")))

    def __contains__(self, words: bytes) -> bool:
        return words in self._said

    def number(self, i: int) -> int:
        """The file's line number of `lines[i]`."""
        return self._block.number(self._indexed[i][0])

    def with_words(self, words: bytes) -> list[tuple[int, bytes]]:
        """The lines with these words, and their numbers in the file."""
        if words not in self:
            return []
        return [(self.number(i), line) for i, line in enumerate(self.lines) if words in line]

    def with_any(self, needles: Iterable[bytes]) -> list[int]:
        """Indices of the lines that contain a needle."""
        ends: list[int] = []
        hits: set[int] = set()
        for needle in (n for n in needles if n in self):
            at = self.text.find(needle)
            while at >= 0:
                ends = ends or list(accumulate(len(line) + 1 for line in self.lines))
                i = bisect_right(ends, at)
                hits.add(i)
                at = self.text.find(needle, ends[i])
        return sorted(hits)
