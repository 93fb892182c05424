"""What a server's decode lines say: acceptance, throughput, idle gaps, ranks that repeat or add up."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import deque
from typing import Any

from quietgate.inspect.log.accept_rate import AcceptRate
from quietgate.inspect.log.batches import Columns
from quietgate.inspect.log.numbers import Numbers
from quietgate.inspect.prefixes import ranks as ranks_of

_DAY_S = 86400.0
_HEAD = 8  # lines looked at together before the first of them is judged
_RECENT = 32
_SLOW = 0.5  # a line below this share of the recent rate per request ...
_GAP = 3.0  # ... after more than this many usual intervals comes after an idle gap
_KV_FULL = 0.9


class _Series:
    """The throughput one scheduler logs, its lines after a pause told apart.

    A line's throughput is tokens since the last line over wall time since then, so the first line of a
    server and the first after a pause also count the waiting.
    """

    def __init__(self, rank: bytes):
        self.rank = rank
        self.count = self.paused = 0
        self.total = self.paused_total = 0.0
        self._head: list[tuple[float | None, float, float]] = []
        self._recent: deque[float] = deque(maxlen=_RECENT)
        self._intervals: deque[float] = deque(maxlen=_RECENT)
        self._low = self._longest = 0.0
        self._last: float | None = None

    def add(
        self, seconds: list[float | None], values: list[float | None], running: list[float | None]
    ) -> None:
        low, last = self._low, self._last
        for at, value, requests in zip(seconds, values, running, strict=True):
            if value is None or not math.isfinite(value):
                continue
            per_request = value / requests if requests else value
            self.count += 1
            self.total += value
            if low == 0.0:
                self._head.append((at, value, per_request))
                if len(self._head) == _HEAD:
                    self._judge_head()
                    low = self._low
            elif per_request < low and self._pause(at, last):
                self.paused += 1
                self.paused_total += value
            elif not self.count % 8:
                self._recent.append(per_request)
                if at is not None and last is not None:
                    self._intervals.append((at - last) % _DAY_S)
                if not self.count % 64:
                    self._bounds()
                    low = self._low
            last = at
        self._last = last

    def _pause(self, at: float | None, last: float | None) -> bool:
        if at is None or last is None or not self._longest:
            return False
        return (at - last) % _DAY_S > self._longest

    def _bounds(self) -> None:
        self._low = max(_SLOW * statistics.median(self._recent), 1e-9)
        self._longest = max(_GAP * statistics.median(self._intervals), 2.0) if self._intervals else 0.0

    def _judge_head(self) -> None:
        head, self._head = self._head, []
        self._recent.extend(r for _, _, r in head)
        times = [at for at, _, _ in head]
        pairs = list(itertools.pairwise(times))
        self._intervals.extend((b - a) % _DAY_S for a, b in pairs if a is not None and b is not None)
        self._bounds()
        for i, (at, value, per_request) in enumerate(head):
            first = i == 0 and len(head) > 1
            if per_request < self._low and (first or (i > 0 and self._pause(at, head[i - 1][0]))):
                self.paused += 1
                self.paused_total += value

    def busy_mean(self) -> float | None:
        """Mean over the lines that are not the first of a server or after a pause."""
        if self._head:
            self._judge_head()
        n = self.count - self.paused
        return (self.total - self.paused_total) / n if n else None


class Decode:
    """Statistics over the decode lines of one server, or of several once merged."""

    def __init__(self) -> None:
        self.lines = 0
        self.accept_length = Numbers()
        self.accept_rate = Numbers()
        self.throughput = Numbers()
        self.running = Numbers()
        self.queue = Numbers()
        self.usage = Numbers()
        self.graph_true = self.graph_false = 0
        self.pairs = AcceptRate()
        self.definitions: set[str | None] = set()
        self.full_lines = 0
        self._weighted = self._weights = 0.0
        self._per_request: deque[float] = deque(maxlen=1000)
        self._series: dict[int | None, _Series] = {}
        self._groups: dict[bytes, tuple[int | None, bool]] = {}
        self._busy: list[tuple[float, int, int]] = []
        self.ranks_seen: set[bytes] = set()
        self.data_ranks: list[int] = []
        self.server_throughput: float | None = None

    def add(self, columns: Columns) -> None:
        """Take lines."""
        n = len(columns)
        if not n:
            return
        self.lines += n
        values = columns.values
        none: list[float | None] = [None] * n
        running = values.get("running") or none
        self.running.add(running)
        if queue := values.get("queue"):
            self.queue.add(queue)
        if usage := values.get("usage"):
            self.usage.add(usage)
            if self.usage.most > _KV_FULL:
                self.full_lines += sum(1 for u in usage if u is not None and u > _KV_FULL)
        if graph := values.get("graph"):
            self.graph_true += graph.count(1.0)
            self.graph_false += graph.count(0.0)
        if lengths := values.get("accept_length"):
            self._accepted(lengths, values.get("accept_rate"), running)
        elif rates := values.get("accept_rate"):
            self.accept_rate.add(rates)
        if throughput := values.get("throughput"):
            self.throughput.add(throughput)
            self._per_request.extend(
                v / (r or 1) for v, r in zip(throughput[:50], running, strict=False) if v is not None
            )
            self._by_rank(columns, throughput, running)

    def _accepted(
        self, lengths: list[float | None], rates: list[float | None] | None, running: list[float | None]
    ) -> None:
        self.accept_length.add(lengths)
        for length, weight in zip(lengths, running, strict=True):
            if length is not None and weight and math.isfinite(length):
                self._weighted += length * weight
                self._weights += weight
        if rates is not None:
            self.accept_rate.add(rates)
            self.pairs.add(lengths, rates)

    def _by_rank(self, columns: Columns, throughput: list[float | None], running: list[float | None]) -> None:
        names = dict.fromkeys(columns.ranks)
        for rank in names:
            series = self._series_of(rank)
            if series is None:
                continue
            if len(names) == 1:
                series.add(columns.seconds, throughput, running)
            else:
                chosen = [i for i, r in enumerate(columns.ranks) if r == rank]
                series.add(
                    [columns.seconds[i] for i in chosen],
                    [throughput[i] for i in chosen],
                    [running[i] for i in chosen],
                )

    def _series_of(self, rank: bytes) -> _Series | None:
        """One series per data rank: its pipeline and tensor ranks repeat the same batch and are not added."""
        self.ranks_seen.add(rank)
        data_rank = ranks_of(rank).get("DP")
        series = self._series.setdefault(data_rank, _Series(rank))
        return series if series.rank == rank else None

    def close(self, draft_tokens: int | None, by_version: str | None = None) -> None:
        """The server ends here: settle what needs all of its lines.

        Args:
            draft_tokens: --speculative-num-draft-tokens where the log tells.
            by_version: the meaning of accept rate in this server's version where the log tells, used
                where the numbers fit both.
        """
        if self.accept_rate.count:
            self.definitions.add(self.pairs.definition(draft_tokens, by_version))
        for series in self._series.values():
            if (mean := series.busy_mean()) is not None:
                self._busy.append((mean, series.count, series.paused))
        self.data_ranks = sorted(r for r in self._series if r is not None)
        self.server_throughput = math.fsum(b[0] for b in self._busy) if self._busy else None
        self._series = {}

    def merge(self, other: Decode) -> None:
        """Add a closed server's lines."""
        self.lines += other.lines
        for name in ("accept_length", "accept_rate", "throughput", "running", "queue", "usage"):
            getattr(self, name).merge(getattr(other, name))
        self.graph_true += other.graph_true
        self.graph_false += other.graph_false
        self.definitions |= other.definitions
        self.full_lines += other.full_lines
        self._weighted += other._weighted
        self._weights += other._weights
        self._per_request.extend(other._per_request)
        self._busy += other._busy
        self.ranks_seen |= other.ranks_seen
        self.data_ranks = sorted({*self.data_ranks, *other.data_ranks})

    def summary(self) -> dict[str, Any]:
        """The numbers, null where no line has them."""
        busy_lines = sum(count - paused for _, count, paused in self._busy)
        busy_total = math.fsum(mean * (count - paused) for mean, count, paused in self._busy)
        definition = next(iter(self.definitions)) if len(self.definitions) == 1 else None
        return {
            "lines": self.lines,
            "accept_length_mean": self.accept_length.mean,
            "accept_length_median": self.accept_length.median,
            "accept_length_mean_by_running": self._weighted / self._weights if self._weights else None,
            "accept_lines": self.accept_length.count,
            "accept_rate_mean": self.accept_rate.mean if definition else None,
            "accept_rate_definition": definition,
            "gen_throughput_mean": self.throughput.mean,
            "gen_throughput_median": self.throughput.median,
            "gen_throughput_max": self.throughput.maximum,
            "gen_throughput_mean_busy": busy_total / busy_lines if busy_lines else None,
            "lines_after_pause": sum(paused for _, _, paused in self._busy),
            "server_throughput_mean": self.server_throughput,
            "not_finite": self.throughput.not_finite + self.accept_length.not_finite,
            "running_mean": self.running.mean,
            "running_max": self.running.maximum,
            "queue_max": self.queue.maximum,
            "token_usage_max": self.usage.maximum,
            "cuda_graph_true": self.graph_true,
            "cuda_graph_false": self.graph_false,
            "data_ranks": self.data_ranks,
        }

    def problems(self, draft_tokens: int | None) -> list[str]:
        """What makes these numbers unfit to be published or compared, one line each."""
        problems = []
        typical = statistics.median(self._per_request) if self._per_request else None
        if typical is not None and typical < 1.0:
            problems.append(
                f"decode runs at {typical:.2f} tok/s per request throughout, not only on the first line: "
                "implausible for a GPU server (compilation, swapping or a wrong build)"
            )
        if typical is not None and typical > 5000:
            problems.append(f"decode at {typical:.0f} tok/s per request is implausible")
        if self.full_lines:
            problems.append(
                f"KV pool more than {_KV_FULL:.0%} full on {self.full_lines} of {self.lines} decode lines: "
                "requests are retracted there, not comparable with an unsaturated run"
            )
        if self.accept_length.count:
            mean = self.accept_length.mean or 0.0
            if draft_tokens and self.accept_length.most > draft_tokens + 0.005:
                problems.append(
                    f"accept length {self.accept_length.most:.2f} is above the {draft_tokens} draft tokens"
                )
            if mean < 1.05:
                problems.append(
                    f"mean accept length {mean:.2f}: the draft is hardly ever right (broken draft?)"
                )
        return problems

    def notes(self) -> list[str]:
        """What a reader of these numbers should know."""
        notes = []
        if self.data_ranks and self.data_ranks != list(range(self.data_ranks[-1] + 1)):
            missing = sorted(set(range(self.data_ranks[-1])) - set(self.data_ranks))
            named = ", ".join(f"DP{r}" for r in missing)
            notes.append(f"no decode line of {named}: the server's throughput is more than the sum given")
        if len(self.definitions) > 1:
            notes.append("accept rate has several meanings in this file; compare accept length")
        elif self.accept_rate.count and None in self.definitions:
            notes.append(
                "accept rate fits both of its definitions or neither: left out; compare accept length"
            )
        return notes
