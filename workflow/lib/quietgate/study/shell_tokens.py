"""A shell script's text as simple commands: lines joined, quotes read, words and operators told apart."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

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
REDIRECTIONS = {">", ">>", "<", "&>", "&>>", ">&", "<&", "<<<", "<<"}
NAME = r"[A-Za-z_][A-Za-z0-9_]*"


@dataclass(frozen=True)
class Piece:
    """Part of a word: as typed, in double quotes (expanded, not split) or in single quotes (neither)."""

    text: str
    quote: str  # "", '"' or "'"


Token = tuple[Piece, ...] | str  # a word, or an operator


def commands(text: str) -> Iterator[tuple[int, list[Token]]]:
    """The simple commands of a script: the line each starts in, and its words and redirections."""
    for number, line in _joined(text):
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


def _joined(text: str) -> list[tuple[int, str]]:
    """Logical lines with the number of their first line; what people type around them taken off."""
    joined: list[tuple[int, str]] = []
    pending, first = "", 0
    for number, raw in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        line = raw
        if line.lstrip().startswith(("```", "#")) and not _inside_quotes(pending):
            continue  # also in the middle of a continued command, where a shell would stop
        if not pending:
            line = re.sub(r"^\s*[$>] (?=\S)", "", line)  # a copied prompt
            if line.lstrip().startswith("--") and joined:
                number_before, before = joined.pop()
                pending, first = before + " ", number_before  # a continuation that lost its backslash
        elif not line.strip() and not _inside_quotes(pending):
            joined.append((first, pending))
            pending = ""
            continue
        whole = pending + line if pending else line
        first = first if pending else number
        continued = re.match(r"(.*)\\\s*$", whole, re.S)
        if continued and not continued[1].endswith("\\"):
            pending = continued[1] + " "
        elif _inside_quotes(whole) or _open_array(whole):
            pending = whole + "\n"
        else:
            joined.append((first, whole))
            pending = ""
    if pending.strip():
        joined.append((first, pending))
    return joined


def _inside_quotes(text: str) -> bool:
    quote = ""
    escaped = False
    for c in text:
        if escaped:
            escaped = False
        elif c == "\\" and quote != "'":
            escaped = True
        elif quote:
            quote = "" if c == quote else quote
        elif c in "'\"":
            quote = c
    return bool(quote)


def _open_array(text: str) -> bool:
    return bool(re.search(rf"(?:^|\s){NAME}\+?=\([^)]*$", text))


def tokens_of(line: str) -> Iterator[Token]:
    """The words and operators of a logical line, nothing expanded."""
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
        elif c in "'\"":
            text, i = _quoted(line, i)
            pieces.append(Piece(text, c))
        elif c == "\\" and i + 1 < len(line):
            pieces.append(Piece(line[i + 1], "'"))
            i += 2
        elif (end := substitution_end(line, i)) > i:
            pieces.append(Piece(line[i:end], ""))
            i = end
        elif operator := next((o for o in _OPERATORS if line.startswith(o, i)), None):
            # "2>file": the number belongs to the redirection. NAME=( opens an array.
            if operator == "(" and pieces and pieces[-1].text.endswith("="):
                close = line.find(")", i)
                close = len(line) if close < 0 else close
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
            while i < len(line) and line[i] not in " \t\n'\"\\;|&<>()`" and not line.startswith("$(", i):
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
        text += line[i]
        i += 1
    return text, i + 1


def substitution_end(line: str, start: int) -> int:
    """Where a $(...) or `...` that starts here ends, else `start`."""
    if line[start] == "`":
        end = line.find("`", start + 1)
        return len(line) if end < 0 else end + 1
    if not line.startswith("$(", start):
        return start
    depth = 0
    for i in range(start + 1, len(line)):
        depth += (line[i] == "(") - (line[i] == ")")
        if depth == 0:
            return i + 1
    return len(line)
