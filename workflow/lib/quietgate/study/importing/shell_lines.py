"""The lines of a shell script or a pasted terminal as whole commands: continuations, prompts, here-documents.

More forgiving than a shell, which would stop: comments between continued lines, a blank behind the backslash,
a continuation that lost it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from quietgate.study.importing.shell_variables import NAME, closing

_PROMPT = re.compile(
    r"\s*(?:\([\w.-]+\)\s*)?"
    r"(?:(?:\[?[\w.-]+@[\w.-]+[^\s\]]*(?:\s\S+\])?\s*[$#%]|(?:ba)?sh-[\d.]+[$#]|PS [^>]*>|[$>❯➜]) (?=\S)"
    r"|!(?=\w))"
)
_NEXT_PROMPT = re.compile(r"\s*>\s+(?=\S)")  # of a continued line; else it is a redirection
_CONTINUED = re.compile(r"(.*)\\(?:\s*|\s+#.*)$", re.S)
_HEREDOC = re.compile(rf"(?<!<)<<(-?)\s*(['\"]?)({NAME})\2")
_ARITHMETIC = re.compile(r"\(\([^()]*\)\)")
_FLAG = re.compile(r"\s*--[A-Za-z]")
# A quotation over more lines than this is an apostrophe of prose; no command is longer either.
_LONGEST = 400
_ARRAY = re.compile(rf"(?:^|\s){NAME}\+?=\(")

Line = tuple[int, str]


@dataclass(frozen=True)
class Heredoc:
    """A here-document: the number of its first line, its text, and whether the shell expands it."""

    line: int
    text: str
    is_expanded: bool


@dataclass
class Lines:
    """A script: logical lines with the number of their first line, and the here-documents in it."""

    commands: list[Line] = field(default_factory=list)
    heredocs: list[Heredoc] = field(default_factory=list)


def split(text: str, first: int = 1) -> Lines:
    """Take a text apart.

    Args:
        text: the script.
        first: the number of its first line.
    """
    lines = Lines()
    numbered = list(enumerate(text.replace("\r\n", "\n").split("\n"), first))
    while numbered:
        numbered = _taken(numbered, lines)
    return lines


def _taken(numbered: list[Line], lines: Lines) -> list[Line]:
    """Take lines; what is left: nothing, or what follows the line of a quotation that never ends."""
    rest = iter(numbered)
    pending, begun, prompted = "", 0, False
    opened: Line | None = None  # where what is pending became a quotation or an array
    for number, raw in rest:
        line = raw
        if line.lstrip().startswith(("```", "#")) and not inside_quotes(pending):
            continue  # also in the middle of a continued command, where a shell would stop
        if not pending:
            line, prompts = _PROMPT.subn("", line, count=1) if _PROMPT.match(line) else (line, 0)
            prompted = bool(prompts)
            if _FLAG.match(line) and lines.commands and number - lines.commands[-1][0] < _LONGEST:
                begun, before = lines.commands.pop()
                pending = before + "\n"  # a continuation that lost its backslash
        elif not inside_quotes(pending) and (not line.strip() or number - begun > _LONGEST):
            lines.commands.append((begun, pending))
            pending = ""
            continue
        elif (found := _NEXT_PROMPT.match(line)) and (prompted or line[found.end()] == "-"):
            line = line[found.end() :]
        begun = begun if pending else number
        whole = pending + line
        pending = ""
        is_open = inside_quotes(whole) or inside_array(whole)
        opened = (opened or (number, whole)) if is_open else None
        continued = _CONTINUED.match(whole)
        if continued:
            # A line end ends a comment; in quotes, a shell leaves nothing of it.
            begins = continued[1].rstrip("\\")  # doubled in a script that another one writes
            pending = begins + ("" if inside_quotes(begins) else "\n")
        elif opened:
            pending = whole + "\n"
            if number - opened[0] > _LONGEST:
                break
        else:
            lines.commands.append((begun, whole))
            if found := _HEREDOC.search(_ARITHMETIC.sub("", whole)):
                body = []
                for _, inner in rest:
                    if (inner.strip() if found[1] else inner.rstrip()) == found[3]:
                        break
                    body.append(inner)
                lines.heredocs.append(Heredoc(number + 1, "\n".join(body), not found[2]))
    if not pending.strip():
        return []
    lines.commands.append((begun, opened[1] if opened else pending))
    return [line for line in numbered if line[0] > opened[0]] if opened else []


def inside_array(text: str) -> bool:
    """Does an array begin in this text and not end?"""
    return any(closing(text, found.end() - 1) is None for found in _ARRAY.finditer(text))


def inside_quotes(text: str) -> bool:
    """Does a quoted string begin in this text and not end?"""
    quote, i = "", 0
    while i < len(text):
        c = text[i]
        if c == "\\" and quote != "'":
            i += 1
        elif quote:
            quote = "" if c == quote else quote
        elif c in "'\"":
            quote = c
        elif c == "#" and text[i - 1 : i] in ("", " ", "\t", "\n"):
            end = text.find("\n", i)
            i = len(text) if end < 0 else end
        i += 1
    return bool(quote)
