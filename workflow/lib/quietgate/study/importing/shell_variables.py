"""What a word of a shell script becomes once its variables are put in.

Parameters with their defaults and cut patterns and whole-number arithmetic are worked out; what only a shell
can know (a command's output, a variable of its own) stays as written and is named.
"""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable, MutableMapping
from fnmatch import fnmatchcase

NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_PLAIN = re.compile(rf"\$(?:{NAME}|[@*#?$!0-9])")
_BRACED = re.compile(rf"({NAME}|[0-9])(?:(:?[-=?+]|##?|%%?)(.*))?", re.S)
# Characters of a value: one that doubles itself again and again would take all memory.
_LONGEST_VALUE = 100_000
_CLOSING = {"(": ")", "{": "}"}


def _quotient(a: int, b: int) -> int:
    """Towards zero, as a shell divides."""
    whole = abs(a) // abs(b)
    return whole if (a < 0) == (b < 0) else -whole


_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _quotient,
    ast.Mod: lambda a, b: a - b * _quotient(a, b),
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}

# Is told what stays as written, and a line about it for the person.
Note = Callable[[str, str], None]


def end_of(text: str, start: int) -> int:
    """Where an expansion that starts here ends ($x, ${...}, $(...), $((...)), `...`), else `start`."""
    if text[start] == "`":
        end = text.find("`", start + 1)
        return len(text) if end < 0 else end + 1
    if text[start] != "$":
        return start
    opening = text[start + 1 : start + 2]
    if opening not in _CLOSING:
        found = _PLAIN.match(text, start)
        return found.end() if found else start
    depth = 0
    for i in range(start + 1, len(text)):
        depth += (text[i] == opening) - (text[i] == _CLOSING[opening])
        if depth == 0:
            return i + 1
    return len(text)


def fields(text: str) -> list[str]:
    """The words of a text between its blanks, an expansion in one piece even with blanks in it.

    As a shell splits: blanks at an end leave an empty word there.
    """
    words, i = [""], 0
    while i < len(text):
        end = max(end_of(text, i), i + 1)
        if not text[i].isspace():
            words[-1] += text[i:end]
        elif i == 0 or not text[i - 1].isspace():
            words.append("")
        i = end
    return words


def is_expansion(word: str) -> bool:
    """Is this word one expansion, and nothing else?"""
    return word[:1] in ("$", "`") and len(word) > 1 and end_of(word, 0) == len(word)


def closing(text: str, start: int) -> int | None:
    """Index of the `)` that ends the array whose `(` is at `start`, or None where it is still open."""
    i, quote = start + 1, ""
    while i < len(text):
        c = text[i]
        if c == "\\" and quote != "'":
            i += 2
        elif quote:
            i = max(end_of(text, i), i + 1) if quote == '"' else i + 1
            quote = "" if c == quote else quote
        elif c in "'\"":
            quote, i = c, i + 1
        elif c == "#" and text[i - 1] in " \t\n(":
            end = text.find("\n", i)
            i = len(text) if end < 0 else end
        elif c == ")":
            return i
        else:
            i = max(end_of(text, i), i + 1)
    return None


def expanded(text: str, known: MutableMapping[str, str], note: Note) -> str:
    """The text with its expansions worked out as far as `known` goes; `note` is told what is left."""
    out, i = "", 0
    while i < len(text):
        if text.startswith("\\$", i):
            out, i = out + "$", i + 2
            continue
        end = end_of(text, i)
        out += text[i] if end == i else _value(text[i:end], known, note)
        i = max(end, i + 1)
        if len(out) > max(_LONGEST_VALUE, len(text)):
            note(text, "a value of more than 100000 characters is left as it is written")
            return text
    return out


def _value(written: str, known: MutableMapping[str, str], note: Note) -> str:
    value: str | None
    if written.startswith("$(("):
        value = _arithmetic(written[3:].removesuffix("))"), known)
    elif written[0] == "`" or written.startswith("$("):
        value = None
    elif written.startswith("${"):
        value = _parameter(written[2:].removesuffix("}"), known, note)
    else:
        value = known.get(written[1:])
    if value is not None:
        return value
    if written[0] == "`" or written.startswith("$("):
        note(written, f"{written} is not run; put its value in its place")
    else:
        note(
            written,
            f"{written} comes from your shell and is not known here; it is left as written, put its value "
            "in its place",
        )
    return written


def _parameter(inside: str, known: MutableMapping[str, str], note: Note) -> str | None:
    """The value of ${inside}, or None where it is not known."""
    if "[" in inside:
        return known.get(expanded(inside, known, note))
    found = _BRACED.fullmatch(inside)
    if found is None:
        return None
    name, how, word = found.groups()
    value = known.get(name)
    if how is None or how[-1] == "?":
        return value
    if how[-1] in "#%":
        return None if value is None else _cut(value, how, expanded(word, known, note))
    given = value is not None and (value != "" or len(how) == 1)
    if how[-1] == "+":
        return None if value is None else expanded(_unquoted(word), known, note) if given else ""
    if given:
        return value
    default = expanded(_unquoted(word), known, note)
    if how[-1] == "=":
        known[name] = default
    return default


def _unquoted(word: str) -> str:
    quoted = len(word) > 1 and word[0] == word[-1] and word[0] in "'\""
    return word[1:-1] if quoted else word


def _cut(value: str, how: str, pattern: str) -> str:
    """`value` without the shortest or longest (## and %%) beginning or end that matches."""
    lengths = range(len(value) + 1)
    for n in lengths if len(how) == 1 else reversed(lengths):
        if how[0] == "#" and fnmatchcase(value[:n], pattern):
            return value[n:]
        if how[0] == "%" and fnmatchcase(value[len(value) - n :], pattern):
            return value[: len(value) - n]
    return value


def _arithmetic(text: str, known: MutableMapping[str, str]) -> str | None:
    """The value of whole-number arithmetic, or None where it is anything else."""

    def of(node: ast.AST) -> int:
        match node:
            case ast.Constant(value=int(number)):
                return int(number)
            case ast.Name(id=name):
                return int(known[name])
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -of(operand)
            case ast.BinOp(left=left, op=op, right=right):
                return _OPERATIONS[type(op)](of(left), of(right))
        raise ValueError(text)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what is no number
            tree = ast.parse(re.sub(rf"\$\{{?({NAME})\}}?", r"\1", text).strip(), mode="eval")
        return str(of(tree.body))
    except (SyntaxError, ValueError, KeyError, ZeroDivisionError, OverflowError):
        return None
