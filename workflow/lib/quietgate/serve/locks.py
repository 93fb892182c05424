"""Exclusive file locks that end with their holders, with a note inside saying who holds them.

`flock` locks belong to an open file description: a forked child shares its parent's lock, and the
kernel frees it when the last holder is gone, however it died. Lock files are never deleted, since
a deleted one could be locked by two processes at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
from pathlib import Path
from typing import Any


class Lock:
    """A lock held by this process (and by what it forks) until `release` or its end."""

    def __init__(self, path: Path, descriptor: int):
        self.path = path
        self._descriptor = descriptor

    def note(self) -> Any:
        """The JSON noted in the lock file, or None."""
        return _parse(os.pread(self._descriptor, 1 << 16, 0))

    def write_note(self, value: Any) -> None:
        """Note `value` (JSON) in the lock file; None empties it."""
        data = b"" if value is None else json.dumps(value).encode()
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, data, 0)

    def release(self) -> None:
        """Let go. A forked copy of this lock keeps holding it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _parse(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return None


def _open(path: Path) -> int:
    """Open or make a lock file that every user of the machine may lock.

    Not simply O_CREAT: in a sticky folder the kernel (fs.protected_regular) refuses O_CREAT on
    a file that another user owns.
    """
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    while True:
        try:
            return os.open(path, flags)
        except FileNotFoundError:
            pass
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
            with contextlib.suppress(OSError):
                os.fchmod(descriptor, 0o666)
            return descriptor


def try_lock(path: Path) -> Lock | None:
    """The lock on `path`, made where missing, or None while someone else holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = _open(path)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is not a regular file")
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return Lock(path, descriptor)


def peek(path: Path) -> Any:
    """The note of a lock, whoever holds it; None where there is none or it is being written."""
    try:
        return _parse(path.read_bytes())
    except OSError:
        return None
