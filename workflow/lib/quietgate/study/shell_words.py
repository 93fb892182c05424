"""A shell script as simple commands with their words expanded, without running anything.

Enough of the shell to read a launch script: quotes, continuations, comments, assignments, exports,
arrays, variables, redirections, chains, background. What only a shell can know (command substitution,
its own variables, control flow) is left as written and named in the notes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from quietgate.study import shell_lines
from quietgate.study.shell_lines import Line
from quietgate.study.shell_tokens import REDIRECTIONS, Piece, Token, commands, tokens_of
from quietgate.study.shell_variables import NAME, expanded

_ASSIGNMENT = re.compile(rf"({NAME})(\+?)=(.*)", re.S)
_CONTROL = {"for", "while", "until", "if", "case", "function", "select", "then", "do", "else", "elif"}
_CONTROL_END = {"done", "fi", "esac", "{", "}", "(", ")", "!"}
_DECLARING = {"export", "declare", "typeset", "readonly", "local"}
# Lists that a script prolongs; a launch puts the value that the workflow was started with in this place.
_PROLONGED = {"PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "LD_PRELOAD"}
_BEFORE = "{inherited}"
_HEADS = {"for", "case", "select", "function"}  # what follows on their line is no command


@dataclass
class Command:
    """A simple command: the assignments before it and its words, expanded."""

    line: int
    assignments: dict[str, str]
    words: list[str]
    environment: dict[str, str]
    unset: list[str]
    folder: str | None


@dataclass
class Script:
    """Every command of a script in order, and what could not be known."""

    commands: list[Command] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    heredocs: list[Line] = field(default_factory=list)


def read(text: str, first: int = 1, known: Mapping[str, str] | None = None) -> Script:
    """Take a script apart.

    Args:
        text: the script.
        first: the number of its first line, where it stands in another file.
        known: variables that it inherits.
    """
    reader = _Reader(known or {})
    lines = shell_lines.split(text, first)
    reader.read(lines.commands)
    reader.script.heredocs = lines.heredocs
    return reader.script


class _Reader:
    """Follows variables through a script."""

    def __init__(self, known: Mapping[str, str]) -> None:
        self.script = Script()
        self._variables: dict[str, str] = dict(known)
        self._arrays: dict[str, list[str]] = {}
        self._exported: set[str] = set()
        self._unset: list[str] = []
        self._folder: str | None = None

    def read(self, lines: list[Line]) -> None:
        for line, tokens in commands(lines):
            self.command(line, tokens)

    def note(self, text: str) -> None:
        if text not in self.script.notes:
            self.script.notes.append(text)

    def command(self, line: int, tokens: list[Token]) -> None:
        assignments: dict[str, str] = {}
        words: list[str] = []
        skip = False
        for token in tokens:
            if isinstance(token, str):
                skip = token in REDIRECTIONS
                continue
            if skip:
                skip = False  # the target of a redirection
                continue
            if not words and not assignments and (word := _control(token)):
                if word in _CONTROL:
                    self.note(
                        f"line {line}: shell control flow ({word}) is not followed; every branch is read"
                    )
                if word in _HEADS:
                    return
                continue
            found = _ASSIGNMENT.match(token[0].text) if token[0].quote == "" else None
            if found and not words:
                self._assign(found, token, assignments, line)
            elif found and words[0] in _DECLARING:
                words += self._expand_for(found[1], token, line)
            else:
                words += self._expand(token, line)
        if not words:
            self._variables.update(assignments)
            return
        if not self._builtin(words, assignments, line):
            exported = {n: self._variables[n] for n in self._variables if n in self._exported}
            self.script.commands.append(
                Command(line, assignments, words, exported, list(self._unset), self._folder)
            )

    def _assign(
        self, found: re.Match[str], token: tuple[Piece, ...], into: dict[str, str], line: int
    ) -> None:
        name, appending, rest = found.groups()
        if rest.startswith("(") or (not rest and len(token) > 1 and token[1].text.startswith("(")):
            inner = (rest or token[1].text).strip()[1:].removesuffix(")")
            items = [w for t in tokens_of(inner) if not isinstance(t, str) for w in self._expand(t, line)]
            self._arrays[name] = (self._arrays.get(name, []) if appending else []) + items
            return
        value = "".join(self._expand_for(name, (Piece(rest, '"'), *token[1:]), line))
        into[name] = (self._variables.get(name, "") if appending else "") + value

    def _builtin(self, words: list[str], assignments: dict[str, str], line: int) -> bool:
        """Take a command that changes what later commands see."""
        match words[0]:
            case name if name in _DECLARING | {"set"}:
                self._variables.update(assignments)
                for word in words[1:]:
                    if found := _ASSIGNMENT.fullmatch(word):
                        self._variables[found[1]] = found[3]
                    if words[0] == "export" or "-x" in words:
                        self._exported.add(word.partition("=")[0].rstrip("+"))
            case "unset":
                for name in words[1:]:
                    if not name.startswith("-"):
                        self._variables.pop(name, None)
                        self._unset.append(name)
            case "cd" | "pushd":
                self._folder = words[1] if len(words) > 1 else "~"
            case "eval":
                self.read([(line, " ".join(words[1:]))])
            case "source" | "." | "conda" | "mamba" | "micromamba" | "module" if words[0] in (
                "source",
                ".",
            ) or ("activate" in words[1:2] or "load" in words[1:2]):
                sets = words[0] in ("source", ".") and not words[-1].endswith("activate")
                cure = (
                    "add what it sets to server.env or the profile"
                    if sets
                    else "name the interpreter that it would select"
                )
                self.note(f"line {line}: `{' '.join(words)}` is not run; {cure}")
            case "ulimit":
                self.note(f"line {line}: `{' '.join(words)}` is not applied to the server")
            case _:
                return False
        return True

    def _expand_for(self, name: str, token: tuple[Piece, ...], line: int) -> list[str]:
        """What a variable is set to; its own earlier value stays open where it is a list to prolong."""
        is_open = name in _PROLONGED and name not in self._variables
        if is_open:
            self._variables[name] = _BEFORE
        words = self._expand(token, line, split=False)
        if is_open:
            del self._variables[name]
            if _BEFORE in "".join(words):
                self.note(f"line {line}: ${name} is the one that the workflow is started with ({_BEFORE})")
        return words

    def _expand(self, token: tuple[Piece, ...], line: int, split: bool = True) -> list[str]:
        """A word's expansions: none, one, or several where an unquoted variable holds blanks."""
        words: list[str] = [""]
        quoted = False
        for piece in token:
            if piece.quote == "'":
                words[-1] += piece.text
                quoted = True
                continue
            quoted |= bool(piece.quote)
            array = re.fullmatch(rf"\$\{{({NAME})\[[@*]\]\}}", piece.text)
            if array and array[1] in self._arrays:
                items = self._arrays[array[1]]
                if items:
                    words[-1] += items[0]
                    words += items[1:]
                quoted = True
                continue
            text = self._expanded(piece.text, line)
            if piece.quote or not split or text == piece.text:
                words[-1] += text
                continue
            parts = re.split(r"\s+", text)
            words[-1] += parts[0]
            words += parts[1:]
        return [w for w in words if w or quoted]

    def _expanded(self, text: str, line: int) -> str:
        return expanded(text, self._variables, lambda note: self.note(f"line {line}: {note}"))


def _control(token: tuple[Piece, ...]) -> str | None:
    """The word of the shell's own grammar that this is, or None."""
    word = token[0].text
    return word if len(token) == 1 and not token[0].quote and word in _CONTROL | _CONTROL_END else None
