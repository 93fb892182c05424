"""JSON from somebody else: only what our own records can hold, else BadInput."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from quietgate.errors import BadInput
from quietgate.share.archive import shown

MAX_BYTES = 64 * 2**20
MAX_DEPTH = 60
# Nanoseconds since 1970 are 2e18; nothing measured is larger than a thousand times that.
LARGEST = 1e21


def load(path: Path) -> Any:
    """The JSON in `path`."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise BadInput(f"{shown(path)}: larger than {MAX_BYTES >> 20} MiB; not a record")
        return loads(path.read_bytes(), str(path))
    except OSError as e:
        raise BadInput(f"{shown(path)}: {e.strerror or e}") from None


def loads(data: bytes | str, where: str) -> Any:
    """Parse JSON text; `where` is named in the message."""
    try:
        value = json.loads(data, parse_constant=_refuse)
    except RecursionError:
        raise BadInput(f"{shown(where)}: nested too deeply; not a record") from None
    except ValueError as e:
        raise BadInput(f"{shown(where)}: not readable as JSON ({shown(e)[:200]})") from None
    wrong = oddity(value)
    if wrong:
        raise BadInput(f"{shown(where)}: {wrong}")
    return value


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def oddity(value: Any) -> str | None:
    """What in a parsed value no record of ours can hold (depth, huge or infinite numbers), or None."""
    level = [value]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                below.extend(one)
                below.extend(one.values())
            elif isinstance(one, list):
                below.extend(one)
            elif isinstance(one, str) and not one.isascii() and not _is_text(one):
                return "holds half a character, which is not text"
            elif isinstance(one, int | float) and not (
                -LARGEST < one < LARGEST and (isinstance(one, int) or math.isfinite(one))
            ):
                return f"holds the number {str(one)[:30]}, larger than anything measured"
        if not below:
            return None
        level = below
    return f"nested more than {MAX_DEPTH} deep"


def _is_text(text: str) -> bool:
    """Whether it can be written to a file: JSON can escape surrogates that no encoding knows."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
