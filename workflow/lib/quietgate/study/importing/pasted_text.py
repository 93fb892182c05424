"""A launch as it comes out of a web page, a chat or a terminal, with what these add to it taken away."""

from __future__ import annotations

import html
import re

_PLAIN = str.maketrans(
    {
        **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff", ""),
        **dict.fromkeys("\u00a0\u2002\u2003\u2007\u2008\u2009\u202f\u3000", " "),
        **dict.fromkeys("\u201c\u201d\u201e\u201f", '"'),
        **dict.fromkeys("\u2018\u2019\u201a\u201b", "'"),
    }
)
_DASH = re.compile("(?<!\\S)(?:[\u2013\u2014\u2212]-?|-[\u2013\u2014\u2212])(?=[A-Za-z])")
_COLOUR = re.compile("\x1b\\[[0-9;?]*[A-Za-z]")
_ENTITY = re.compile(r"&(?:quot|gt|lt|amp|#39);")  # of a page's source
_FENCE = re.compile(r"\s*(```|~~~)")
# An apostrophe of prose, which opens no quotation: don't, it's.
_APOSTROPHE = re.compile(r"(?<![\w'\"=/-])([A-Za-z]+)'(?=(?:s|t|re|ve|ll|d|m)(?:[\s.,;:!?)]|$))", re.M)


def cleaned(text: str) -> tuple[str, list[str]]:
    """The text with the characters that a shell knows, line by line; what was changed in a command."""
    found: list[str] = []
    changed = 0
    if _ENTITY.search(text):
        text = html.unescape(text)
    for number, raw in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        uncoloured = _COLOUR.sub("", raw)
        line = _DASH.sub("--", uncoloured.translate(_PLAIN))
        if not changed and line != uncoloured and (" --" in line or "sglang" in line):
            changed = number
        found.append(_APOSTROPHE.sub("\\1\u02bc", line))
    notes = (
        [f"line {changed}: typographic quotes, dashes or blanks are read as plain ones"] if changed else []
    )
    return "\n".join(found), notes


def fenced(text: str) -> list[str]:
    """Of Markdown the fenced blocks, each behind blank lines that keep its place; none without a launch."""
    blocks: list[str] = []
    begun: int | None = None
    lines = text.split("\n")
    for i, line in enumerate(lines):
        if not _FENCE.match(line):
            continue
        if begun is None:
            begun = i + 1
        else:
            blocks.append("\n" * begun + "\n".join(lines[begun:i]))
            begun = None
    if begun is not None:
        blocks.append("\n" * begun + "\n".join(lines[begun:]))
    return blocks if any("sglang" in block for block in blocks) else []


def overlaid(blocks: list[str]) -> str:
    """Blocks of one text as a text, each in its place."""
    lines = [""] * max(block.count("\n") + 1 for block in blocks)
    for block in blocks:
        for i, line in enumerate(block.split("\n")):
            lines[i] = line or lines[i]
    return "\n".join(lines)
