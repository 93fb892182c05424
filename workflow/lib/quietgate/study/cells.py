"""Cells and launches: the points of a study's grid, and the server lives it asks for at each."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Cell:
    """One point of the grid; with `timers` off, one that is no point of it: see `Study.untimed`."""

    steps: int
    nccl: str
    axes: dict[str, Any] = field(default_factory=dict, hash=False)
    timers: bool = True

    @property
    def id(self) -> str:
        """Folder name: axis-value pairs, e.g. `steps-2_nccl-ll-ring_topk-4`."""
        pairs = [("steps", self.steps), ("nccl", self.nccl), *self.axes.items()]
        name = "_".join(f"{name}-{_slug(value)}" for name, value in pairs)
        return name if self.timers else f"{name}_timers-off"

    @property
    def twin(self) -> Cell:
        """The same cell with its timers."""
        return replace(self, timers=True)


def _slug(value: Any) -> str:
    """A value as part of a folder name; what a name cannot carry becomes a short hash beside it."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "on", False: "off"}[value]
    text = str(value)
    safe = re.sub(r"[^A-Za-z0-9.-]+", "-", text).strip("-")[:40] or "x"
    return safe if safe == text else f"{safe}-{hashlib.sha256(text.encode()).hexdigest()[:4]}"


@dataclass(frozen=True)
class Launch:
    """One server life that the study asks for: a cell in a block."""

    cell: Cell
    block: int
    epoch: int = 1

    @property
    def id(self) -> str:
        """`l1`, `l2`, ...: the number of the block."""
        return f"l{self.block}"
