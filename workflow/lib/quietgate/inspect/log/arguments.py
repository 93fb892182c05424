"""The server arguments in a log: a ServerArgs(...) repr up to SGLang 0.5.18, a dict from 0.5.19."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator
from typing import Any

_START = re.compile(r"server_args=(?:ServerArgs\(|\{)")
_KEYWORD = re.compile(r"\s*([A-Za-z_]\w*)=(.*)", re.S)
_CLOSING = {"(": ")", "[": "]", "{": "}"}


def starts(line: bytes) -> bool:
    """Does this line carry a server's arguments?"""
    return b"server_args=ServerArgs(" in line or b"server_args={" in line


def parse(text: str) -> dict[str, Any] | None:
    """The arguments by name, or None where the line is cut before they end.

    A value that is no Python literal (an object's repr) is kept as its text.
    """
    found = _START.search(text)
    return None if found is None else _parsed(text, found.end() - 1)


def parse_call(text: str, opening: str) -> dict[str, Any] | None:
    """The keywords of a printed call such as `Namespace(`, or None where it is absent or cut."""
    at = text.find(opening)
    return None if at < 0 else _parsed(text, at + len(opening) - 1)


def _parsed(text: str, opening: int) -> dict[str, Any] | None:
    body = _balanced(text, opening)
    if body is None:
        return None
    as_dict = text[opening] == "{"
    arguments: dict[str, Any] = {}
    for item in _items(body):
        if as_dict:
            name, colon, value = item.partition(":")
            key = _literal(name.strip())
            if colon and isinstance(key, str):
                arguments[key] = _literal(value.strip())
        elif keyword := _KEYWORD.fullmatch(item):
            arguments[keyword[1]] = _literal(keyword[2].strip())
    return arguments or None


def _literal(text: str) -> Any:
    try:
        return _plain(ast.literal_eval(text), text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        pass
    enum = re.fullmatch(r"<\w+(?:\.\w+)*: (.+)>", text)
    return _literal(enum[1]) if enum else text


def _plain(value: Any, text: str) -> Any:
    """A literal as JSON can hold it; what JSON has no form for (infinity, bytes, sets) stays text."""
    if isinstance(value, dict):
        return {str(k): _plain(v, str(v)) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v, str(v)) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return text
    return value if value is None or isinstance(value, str | int | float) else text


def _balanced(text: str, opening: int) -> str | None:
    """What stands between the bracket at `opening` and its partner; None if it never closes."""
    expected: list[str] = []
    for i, quoted in _outside(text, opening):
        c = text[i]
        if quoted:
            continue
        if c in _CLOSING:
            expected.append(_CLOSING[c])
        elif c in ")]}":
            if not expected or c != expected.pop():
                return None
            if not expected:
                return text[opening + 1 : i]
    return None


def _items(body: str) -> Iterator[str]:
    """Split at commas outside quotes and brackets."""
    depth = start = 0
    for i, quoted in _outside(body, 0):
        if quoted:
            continue
        c = body[i]
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            yield body[start:i]
            start = i + 1
    if body[start:].strip():
        yield body[start:]


def _outside(text: str, start: int) -> Iterator[tuple[int, bool]]:
    """Every position from `start`, and whether it lies inside a quoted string."""
    quote = ""
    escaped = False
    for i in range(start, len(text)):
        c = text[i]
        if quote:
            yield i, True
            if escaped:
                escaped = False
            elif c == "\\":
                escaped = True
            elif c == quote:
                quote = ""
        elif c in "'\"":
            quote = c
            yield i, True
        else:
            yield i, False
