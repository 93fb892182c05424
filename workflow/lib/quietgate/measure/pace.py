"""How fast this machine runs one thread just now: the time of fixed work, always the same.

A virtual machine is told neither the clock of the processor below it nor what other machines run beside it on
the same cores; either slows the host's part of a cycle, and no counter shows it. The same work by the same
interpreter does: its times may be divided by each other within one machine and one Python, and say nothing
across machines or versions of Python. They do not see neighbours that only take memory or shared cache.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from itertools import repeat

# About 2 ms each on a server's core of 2023, 10 ms together; the median leaves out single interrupts.
_STEPS = 75_000
_ROUNDS = 5


def _work() -> int:
    """A chain of operations that each need the one before, so no step is skipped or run beside another.

    Values stay below 128, where CPython keeps its integers ready-made, and `repeat` counts without any:
    nothing is allocated, and all that is touched stays in the first-level cache. No interpreter computes
    the result beforehand, and it is returned.
    """
    x = 0
    for _ in repeat(None, _STEPS):
        x = ((x ^ 5) + 1) & 63
    return x


def loop_ms(
    work: Callable[[], object] = _work, clock: Callable[[], float] = time.thread_time
) -> float | None:
    """The median time of the fixed work, in milliseconds; None where the clock is too coarse for it.

    Time on a core, not of waiting for one: that is the doing of other programs of this machine, which
    `surroundings` tells apart.

    Args:
        work, clock (seconds): other ones for tests.
    """
    times_s = []
    for _ in range(_ROUNDS):
        start_s = clock()
        work()
        times_s.append(clock() - start_s)
    return 1e3 * statistics.median(times_s) or None
