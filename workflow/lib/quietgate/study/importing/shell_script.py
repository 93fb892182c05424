"""A shell script as simple commands with their words expanded, without running anything.

Enough of the shell to read a launch script: quotes, continuations, comments, assignments, exports,
arrays, variables, redirections, chains, background, loops over a list. What only a shell can know
(command substitution, its own variables, conditions) is left as written and named.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from quietgate.study.importing import shell_blocks, shell_lines
from quietgate.study.importing.shell_lines import Heredoc, Line
from quietgate.study.importing.shell_tokens import REDIRECTIONS, Piece, Token, commands
from quietgate.study.importing.shell_words import ASSIGNMENT, PROLONGED, Word, Words

_CONTROL = {"for", "while", "until", "if", "case", "function", "select", "then", "do", "else", "elif"}
_CONTROL_END = {"done", "fi", "esac", "{", "}", "(", ")", "!"}
_CONDITIONS = {"for", "while", "until", "if", "elif", "case", "select", "[", "[[", "test"}
_DECLARING = {"export", "declare", "typeset", "readonly", "local"}
_HEADS = {"for", "case", "select", "function"}  # what follows on their line is no command
# No launch script needs more: what would is cut short.
_MOST_COMMANDS = 20_000
_DEEPEST = 8  # calls within calls


@dataclass
class Command:
    """A simple command: the assignments before it and its words, expanded.

    Attributes:
        unknown: expansions that stand as they are written -> a line that says so.
        conditions: the shell's conditions before it, which are not followed: line -> word.
    """

    line: int
    assignments: dict[str, str]
    words: list[str]
    environment: dict[str, str]
    unset: list[str]
    folder: str | None
    unknown: Mapping[str, str] = field(default_factory=dict)
    conditions: Mapping[int, str] = field(default_factory=dict)


@dataclass
class Script:
    """Every command of a script in order, and what could not be done."""

    commands: list[Command] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    heredocs: list[Heredoc] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)


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
    reader.uncalled()
    reader.script.heredocs = lines.heredocs
    reader.script.variables = reader.words.variables
    return reader.script


class _Reader:
    """Follows variables through a script."""

    def __init__(self, known: Mapping[str, str]) -> None:
        self.script = Script()
        self.words = Words(known, self.script.notes)
        self._exported: set[str] = set()
        self._unset: list[str] = []
        self._folder: str | None = None
        self._left_folders: list[str | None] = []  # by pushd
        self._subshells: list[str | None] = []  # the folders around them
        self._conditions: dict[int, str] = {}
        self._functions: dict[str, list[tuple[int, list[Token]]]] = {}
        self._called: set[str] = set()
        self._depth = 0
        self._commands_left = _MOST_COMMANDS

    def read(self, lines: list[Line]) -> None:
        self._run(list(commands(lines)))

    def _run(self, read: list[tuple[int, list[Token]]]) -> None:
        """Take commands in order: a function where it is called, a loop once for each of its known values."""
        i = 0
        while i < len(read):
            line, tokens = read[i]
            name = shell_blocks.function(tokens)
            if name and (end := shell_blocks.function_end(read, i)) > i:
                first = (line, tokens[3:] if tokens[1] == "(" else tokens[2:])
                self._functions[name] = [first, *read[i + 1 : end]]
                i = end + 1
                continue
            loop = shell_blocks.head(tokens)
            end = shell_blocks.end(read, i) if loop else i
            values = loop and shell_blocks.values(loop[1], partial(self.words.expand, line=line))
            if loop and end > i and values and self._commands_left > 0:
                for value in values:
                    if self._commands_left <= 0:
                        break
                    self.words.variables[loop[0]] = value
                    self._run(read[i + 1 : end])
                i = end
            else:
                self.command(line, tokens)
                i += 1

    def uncalled(self) -> None:
        """Take the functions that nothing in the script calls."""
        for name in self._functions:
            if name not in self._called:
                self._run(self._functions[name])

    def _call(self, words: list[str]) -> None:
        """Take a function with its arguments in place."""
        self._called.add(words[0])
        given = {str(i): word for i, word in enumerate(words) if i}
        before = {n: v for n, v in self.words.variables.items() if n.isdigit()}
        self._depth += 1
        if self._depth <= _DEEPEST and self._commands_left > 0:
            self.words.set_array("@", words[1:])
            self.words.variables |= {**given, "#": str(len(given)), "@": " ".join(words[1:])}
            self._run(self._functions[words[0]])
        self._depth -= 1
        for name in ("@", "#", *given):
            self.words.variables.pop(name, None)
        self.words.forget_array("@")
        self.words.variables |= before

    def note(self, text: str) -> None:
        if text not in self.script.notes:
            self.script.notes.append(text)

    def command(self, line: int, tokens: list[Token]) -> None:
        assignments: dict[str, str] = {}
        words: list[str] = []
        skip = False
        self._commands_left -= 1
        self._subshells += [self._folder] * tokens.count("(")
        for token in tokens:
            if isinstance(token, str):
                skip = token in REDIRECTIONS
                continue
            if skip:
                skip = False  # the target of a redirection
                continue
            if not words and not assignments and (word := _control(token)):
                if word in _CONDITIONS:
                    self._conditions.setdefault(line, word)
                if word in _HEADS:
                    return
                continue
            declares = bool(words) and words[0] in _DECLARING
            plain = token[0].quote == "" or (declares and token[0].quote == '"')
            found = ASSIGNMENT.match(token[0].text) if plain else None
            if found and (not words or declares) and _is_array(found, token):
                self.words.assign_array(found, token, line)
            elif found and not words:
                value = "".join(self.words.expand_for(found[1], (Piece(found[3], '"'), *token[1:]), line))
                assignments[found[1]] = (self.words.variables.get(found[1], "") if found[2] else "") + value
            elif (found and declares) or _prolongs(token):
                found = found or ASSIGNMENT.match(token[0].text)
                assert found is not None
                words += self.words.expand_for(found[1], token, line)
            else:
                words += self.words.expand(token, line)
        if not words:
            self.words.variables.update(assignments)
        elif words[0] in self._functions:
            self.words.variables.update(assignments)
            self._call(words)
        elif not self._builtin(words, assignments, line):
            exported = {n: self.words.variables[n] for n in self.words.variables if n in self._exported}
            self.script.commands.append(
                Command(
                    line,
                    assignments,
                    words,
                    exported,
                    list(self._unset),
                    self._folder,
                    self.words.unknown,
                    dict(self._conditions),
                )
            )
        for _ in range(min(tokens.count(")"), len(self._subshells))):
            self._folder = self._subshells.pop()

    def _builtin(self, words: list[str], assignments: dict[str, str], line: int) -> bool:
        """Take a command that changes what later commands see."""
        match words[0]:
            case "set" if "--" in words:
                self.words.set_array("@", words[words.index("--") + 1 :])
            case name if name in _DECLARING | {"set"}:
                self.words.variables.update(assignments)
                for word in words[1:]:
                    if found := ASSIGNMENT.fullmatch(word):
                        self.words.variables[found[1]] = found[3]
                    if words[0] == "export" or "-x" in words:
                        self._exported.add(word.partition("=")[0].rstrip("+"))
            case "unset":
                for name in words[1:]:
                    if not name.startswith("-"):
                        self.words.variables.pop(name, None)
                        self._unset.append(name)
            case "cd" | "pushd" | "popd":
                self._change_folder(words)
            case "eval":
                self._depth += 1
                if self._depth <= _DEEPEST:
                    self.read([(line, " ".join(words[1:]))])
                self._depth -= 1
            case "[" | "[[" | "test":
                self._conditions.setdefault(line, words[0])
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

    def _change_folder(self, words: list[str]) -> None:
        if words[0] == "popd":
            self._folder = self._left_folders.pop() if self._left_folders else None
            return
        if words[0] == "pushd":
            self._left_folders.append(self._folder)
        to = words[1] if len(words) > 1 else "~"
        stands_alone = to.startswith(("/", "~", "$", "`")) or self._folder is None
        self._folder = to if stands_alone else f"{self._folder}/{to}"


def _is_array(found: re.Match[str], token: Word) -> bool:
    rest = found[3]
    return rest.startswith("(") or (not rest and len(token) > 1 and token[1].text.startswith("("))


def _prolongs(token: Word) -> bool:
    """Is this, among the words of a command (env, docker run -e), a list with its own earlier value in it?"""
    found = ASSIGNMENT.match(token[0].text) if token[0].quote != "'" else None
    return found is not None and found[1] in PROLONGED


def _control(token: Word) -> str | None:
    """The word of the shell's own grammar that this is, or None."""
    word = token[0].text
    return word if len(token) == 1 and not token[0].quote and word in _CONTROL | _CONTROL_END else None
