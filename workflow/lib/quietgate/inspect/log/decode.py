"""What a server's decode lines say: acceptance, throughput, idle gaps, ranks that repeat or add up."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict, deque
from collections.abc import Sequence
from operator import itemgetter, truediv
from typing import Any

from quietgate.inspect.log.accept_rate import AcceptRate
from quietgate.inspect.log.batches import Columns
from quietgate.inspect.log.numbers import Numbers, Together
from quietgate.inspect.log.pauses import Throughput
from quietgate.inspect.prefixes import ranks as ranks_of

_KV_FULL = 0.9
_TOGETHER = ("accept_length", "running", "accept_rate")
_SAMPLED = 40  # lines of a block that tell what all of them tell


class Decode:
    """Statistics over the decode lines of one server, or of several once merged."""

    def __init__(self) -> None:
        self.lines = 0
        self._plain = {
            name: Numbers()
            for name in ("accept_length", "accept_rate", "throughput", "running", "queue", "usage")
        }
        self._together = Together(*(self._plain[name] for name in _TOGETHER))
        self._requests = _Requests()
        self.graph_true = self.graph_false = 0
        self.pairs = AcceptRate()
        self.definitions: set[str | None] = set()
        self._per_request: deque[float] = deque(maxlen=1000)
        self._series: dict[int | None, Throughput] = {}
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
        running, lengths = values.get("running"), values.get("accept_length")
        alone = values.keys() & self._plain.keys() - {"throughput"}
        if running and lengths:
            self._together.add(*(values.get(name, [None] * n) for name in _TOGETHER))
            alone -= set(_TOGETHER)
        for name in alone:
            self._plain[name].add(values[name])
        if graph := values.get("graph"):
            self.graph_true += graph.count(b"True")
            self.graph_false += graph.count(b"False")
        if lengths is not None and (rates := values.get("accept_rate")):
            self.pairs.add(lengths[:_SAMPLED], rates[:_SAMPLED])
        if throughput := values.get("throughput"):
            requests = [1.0] * n if running is None else list(map(self._requests.__getitem__, running))
            self._throughput(columns, throughput, requests)

    def _throughput(
        self, columns: Columns, throughput: Sequence[bytes | None], requests: list[float]
    ) -> None:
        rates = [math.nan if raw is None else float(raw) for raw in throughput]
        stamps, ranks = columns.stamps, columns.ranks
        if math.isfinite(sum(rates)):
            self._plain["throughput"].add_numbers(rates)
        else:
            self._plain["throughput"].add(throughput)
            kept = [i for i, rate in enumerate(rates) if math.isfinite(rate)]
            rates, requests = [rates[i] for i in kept], [requests[i] for i in kept]
            stamps, ranks = [stamps[i] for i in kept], [ranks[i] for i in kept]
        self._per_request.extend(map(truediv, rates[:50], requests))
        if not ranks:
            return
        if ranks.count(ranks[0]) == len(ranks):
            if (series := self._series_of(ranks[0])) is not None:
                series.add(stamps, rates, requests)
            return
        lines_of: defaultdict[bytes, list[int]] = defaultdict(list)
        for i, rank in enumerate(ranks):
            lines_of[rank].append(i)
        for rank, chosen in lines_of.items():
            if (series := self._series_of(rank)) is not None:
                # Of a single index it makes no sequence.
                pick = itemgetter(*chosen) if len(chosen) > 1 else itemgetter(slice(chosen[0], chosen[0] + 1))
                series.add(pick(stamps), pick(rates), pick(requests))

    def _series_of(self, rank: bytes) -> Throughput | None:
        """One series per data rank: its pipeline and tensor ranks repeat the same batch and are not added."""
        self.ranks_seen.add(rank)
        series = self._series.setdefault(ranks_of(rank).get("DP"), Throughput(rank))
        return series if series.rank == rank else None

    def close(self, draft_tokens: int | None, by_version: str | None = None) -> None:
        """The server ends here: settle what needs all of its lines.

        Args:
            draft_tokens: --speculative-num-draft-tokens where the log tells.
            by_version: the meaning of accept rate in this server's version where the log tells, used
                where the numbers fit both.
        """
        self._together.settle()
        if self._plain["accept_rate"].count:
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
        for name, numbers in self._plain.items():
            numbers.merge(other._plain[name])
        self.graph_true += other.graph_true
        self.graph_false += other.graph_false
        self.definitions |= other.definitions
        self._together.merge(other._together)
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
            "accept_length_mean": self._plain["accept_length"].mean,
            "accept_length_median": self._plain["accept_length"].median,
            "accept_length_mean_by_running": self._together.mean,
            "accept_lines": self._plain["accept_length"].count,
            "accept_rate_mean": self._plain["accept_rate"].mean if definition else None,
            "accept_rate_definition": definition,
            "gen_throughput_mean": self._plain["throughput"].mean,
            "gen_throughput_median": self._plain["throughput"].median,
            "gen_throughput_max": self._plain["throughput"].maximum,
            "gen_throughput_mean_busy": busy_total / busy_lines if busy_lines else None,
            "lines_after_pause": sum(paused for _, _, paused in self._busy),
            "server_throughput_mean": self.server_throughput,
            "not_finite": self._plain["throughput"].not_finite + self._plain["accept_length"].not_finite,
            "running_mean": self._plain["running"].mean,
            "running_max": self._plain["running"].maximum,
            "queue_max": self._plain["queue"].maximum,
            "token_usage_max": self._plain["usage"].maximum,
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
        if full_lines := self._plain["usage"].above(_KV_FULL):
            problems.append(
                f"KV pool more than {_KV_FULL:.0%} full on {full_lines} of {self.lines} decode lines: "
                "requests are retracted there, not comparable with an unsaturated run"
            )
        if self._plain["accept_length"].count:
            mean = self._plain["accept_length"].mean or 0.0
            accepted_most = self._plain["accept_length"].maximum or 0.0
            if draft_tokens and accepted_most > draft_tokens + 0.005:
                problems.append(f"accept length {accepted_most:.2f} is above the {draft_tokens} draft tokens")
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
        elif self._plain["accept_rate"].count and None in self.definitions:
            notes.append(
                "accept rate fits both of its definitions or neither: left out; compare accept length"
            )
        return notes


class _Requests(dict[bytes | None, float]):
    """How many requests share a line's throughput: where none is logged or left, 1."""

    def __missing__(self, raw: bytes | None) -> float:
        requests = self[raw] = float(raw or 1.0) or 1.0
        return requests
