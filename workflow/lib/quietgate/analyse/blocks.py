"""In which block's time a launch was measured: its number says when it was planned, the clock when it ran.

A launch that is repeated once the study has gone on (its server had failed, its record was lost) runs beside
launches of a later block. Compared inside the block that it was planned for, its cell would be credited with
whatever the machine did in between.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np


@dataclass(frozen=True)
class Moved:
    """A launch (its place in the sequences given) that ran in the time of another block than its own."""

    at: int
    planned: int
    block: int


def out_of_time(blocks: Sequence[int], started_s: Sequence[float]) -> list[Moved]:
    """The launches measured in the time of another block than they were planned for.

    As many launches as possible are taken to be in order (the longest run of blocks that never falls, by
    time). Another one is out of its time where it began after half of a later block's, or before half of an
    earlier block's: so servers that run side by side may overlap at a block's ends. It belongs to the
    launch in order that began nearest to it. A block of which nothing is in order, but which ran in one
    stretch, is a block still, only at another time: its launches stay, and others may be nearest to them.

    Args:
        blocks: number of the block of each launch of one machine and epoch, in the order of the plan.
        started_s: when each began, in seconds of any clock; nan where that is not known.
    """
    known = [int(i) for i in np.lexsort((blocks, started_s)) if np.isfinite(started_s[i])]
    in_order = _in_order(known, blocks)
    settled = [*in_order, *_whole(known, in_order, blocks)]
    middle = {
        b: median(started_s[i] for i in in_order if blocks[i] == b) for b in {blocks[i] for i in in_order}
    }
    found = []
    for i in sorted(set(known) - set(settled)):
        own, began = blocks[i], started_s[i]
        if any((b > own and began > m) or (b < own and began < m) for b, m in middle.items()):
            beside = min(settled, key=lambda j: abs(started_s[j] - began))
            if blocks[beside] != own:
                found.append(Moved(i, own, blocks[beside]))
    return found


def _whole(by_time: Sequence[int], in_order: Sequence[int], blocks: Sequence[int]) -> list[int]:
    """The launches of blocks that ran out of order, but as a whole: several, with none of another between."""
    found: list[int] = []
    for block in {blocks[i] for i in by_time} - {blocks[i] for i in in_order}:
        places = [place for place, i in enumerate(by_time) if blocks[i] == block]
        if len(places) > 1 and places[-1] - places[0] == len(places) - 1:
            found += [by_time[place] for place in places]
    return found


def _in_order(by_time: Sequence[int], blocks: Sequence[int]) -> list[int]:
    """The most launches whose blocks do not fall with time (Fredman 1975: a longest such subsequence)."""
    ends: list[int] = []  # of the best run of each length, the launch with the smallest block
    before: dict[int, int | None] = {}
    for i in by_time:
        length = bisect.bisect_right([blocks[e] for e in ends], blocks[i])
        before[i] = ends[length - 1] if length else None
        ends[length:] = [i, *ends[length + 1 :]]
    run: list[int] = []
    last = ends[-1] if ends else None
    while last is not None:
        run.append(last)
        last = before[last]
    return run[::-1]
