"""The throughput that one scheduler logs, its lines after a pause told apart.

A decode line's throughput is tokens since the last decode line over wall time since then. So the first line
of a server, and the first after a pause, also count the waiting: they say nothing of the server's speed.
"""

from __future__ import annotations

import itertools
import statistics
from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from operator import truediv

_DAY_S = 86400.0
_HEAD = 8  # lines looked at together before the first of them is judged
_RECENT = 32
_SLOW = 0.5  # a line below this share of the recent rate per request ...
_GAP = 3.0  # ... after more than this many usual intervals comes after a pause
_SHORTEST_GAP_S = 2.0


@lru_cache(maxsize=4096)
def seconds(stamp: bytes | None) -> float | None:
    """Time of day in seconds, of HH:MM:SS."""
    if stamp is None:
        return None
    return int(stamp[:2]) * 3600.0 + int(stamp[3:5]) * 60 + int(stamp[6:8])


class Throughput:
    """One scheduler's lines in order.

    Attributes:
        rank: how it names itself.
        count, paused: lines, and those of them that are first or after a pause.
    """

    def __init__(self, rank: bytes):
        self.rank = rank
        self.count = self.paused = 0
        self._total = self._paused_total = 0.0
        self._head: list[tuple[float | None, float, float]] = []
        self._recent: deque[float] = deque(maxlen=_RECENT)
        self._intervals: deque[float] = deque(maxlen=_RECENT)
        self._low = self._longest = 0.0
        self._last: bytes | None = None

    def add(self, stamps: Sequence[bytes | None], values: Sequence[float], running: Sequence[float]) -> None:
        """Take lines: when, tokens per second, requests that share them (at least 1)."""
        start = 0
        while self._low == 0.0 and start < len(values):
            self._first(stamps[start], values[start], running[start])
            start += 1
        if start:
            stamps, values, running = stamps[start:], values[start:], running[start:]
        if not values:
            return
        self.count += len(values)
        self._total += sum(values)
        if min(values) < self._low * max(running):
            self._each(stamps, values, running)
        step = max(1, len(values) // 16)
        self._recent.extend(map(truediv, values[::step], running[::step]))
        before, at = map(seconds, stamps[step - 1 :: step]), map(seconds, stamps[step::step])
        self._intervals.extend(
            (b - a) % _DAY_S for a, b in zip(before, at, strict=False) if a is not None and b is not None
        )
        self._bounds()
        self._last = stamps[-1]

    def _each(
        self, stamps: Sequence[bytes | None], values: Sequence[float], running: Sequence[float]
    ) -> None:
        low = self._low
        for i in [i for i, v, r in zip(itertools.count(), values, running) if v < low * r]:
            if self._pause(stamps[i - 1] if i else self._last, stamps[i]):
                self.paused += 1
                self._paused_total += values[i]

    def _pause(self, last: bytes | None, at: bytes | None) -> bool:
        interval = _between(last, at)
        return interval is not None and self._longest > 0 and interval > self._longest

    def _first(self, stamp: bytes | None, value: float, running: float) -> None:
        self.count += 1
        self._total += value
        self._head.append((seconds(stamp), value, value / running))
        self._last = stamp
        if len(self._head) == _HEAD:
            self._judge_head()

    def _judge_head(self) -> None:
        head, self._head = self._head, []
        self._recent.extend(rate for _, _, rate in head)
        intervals = [
            (b - a) % _DAY_S
            for (a, _, _), (b, _, _) in itertools.pairwise(head)
            if a is not None and b is not None
        ]
        self._intervals.extend(intervals)
        self._bounds()
        before: float | None = None
        for i, (at, value, rate) in enumerate(head):
            gap = (at - before) % _DAY_S if at is not None and before is not None else None
            paused = gap is not None and self._longest > 0 and gap > self._longest
            if rate < self._low and ((i == 0 and len(head) > 1) or paused):
                self.paused += 1
                self._paused_total += value
            before = at

    def _bounds(self) -> None:
        self._low = max(_SLOW * statistics.median(self._recent), 1e-9)
        if self._intervals:
            self._longest = max(_GAP * statistics.median(self._intervals), _SHORTEST_GAP_S)

    def busy_mean(self) -> float | None:
        """Mean over the lines that are neither the first of a server nor after a pause."""
        if self._head:
            self._judge_head()
        n = self.count - self.paused
        return (self._total - self._paused_total) / n if n else None


def _between(a: bytes | None, b: bytes | None) -> float | None:
    before, after = seconds(a), seconds(b)
    return None if before is None or after is None else (after - before) % _DAY_S
