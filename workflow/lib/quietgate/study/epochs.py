"""Which launches a study asks for: complete blocks, and epochs for cells that came later.

A cell added to a finished study is measured under other conditions (another day, driver, temperature)
than the cells before it. So it forms a new epoch together with launches of the reference cell of its own,
and contrasts stay inside an epoch.

Blocks are numbered through the whole study; a launch is named after its block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Asked:
    """One launch asked for: the cell's id, its block, its epoch."""

    cell: str
    block: int
    epoch: int


def lay_out(
    cells: Sequence[str],
    reference: str,
    replicates: int,
    history: Sequence[Asked],
    beside: Mapping[str, str] = MappingProxyType({}),
) -> list[Asked]:
    """The launches of a study, block by block, in grid order within a block.

    Args:
        cells: ids of the cells.
        replicates: launches per cell.
        history: what a finished study of this name had asked for; empty for a new one.
        beside: cell -> another one that it is compared with, and so must share its blocks with.
    """
    epochs: dict[int, list[str]] = {}
    blocks: dict[int, list[int]] = {}
    for asked in history:
        members, numbers = epochs.setdefault(asked.epoch, []), blocks.setdefault(asked.epoch, [])
        if asked.cell in cells and asked.cell not in members:
            members.append(asked.cell)
        if asked.block not in numbers:
            numbers.append(asked.block)
    placed = {cell for members in epochs.values() for cell in members}
    new = [cell for cell in cells if cell not in placed]
    if new:
        epoch = max(epochs, default=0) + 1
        again = [] if epoch == 1 else [reference, *(beside[cell] for cell in new if cell in beside)]
        epochs[epoch] = list(dict.fromkeys([*new, *again]))
        blocks[epoch] = []
    last = max((n for numbers in blocks.values() for n in numbers), default=0)
    out: list[Asked] = []
    earlier: set[str] = set()
    for epoch in sorted(epochs):
        # An epoch whose own cells have all left the grid needs no launches of the reference.
        if not set(epochs[epoch]) - earlier:
            continue
        earlier |= set(epochs[epoch])
        numbers = sorted(blocks[epoch])[:replicates]
        while len(numbers) < replicates:
            last += 1
            numbers.append(last)
        members = [cell for cell in cells if cell in epochs[epoch]]
        out += [Asked(cell, block, epoch) for block in numbers for cell in members]
    return sorted(out, key=lambda a: (a.block, list(cells).index(a.cell)))
