"""A shell script as simple commands with their words expanded, without running anything.

Enough of the shell to read a launch script: quotes, continuations, comments, assignments, exports,
arrays, variables, redirections, chains, background. What only a shell can know (command substitution,
its own variables, control flow) is left as written and named in the notes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from quietgate.study.shell_tokens import (
    NAME,
    REDIRECTIONS,
    Piece,
    Token,
    commands,
    substitution_end,
    tokens_of,
)

_ASSIGNMENT = re.compile(rf"({NAME})(\+?)=(.*)", re.S)
_VARIABLE = re.compile(
    rf"\$(?:(?P<bare>{NAME}|[@*#?$!0-9])|\{{(?P<braced>{NAME}|[@*0-9])(?P<array>\[[@*]\])?(?::?(?P<how>[-=])(?P<default>[^}}]*))?\}})"
)
_SUBSTITUTION = re.compile(r"\$\(|`")
_CONTROL = {"for", "while", "until", "if", "case", "function", "select", "then", "do", "else", "elif"}
_CONTROL_END = {"done", "fi", "esac", "{", "}", "(", ")"}


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


def read(text: str) -> Script:
    """Take a script apart."""
    reader = _Reader()
    for line, tokens in commands(text):
        reader.command(line, tokens)
    return reader.script


class _Reader:
    """Follows variables through a script."""

    def __init__(self) -> None:
        self.script = Script()
        self._variables: dict[str, str] = {}
        self._arrays: dict[str, list[str]] = {}
        self._exported: set[str] = set()
        self._unset: list[str] = []
        self._folder: str | None = None

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
            if not words and (found := _ASSIGNMENT.match(token[0].text)) and token[0].quote == "":
                self._assign(found, token, assignments, line)
                continue
            words += self._expand(token, line)
        while words and words[0] in _CONTROL_END | _CONTROL | {"!"}:
            if words[0] in _CONTROL:
                self.note(
                    f"line {line}: shell control flow ({words[0]}) is not followed; every branch is read"
                )
                if words[0] in ("for", "case", "select", "function"):
                    return
            words = words[1:]
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
        value = "".join(self._expand((Piece(rest, '"'), *token[1:]), line, split=False))
        into[name] = (self._variables.get(name, "") if appending else "") + value

    def _builtin(self, words: list[str], assignments: dict[str, str], line: int) -> bool:
        """Take a command that changes what later commands see."""
        match words[0]:
            case "export" | "declare" | "typeset" | "readonly" | "local" | "set":
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
            case "source" | "." | "conda" | "mamba" | "micromamba" | "module" if words[0] in (
                "source",
                ".",
            ) or ("activate" in words[1:2] or "load" in words[1:2]):
                self.note(
                    f"line {line}: `{' '.join(words)}` is not run; name the interpreter that it would select"
                )
            case "ulimit":
                self.note(f"line {line}: `{' '.join(words)}` is not applied to the server")
            case _:
                return False
        return True

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
            text = self._substituted(piece.text, line)
            if piece.quote or not split or text == piece.text:
                words[-1] += text
                continue
            parts = re.split(r"\s+", text)
            words[-1] += parts[0]
            words += parts[1:]
        return [w for w in words if w or quoted]

    def _substituted(self, text: str, line: int) -> str:
        """Variables replaced by their values; a command substitution stays as written."""
        out, start = "", 0
        while found := _SUBSTITUTION.search(text, start):
            end = substitution_end(text, found.start())
            out += self._with_variables(text[start : found.start()], line)
            out += text[found.start() : end]
            self.note(f"line {line}: {text[found.start() : end]} is not run; put its value in its place")
            start = end
        return out + self._with_variables(text[start:], line)

    def _with_variables(self, text: str, line: int) -> str:
        def value(found: re.Match[str]) -> str:
            name = found["bare"] or found["braced"]
            if found.start() and text[found.start() - 1] == "\\":
                return found[0]
            if name in self._variables:
                return self._variables[name]
            if found["default"] is not None:
                return found["default"]
            self.note(
                f"line {line}: {found[0]} comes from your shell and is not known here; it is left as "
                "written, put its value in its place"
            )
            return found[0]

        return _VARIABLE.sub(value, text).replace("\\$", "$")
