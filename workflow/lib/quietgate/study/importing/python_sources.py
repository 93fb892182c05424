"""Servers that a Python program starts: a list of words for subprocess, or a command in a string.

The program is not run: names that it sets to texts and numbers are put in, what it works out is named.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator

from quietgate.study.importing import shell_script
from quietgate.study.importing.launches import Launch
from quietgate.study.importing.shell_script import Command
from quietgate.study.importing.shell_variables import expanded
from quietgate.study.importing.wrappers import server_launches

_TALK = {
    "print",
    "debug",
    "info",
    "warning",
    "error",
    "exception",
    "add_argument",
    "RuntimeError",
    "ValueError",
}
_STARTS = ("sglang.launch_server", "sglang serve")


def launches(text: str) -> list[Launch]:
    """The SGLang servers of a Python program; none where it is no such program."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a text that is no Python
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last of what is nested deeply
        return []
    reader = _Reader()
    reader.statements(tree)
    return [launch for command in reader.commands() for launch in server_launches(command)]


class _Reader:
    """Follows names through a program in the order of its lines."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._lists: list[tuple[int, list[str]]] = []
        self._named: dict[str, list[str]] = {}
        self._strings: list[tuple[int, str]] = []
        self._environment: dict[str, str] = {}
        self._conditions: dict[int, str] = {}

    def statements(self, tree: ast.AST) -> None:
        """Take every assignment, list and call."""
        for node in _in_order(tree):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self._assign(name, value)
                case ast.Assign(targets=[ast.Subscript(value=owner, slice=ast.Constant(value=str(key)))]):
                    if "env" in ast.unparse(owner):
                        self._environment[key] = _word(node.value)
                case ast.AugAssign(target=ast.Name(id=name), value=ast.List(elts=words)):
                    self._prolong(name, words)
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append"), args=[word]):
                    self._prolong(name, [word])
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id=name), attr="extend"), args=[ast.List(elts=words)]
                ):
                    self._prolong(name, words)
                case ast.If() if _prolongs(node):
                    self._conditions[node.lineno] = "if"
                case ast.Call():
                    self._call(node)

    def commands(self) -> Iterator[Command]:
        """The commands of the program: its lists, then its strings."""
        lists = [words for _, words in self._lists]
        for line, words in self._lists:
            if any(len(other) > len(words) and other[: len(words)] == words for other in lists):
                continue  # the beginning of another
            unknown: dict[str, str] = {}

            def note(written: str, _: str, line: int = line, unknown: dict[str, str] = unknown) -> None:
                unknown[written] = _about(line, written)

            words = [expanded(word, self._texts, note) for word in words]
            if " " in words[0]:
                yield from self._script(line, " ".join(words))
            else:
                environment = {n: expanded(v, self._texts, note) for n, v in self._environment.items()}
                yield Command(line, {}, words, environment, [], None, unknown, self._conditions)
        for line, text in self._strings:
            yield from self._script(line, text)

    def _script(self, line: int, text: str) -> Iterator[Command]:
        for command in shell_script.read(text, line, self._texts).commands:
            command.environment = {**self._environment, **command.environment}
            command.unknown = {written: _about(line, written) for written in command.unknown}
            yield command

    def _prolong(self, name: str, words: list[ast.expr]) -> None:
        if name in self._named:
            self._named[name] += map(_word, words)

    def _assign(self, name: str, value: ast.expr) -> None:
        words = self._words(value)
        if words is not None:
            self._named[name] = self._list(value.lineno, words)
        elif isinstance(value, ast.Dict) and "env" in name.lower():
            self._variables(value)
        elif isinstance(value, ast.Constant | ast.JoinedStr):
            self._texts[name] = _word(value)
            self._string(value)

    def _call(self, call: ast.Call) -> None:
        called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        # "...".split() too is given the text.
        split = [call.func.value] if isinstance(call.func, ast.Attribute) else []
        for argument in (
            [*split, *call.args, *(k.value for k in call.keywords)] if called not in _TALK else ()
        ):
            if (words := self._words(argument)) is not None and not isinstance(argument, ast.Name):
                self._list(argument.lineno, words)
            elif isinstance(argument, ast.Constant | ast.JoinedStr):
                self._string(argument)
            elif isinstance(argument, ast.Dict) and called == "update" and "env" in ast.unparse(call.func):
                self._variables(argument)
        for keyword in call.keywords:
            if keyword.arg == "env" and isinstance(keyword.value, ast.Dict):
                self._variables(keyword.value)

    def _words(self, value: ast.expr) -> list[str] | None:
        """The words of a list, of the sum of two, or of a name for one; None for anything else."""
        match value:
            case ast.List(elts=words) | ast.Tuple(elts=words):
                return [_word(word) for word in words]
            case ast.Name(id=name) if name in self._named:
                return list(self._named[name])
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                both = self._words(left), self._words(right)
                return None if both[0] is None or both[1] is None else [*both[0], *both[1]]
        return None

    def _list(self, line: int, words: list[str]) -> list[str]:
        if any(start in " ".join(words) for start in _STARTS):
            self._lists.append((line, words))
        return words

    def _string(self, value: ast.expr) -> None:
        text = _word(value)
        if any(start in text for start in _STARTS):
            self._strings.append((value.lineno, text))

    def _variables(self, value: ast.Dict) -> None:
        for key, given in zip(value.keys, value.values, strict=True):
            if isinstance(key, ast.Constant):
                self._environment[str(key.value)] = _word(given)


def _in_order(tree: ast.AST) -> list[ast.AST]:
    return sorted(ast.walk(tree), key=lambda node: getattr(node, "lineno", 0))


def _prolongs(condition: ast.If) -> bool:
    """Does a list get more words on a condition?"""
    inside = list(ast.walk(condition))
    calls = [n.func.attr for n in inside if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)]
    return bool({"append", "extend"} & set(calls)) or any(isinstance(n, ast.AugAssign) for n in inside)


def _word(node: ast.expr) -> str:
    """A word of a command line; what the program works out as ${...}, in the shell's spelling."""
    match node:
        case ast.Constant(value=value):
            return str(value)
        case ast.Call(func=ast.Name(id="str"), args=[inner]):
            return _word(inner)
        case ast.JoinedStr(values=parts):
            return "".join(map(_word, parts))
        case ast.FormattedValue(value=inner):
            return _word(inner)
        case ast.Attribute() if ast.unparse(node) == "sys.executable":
            return "python"
        case ast.Starred(value=inner):
            return f"${{{ast.unparse(inner)}[@]}}"
    return f"${{{ast.unparse(node)}}}"


def _about(line: int, written: str) -> str:
    return (
        f"line {line}: {written} is worked out by the program and not known here; it is left as written, "
        "put its value in its place"
    )
