"""The lines of a shell script or a pasted terminal as whole commands: continuations, prompts, here-documents.

More forgiving than a shell, which would stop: comments between continued lines, a blank behind the backslash,
a continuation that lost it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from quietgate.study.shell_variables import NAME

_PROMPT = re.compile(r"\s*(?:\([\w.-]+\)\s*)?(?:[\w.-]+@[\w.-]+\S*\s*[$#%]|[$>]) (?=\S)")
_NEXT_PROMPT = re.compile(r"\s*> (?=\S)")  # of a continued line; else it is a redirection
_CONTINUED = re.compile(r"(.*)\\(?:\s*|\s+#.*)$", re.S)
_HEREDOC = re.compile(rf"(?<!<)<<(-?)\s*(['\"]?)({NAME})\2")
_ARRAY = re.compile(rf"(?:^|\s){NAME}\+?=\([^)]*$")

Line = tuple[int, str]


@dataclass
class Lines:
    """A script: logical lines with the number of their first line, and the here-documents in it."""

    commands: list[Line] = field(default_factory=list)
    heredocs: list[Line] = field(default_factory=list)


def split(text: str, first: int = 1) -> Lines:
    """Take a text apart.

    Args:
        text: the script.
        first: the number of its first line.
    """
    lines = Lines()
    numbered = iter(enumerate(text.replace("\r\n", "\n").split("\n"), first))
    pending, begun, prompted = "", 0, False
    for number, raw in numbered:
        line = raw
        if line.lstrip().startswith(("```", "#")) and not inside_quotes(pending):
            continue  # also in the middle of a continued command, where a shell would stop
        if not pending:
            line, prompts = _PROMPT.subn("", line, count=1) if _PROMPT.match(line) else (line, 0)
            prompted = bool(prompts)
            if line.lstrip().startswith("--") and lines.commands:
                begun, before = lines.commands.pop()
                pending = before + "\n"  # a continuation that lost its backslash
        elif not line.strip() and not inside_quotes(pending):
            lines.commands.append((begun, pending))
            pending = ""
            continue
        elif (found := _NEXT_PROMPT.match(line)) and (prompted or line[found.end()] == "-"):
            line = line[found.end() :]
        begun = begun if pending else number
        whole = pending + line
        pending = ""
        continued = _CONTINUED.match(whole)
        if continued and not continued[1].endswith("\\"):
            # A line end ends a comment; in quotes, a shell leaves nothing of it.
            pending = continued[1] + ("" if inside_quotes(continued[1]) else "\n")
        elif inside_quotes(whole) or _ARRAY.search(whole):
            pending = whole + "\n"
        else:
            lines.commands.append((begun, whole))
            if found := _HEREDOC.search(whole):
                body = []
                for _, inner in numbered:
                    if (inner.strip() if found[1] else inner.rstrip()) == found[3]:
                        break
                    body.append(inner)
                lines.heredocs.append((number + 1, "\n".join(body)))
    if pending.strip():
        lines.commands.append((begun, pending))
    return lines


def inside_quotes(text: str) -> bool:
    """Does a quoted string begin in this text and not end?"""
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
