"""Shell text as words and operators: quotes read, redirections and operators told apart."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from quietgate.study.importing.shell_lines import Line
from quietgate.study.importing.shell_variables import closing, end_of

_OPERATORS = (
    "&&",
    "||",
    ";;",
    "&>>",
    "&>",
    ">>",
    "<<<",
    "<<",
    ">&",
    "<&",
    "|&",
    ";",
    "|",
    "&",
    ">",
    "<",
    "(",
    ")",
)
# A place to fill in, <model> or {{ model }}; no redirection has a word between both signs.
_PLACE = re.compile(r"<[A-Za-z_](?:[\w ./:-]*\w)?>(?=[\s\"':/,]|$)|\{\{[^{}\n]*\}\}")
REDIRECTIONS = {">", ">>", "<", "&>", "&>>", ">&", "<&", "<<<", "<<"}


@dataclass(frozen=True)
class Piece:
    """Part of a word: as typed, in double quotes (expanded, not split) or in single quotes (neither)."""

    text: str
    quote: str  # "", '"' or "'"


Token = tuple[Piece, ...] | str  # a word, or an operator


def commands(lines: list[Line]) -> Iterator[tuple[int, list[Token]]]:
    """The simple commands of logical lines: the line each starts in, and its words and redirections."""
    for number, line in lines:
        current: list[Token] = []
        for token in tokens_of(line):
            if isinstance(token, str) and token not in REDIRECTIONS and token not in ("(", ")"):
                if current:
                    yield number, current
                current = []
            else:
                current.append(token)
        if current:
            yield number, current


def tokens_of(line: str) -> Iterator[Token]:
    """A line's words and operators."""
    i, pieces = 0, list[Piece]()
    while i < len(line):
        c = line[i]
        if c in " \t\n":
            if pieces:
                yield tuple(pieces)
            pieces = []
            i += 1
        elif c == "#" and not pieces:
            end = line.find("\n", i)
            i = len(line) if end < 0 else end
        elif c == "$" and line[i + 1 : i + 2] == "'":
            text, i = _ansi_quoted(line, i + 1)
            pieces.append(Piece(text, "'"))
        elif c in "'\"":
            text, i = _quoted(line, i)
            pieces.append(Piece(text, c))
        elif c == "\\" and i + 1 < len(line):
            pieces.append(Piece(line[i + 1], "'"))
            i += 2
        elif (end := end_of(line, i)) > i:
            pieces.append(Piece(line[i:end], ""))
            i = end
        elif place := _PLACE.match(line, i):
            pieces.append(Piece(place[0], "'"))
            i = place.end()
        elif operator := next((o for o in _OPERATORS if line.startswith(o, i)), None):
            # "2>file": the number belongs to the redirection. NAME=( opens an array.
            if operator == "(" and pieces and pieces[-1].text.endswith("="):
                close = closing(line, i)
                close = len(line) if close is None else close
                pieces.append(Piece(line[i : close + 1], ""))
                i = close + 1
                continue
            if pieces and not (operator[0] in "<>" and "".join(p.text for p in pieces).isdigit()):
                yield tuple(pieces)
            pieces = []
            yield operator
            i += len(operator)
        else:
            start = i
            while i < len(line) and line[i] not in " \t\n'\"\\;|&<>()`$":
                i += 1
            i = max(i, start + 1)
            pieces.append(Piece(line[start:i], ""))
    if pieces:
        yield tuple(pieces)


def _quoted(line: str, start: int) -> tuple[str, int]:
    quote, text, i = line[start], "", start + 1
    while i < len(line) and line[i] != quote:
        if quote == '"' and line[i] == "\\" and line[i + 1 : i + 2] in ('"', "\\", "$", "`"):
            text += "\\$" if line[i + 1] == "$" else line[i + 1]
            i += 2
            continue
        end = end_of(line, i) if quote == '"' else i
        text += line[i : max(end, i + 1)]
        i = max(end, i + 1)
    return text, i + 1


def _ansi_quoted(line: str, start: int) -> tuple[str, int]:
    """$'...': a single-quoted string with escapes."""
    found = re.compile(r"'((?:[^'\\]|\\.)*)'?", re.S).match(line, start)
    assert found is not None
    escapes = {"n": "\n", "t": "\t"}
    return re.sub(r"\\(.)", lambda e: escapes.get(e[1], e[1]), found[1]), found.end()
