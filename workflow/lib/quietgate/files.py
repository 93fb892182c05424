"""Files that are never seen half-written, and digests of what they hold."""

from __future__ import annotations

import hashlib
import json
import os
from functools import cache
from pathlib import Path
from typing import Any


def at_home(path: str) -> Path:
    """The path with a leading ~ or ~user expanded; of a user whom nobody knows, it stays as it is."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - pathlib's own raises


def write_atomic(path: Path, data: str | bytes) -> None:
    """Write `data` to `path` so that a reader or a crash sees the old file or the new one.

    A temporary file in the same folder is written, flushed to disk and renamed.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as f:
            f.write(data.encode() if isinstance(data, str) else data)
            f.flush()
            os.fsync(f.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, atomically; NaN and infinities are refused (ValueError)."""
    write_atomic(path, json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """The JSON in `path`, or None where there is no file or it does not parse."""
    try:
        return json.loads(Path(path).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None


def digest(*values: Any) -> str:
    """A short stable name of JSON values: the first 16 hex digits of SHA-256 of their canonical form."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex."""
    with Path(path).open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


@cache
def source_digest(*packages: Path) -> str:
    """A digest of the sources (Python, templates) of files or folders: the version of an offline layer."""
    h = hashlib.sha256()
    for package in packages:
        found = (p for p in package.rglob("*") if p.suffix in (".py", ".j2"))
        sources = [package] if package.is_file() else sorted(found)
        for source in sources:
            h.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return h.hexdigest()[:16]
