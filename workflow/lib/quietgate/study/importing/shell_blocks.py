"""Where loops and functions of a shell script begin and end, and what a loop runs over.

Of loops those over values that are written down: `for rank in 0 1 2`, {0..7}, $(seq 0 7).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from quietgate.study.importing.shell_tokens import Piece, Token

Word = tuple[Piece, ...]
_OPENING = {"for", "while", "until", "select"}
_LEADING = _OPENING | {"do", "done", "then", "else", "{", "(", "!"}
_RANGE = re.compile(r"\{(-?\d+)\.\.(-?\d+)\}")
_COUNTED = re.compile(r"\$\(\s*seq\s+(.*)\)|`\s*seq\s+(.*)`", re.S)


def function(tokens: Sequence[Token]) -> str | None:
    """Of `name() {` or `function name {` the name; None for any other command."""
    if len(tokens) > 2 and list(tokens[1:3]) == ["(", ")"] and not isinstance(tokens[0], str):
        return _text(tokens[0])
    return _text(tokens[1]) if len(tokens) > 1 and _text(tokens[0]) == "function" else None


def function_end(commands: Sequence[tuple[int, list[Token]]], start: int) -> int:
    """Index of the command that begins with the `}` of the function at `start`, or `start` without one."""
    depth = 0
    for i in range(start, len(commands)):
        texts = [_text(token) for token in commands[i][1]]
        depth += (texts.count("{")) - (texts[0] == "}")
        if i > start and depth <= 0:
            return i
    return start


def head(tokens: Sequence[Token]) -> tuple[str, list[Word]] | None:
    """Of `for NAME in WORDS` the name and the words; None for any other command."""
    words = [t for t in tokens if not isinstance(t, str)]
    while words and _text(words[0]) in _LEADING - {"for"}:
        words = words[1:]
    if len(words) < 4 or len(words) < len(tokens) - 1:
        return None
    if _text(words[0]) != "for" or _text(words[2]) != "in":
        return None
    return _text(words[1]), words[3:]


def end(commands: Sequence[tuple[int, list[Token]]], start: int) -> int:
    """Index of the command that begins with the `done` of the loop at `start`, or `start` without one."""
    depth = 0
    for i in range(start, len(commands)):
        for token in commands[i][1]:
            word = _text(token)
            if word not in _LEADING:
                break
            depth += (word in _OPENING) - (word == "done")
            if depth == 0:
                return i
            if word in _OPENING:
                break
    return start


def values(words: Sequence[Word], expand: Callable[[Word], list[str]]) -> list[str] | None:
    """What the loop's variable becomes in turn, or None where it is not known.

    Args:
        words: as they are written behind `in`.
        expand: works out a word.
    """
    found: list[str] = []
    for word in words:
        text = _text(word)
        if spanned := _RANGE.fullmatch(text):
            found += _range(int(spanned[1]), int(spanned[2]), 1)
        elif counted := _COUNTED.fullmatch(text):
            bounds = expand((Piece(counted[1] or counted[2], ""),))
            numbers = [int(w) for bound in bounds for w in bound.split() if re.fullmatch(r"-?\d+", w)]
            if len(numbers) != len(" ".join(bounds).split()) or not 1 <= len(numbers) <= 3:
                return None
            first, step = (numbers[0], numbers[1] if len(numbers) == 3 else 1) if numbers[1:] else (1, 1)
            found += _range(first, numbers[-1], step)
        else:
            found += expand(word)
    return None if any(w[:1] in ("$", "`") or "*" in w for w in found) else found


def _range(first: int, last: int, step: int) -> list[str]:
    step = step or 1
    step = -step if step == 1 and last < first else step
    return [str(n) for n in range(first, last + (1 if step > 0 else -1), step)][:1000]


def _text(token: Token) -> str:
    return token if isinstance(token, str) else "".join(piece.text for piece in token)
