"""A shell script as simple commands with their words expanded, without running anything.

Enough of the shell to read a launch script: quotes, continuations, comments, assignments, exports,
arrays, variables, redirections, chains, background. What only a shell can know (command substitution,
its own variables, control flow) is left as written and named in the notes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

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
_REDIRECTIONS = {">", ">>", "<", "&>", "&>>", ">&", "<&", "<<<", "<<"}
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_ASSIGNMENT = re.compile(rf"({_NAME})(\+?)=(.*)", re.S)
_VARIABLE = re.compile(
    rf"\$(?:(?P<bare>{_NAME}|[@*#?$!0-9])|\{{(?P<braced>{_NAME}|[@*0-9])(?P<array>\[[@*]\])?(?::?(?P<how>[-=])(?P<default>[^}}]*))?\}})"
)
_SUBSTITUTION = re.compile(r"\$\(|`")
_CONTROL = {"for", "while", "until", "if", "case", "function", "select", "then", "do", "else", "elif"}
_CONTROL_END = {"done", "fi", "esac", "{", "}", "(", ")"}


@dataclass(frozen=True)
class _Piece:
    """Part of a word: as typed, in double quotes (expanded, not split) or in single quotes (neither)."""

    text: str
    quote: str  # "", '"' or "'"


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
    for line, tokens in _commands(_joined(text)):
        reader.command(line, tokens)
    return reader.script


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
    return bool(re.search(rf"(?:^|\s){_NAME}\+?=\([^)]*$", text))


Token = tuple[_Piece, ...] | str  # a word, or an operator


def _commands(lines: list[tuple[int, str]]) -> Iterator[tuple[int, list[Token]]]:
    for number, line in lines:
        current: list[Token] = []
        for token in _tokens(line):
            if isinstance(token, str) and token not in _REDIRECTIONS and token not in ("(", ")"):
                if current:
                    yield number, current
                current = []
            else:
                current.append(token)
        if current:
            yield number, current


def _tokens(line: str) -> Iterator[Token]:
    i, pieces = 0, list[_Piece]()
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
            pieces.append(_Piece(text, c))
        elif c == "\\" and i + 1 < len(line):
            pieces.append(_Piece(line[i + 1], "'"))
            i += 2
        elif (end := _substitution_end(line, i)) > i:
            pieces.append(_Piece(line[i:end], ""))
            i = end
        elif operator := next((o for o in _OPERATORS if line.startswith(o, i)), None):
            # "2>file": the number belongs to the redirection. NAME=( opens an array.
            if operator == "(" and pieces and pieces[-1].text.endswith("="):
                close = line.find(")", i)
                close = len(line) if close < 0 else close
                pieces.append(_Piece(line[i : close + 1], ""))
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
            pieces.append(_Piece(line[start:i], ""))
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


def _substitution_end(line: str, start: int) -> int:
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
                skip = token in _REDIRECTIONS
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
        self, found: re.Match[str], token: tuple[_Piece, ...], into: dict[str, str], line: int
    ) -> None:
        name, appending, rest = found.groups()
        if rest.startswith("(") or (not rest and len(token) > 1 and token[1].text.startswith("(")):
            inner = (rest or token[1].text).strip()[1:].removesuffix(")")
            items = [w for t in _tokens(inner) if not isinstance(t, str) for w in self._expand(t, line)]
            self._arrays[name] = (self._arrays.get(name, []) if appending else []) + items
            return
        value = "".join(self._expand((_Piece(rest, '"'), *token[1:]), line, split=False))
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

    def _expand(self, token: tuple[_Piece, ...], line: int, split: bool = True) -> list[str]:
        """A word's expansions: none, one, or several where an unquoted variable holds blanks."""
        words: list[str] = [""]
        quoted = False
        for piece in token:
            if piece.quote == "'":
                words[-1] += piece.text
                quoted = True
                continue
            quoted |= bool(piece.quote)
            array = re.fullmatch(rf"\$\{{({_NAME})\[[@*]\]\}}", piece.text)
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
            end = _substitution_end(text, found.start())
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
