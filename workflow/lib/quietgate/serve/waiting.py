"""The queue for slots: who waits, so that turns are fair and an idle server makes room.

One small file per waiting launch in the machine's slot folder. Its modification time is the
waiter's heartbeat; an entry whose heart has stopped counts for nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from quietgate.files import read_json
from quietgate.serve.slots import WAITING, Slot
from quietgate.serve.state import put_json

HEARTBEAT_S = 0.5
FRESH_S = 5.0


class Ticket:
    """One launch's place in the queue."""

    def __init__(self, folder: Path, instance: str, slots: Iterable[Slot]):
        self._folder = folder / WAITING
        self._path = self._folder / f"{instance}.json"
        self._since = time.time()
        self._beat = time.monotonic()
        put_json(
            self._path,
            {"since": self._since, "locks": sorted({key for s in slots for key in s.locks})},
        )

    def beat(self) -> None:
        """Show that this launch still waits."""
        if time.monotonic() - self._beat > HEARTBEAT_S:
            self._beat = time.monotonic()
            os.utime(self._path)

    def may_take(self, slot: Slot) -> bool:
        """Whether nobody who waits longer could use one of the slot's GPUs."""
        return not any(
            (entry["since"], name) < (self._since, self._path.name)
            for name, entry in _others(self._folder, slot.locks)
            if name != self._path.name
        )

    def leave(self) -> None:
        """Leave the queue."""
        self._path.unlink(missing_ok=True)


def _others(folder: Path, locks: Iterable[str]) -> list[tuple[str, dict[str, Any]]]:
    wanted, now, found = set(locks), time.time(), []
    for entry in os.scandir(folder):
        try:
            if entry.name.startswith(".") or now - entry.stat().st_mtime > FRESH_S:
                continue
        except FileNotFoundError:
            continue
        content = read_json(Path(entry.path))
        if isinstance(content, dict) and wanted & set(content.get("locks", ())):
            found.append((entry.name, content))
    return found


def contended(folder: Path, locks: Iterable[str]) -> bool:
    """Whether a launch waits for one of these locks."""
    try:
        return bool(_others(folder / WAITING, locks))
    except FileNotFoundError:  # the folder was cleaned away under a long-lived server
        return False
