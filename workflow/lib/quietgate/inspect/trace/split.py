"""Communication time split over the ranks: moving data, or waiting for the slowest.

The kernels of one collective start when each rank gets there and end together. Whoever is early
spins inside its kernel, so one rank's share means nothing; the transfer is near the smallest
duration over the ranks, and the rest of each rank's kernel is waiting.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from quietgate.inspect.trace.rank import Collectives
from quietgate.inspect.trace.spans import Floats
from quietgate.wording import counted

# Two ranks' kernels belong to one collective when they end this close together, clocks aligned.
END_TOLERANCE_US = 50.0
PAIRED_SHARE = 0.9


def split(ranks: list[Collectives]) -> list[dict[str, Any]]:
    """Per rank: transfer_ms, waiting_ms in all and by stage; or null and why."""
    results: list[dict[str, Any]] = [_unknown("this rank has no communication") for _ in ranks]
    busy = [i for i, r in enumerate(ranks) if len(r.dur)]
    if len(busy) == 1:
        results[busy[0]] = _unknown("one rank's trace alone cannot tell transfer from waiting")
    elif busy:
        for group in _groups(ranks, busy):
            _split_group(ranks, group, results)
    return results


def _unknown(why: str) -> dict[str, Any]:
    return {"transfer_ms": None, "waiting_ms": None, "collectives": 0, "by_stage": {}, "why": why}


def _groups(ranks: list[Collectives], busy: list[int]) -> list[list[tuple[int, slice]]]:
    """Ranks whose collectives end together, each with the part of its kernels that pairs up."""
    groups: list[list[tuple[int, slice]]] = []
    for i in busy:
        for group in groups:
            first, _ = group[0]
            pairing = _pairing(ranks[first], ranks[i])
            if pairing is not None:
                narrowed = _narrow(group, *pairing)
                if narrowed is not None:
                    group[:] = [*narrowed[0], (i, narrowed[1])]
                    break
        else:
            groups.append([(i, slice(0, len(ranks[i].dur)))])
    return groups


def _pairing(a: Collectives, b: Collectives) -> tuple[slice, slice] | None:
    """Which kernels of `a` and `b` are the same collectives: all, or all but one end's surplus."""
    na, nb = len(a.dur), len(b.dur)
    n = min(na, nb)
    best: tuple[float, slice, slice] | None = None
    for tail in (False, True) if na != nb else (False,):
        of_a = slice(na - n, na) if tail else slice(0, n)
        of_b = slice(nb - n, nb) if tail else slice(0, n)
        if a.name[of_a] != b.name[of_b]:
            continue
        share = _ending_together(a.start[of_a] + a.dur[of_a], b.start[of_b] + b.dur[of_b])
        if best is None or share > best[0]:
            best = (share, of_a, of_b)
    return (best[1], best[2]) if best is not None and best[0] >= PAIRED_SHARE else None


def _ending_together(a: Floats, b: Floats) -> float:
    apart = b - a
    # Hosts' clocks differ by a constant; ranks of one host share a clock and it is near zero.
    return float(np.mean(np.abs(apart - np.median(apart)) <= END_TOLERANCE_US))


def _narrow(
    group: list[tuple[int, slice]], of_first: slice, of_new: slice
) -> tuple[list[tuple[int, slice]], slice] | None:
    """Cut every member to the collectives that the newcomer has too."""
    _, have = group[0]
    low, high = max(have.start, of_first.start), min(have.stop, of_first.stop)
    if high <= low:
        return None
    before, after = low - have.start, have.stop - high
    members = [(i, slice(s.start + before, s.stop - after)) for i, s in group]
    return members, slice(of_new.start + low - of_first.start, of_new.stop - (of_first.stop - high))


def _split_group(
    ranks: list[Collectives], group: list[tuple[int, slice]], results: list[dict[str, Any]]
) -> None:
    if len(group) == 1:
        results[group[0][0]] = _unknown("no other rank's collectives end together with this one's")
        return
    transfer = np.min([ranks[i].dur[s] for i, s in group], axis=0)
    for i, s in group:
        waiting = ranks[i].dur[s] - transfer
        halves = {
            "transfer_ms": _by_span(ranks[i], s, transfer),
            "waiting_ms": _by_span(ranks[i], s, waiting),
        }
        stages, steady = np.array(ranks[i].stages, dtype=object), np.array(ranks[i].steady, dtype=bool)
        seen = np.unique(ranks[i].span[s])
        by_stage = {
            stage: {name: float(ms[stages == stage].sum()) for name, ms in halves.items()}
            | {
                f"steady_{name}": float(np.median(ms[(stages == stage) & steady]))
                for name, ms in halves.items()
            }
            for stage in sorted({str(stages[k]) for k in seen if k >= 0})
        }
        left_out = len(ranks[i].dur) - len(transfer)
        results[i] = {
            "transfer_ms": float(transfer.sum()) / 1e3,
            "waiting_ms": float(waiting.sum()) / 1e3,
            "collectives": len(transfer),
            "by_stage": by_stage,
            "why": f"{counted(left_out, 'kernel')} at one end without a partner" if left_out else None,
        }


def _by_span(rank: Collectives, part: slice, us: Floats) -> Floats:
    """Milliseconds of some of a rank's collectives in each of its spans."""
    inside = rank.span[part] >= 0
    return np.bincount(rank.span[part][inside], us[inside], minlength=len(rank.stages)) / 1e3
