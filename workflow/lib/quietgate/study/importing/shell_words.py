"""Words of a shell script as they are once variables, arrays and defaults are put in."""

from __future__ import annotations

import re
from collections.abc import Mapping

from quietgate.study.importing.shell_tokens import Piece, tokens_of
from quietgate.study.importing.shell_variables import NAME, expanded, fields

ASSIGNMENT = re.compile(rf"({NAME})(\+?)=(.*)", re.S)
# Lists that a script prolongs; a launch puts the value that the workflow was started with in this place.
PROLONGED = {"PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "LD_PRELOAD"}
_BEFORE = "{inherited}"

Word = tuple[Piece, ...]


class Words:
    """What a script knows, and words worked out with it.

    Attributes:
        variables: name -> value; of an array also its elements, number and indices.
        unknown: expansions that stay as they are written -> a line that says so.
        notes: is told what is left to the workflow.
    """

    def __init__(self, known: Mapping[str, str], notes: list[str]) -> None:
        self.variables: dict[str, str] = dict(known)
        self.unknown: dict[str, str] = {}
        self.notes = notes
        self._arrays: dict[str, list[str]] = {}

    def set_array(self, name: str, items: list[str]) -> None:
        """Make a name an array; the arguments of a function are the array `@`."""
        self._arrays |= {name: items, f"!{name}": [str(i) for i in range(len(items))]}
        joined = " ".join(items)
        self.variables |= {f"{name}[{i}]": item for i, item in enumerate(items)}
        self.variables |= {f"{name}[@]": joined, f"{name}[*]": joined, f"#{name}[@]": str(len(items))}
        if items:
            self.variables[name] = items[0]

    def forget_array(self, name: str) -> None:
        """The opposite."""
        self._arrays.pop(name, None)

    def assign_array(self, found: re.Match[str], token: Word, line: int) -> None:
        """Take NAME=(...) or NAME+=(...), which `ASSIGNMENT` found in the token."""
        name, appending, rest = found.groups()
        inner = (rest or token[1].text).strip()[1:].removesuffix(")")
        items = [w for t in tokens_of(inner) if not isinstance(t, str) for w in self.expand(t, line)]
        self.set_array(name, (self._arrays.get(name, []) if appending else []) + items)

    def expand_for(self, name: str, token: Word, line: int) -> list[str]:
        """What a variable is set to; its own earlier value stays open where it is a list to prolong."""
        is_open = name in PROLONGED and name not in self.variables
        if is_open:
            self.variables[name] = _BEFORE
        words = self.expand(token, line, split=False)
        if is_open:
            del self.variables[name]
            if _BEFORE in "".join(words):
                note = f"line {line}: ${name} is the one that the workflow is started with ({_BEFORE})"
                self.notes += [note] if note not in self.notes else []
        return words

    def expand(self, token: Word, line: int, split: bool = True) -> list[str]:
        """A word's expansions: none, one, or several where an unquoted variable holds blanks."""
        words: list[str] = [""]
        quoted = False
        for piece in token:
            if piece.quote == "'":
                words[-1] += piece.text
                quoted = True
                continue
            quoted |= bool(piece.quote)
            array = re.fullmatch(rf"\$(?:\{{(!?{NAME})\[[@*]\]\}}|(@))", piece.text)
            is_joined = bool(piece.quote) and piece.text.endswith("[*]}")
            if array and not is_joined and (array[1] or array[2]) in self._arrays:
                items = self._arrays[array[1] or array[2]]
                if items:
                    words[-1] += items[0]
                    words += items[1:]
                quoted = bool(items)
                continue
            text = self._expanded(piece.text, line)
            if piece.quote or not split or text == piece.text:
                words[-1] += text
                continue
            first, *others = fields(text)
            words[-1] += first
            words += others
        return [w for w in words if w or quoted]

    def _expanded(self, text: str, line: int) -> str:
        def note(written: str, about: str) -> None:
            self.unknown.setdefault(written, f"line {line}: {about}")

        return expanded(text, self.variables, note)
