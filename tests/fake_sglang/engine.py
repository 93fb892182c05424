"""The scheduler: continuous batching at a set speed, with counters as SGLang keeps them."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fake_sglang.log import Log
from fake_sglang.text import EOS, Answer


@dataclass
class Speed:
    """The set speed: seconds of a prefill and of a decode cycle."""

    base_s: float
    step_s: float
    seq_s: float
    prefill_s: float
    accept: float

    def cycle_s(self, steps: int, batch: int) -> float:
        """Seconds of one cycle of `batch` requests."""
        return self.base_s + self.step_s * steps + self.seq_s * (batch - 1)


_numbers = itertools.count(1)


@dataclass
class Request:
    """One running request; `on_tokens` is told after each forward that gave it tokens."""

    ids: list[int]
    answer: Answer
    max_new_tokens: int
    ignore_eos: bool
    on_tokens: Callable[[Request], None]
    stream: bool = False
    rid: str = ""
    cached: int = 0
    done: int = 0
    verify_ct: int = 0
    correct: int = 0
    histogram: list[int] = field(default_factory=list)
    received: float = field(default_factory=time.time)
    first_token: float = 0.0
    finished: float = 0.0
    finish: dict[str, Any] | None = None
    number: int = field(default_factory=lambda: next(_numbers))

    def advance(self, count: int) -> None:
        """Take up to `count` new tokens; ends the request at its length or at the model's stop."""
        end = self.max_new_tokens
        reason: dict[str, Any] = {"type": "length", "length": end}
        if not self.ignore_eos and self.answer.eos_at < end:
            end, reason = self.answer.eos_at, {"type": "stop", "matched": EOS}
        self.done = min(self.done + count, end)
        if not self.first_token:
            self.first_token = time.time()
        if self.done >= end:
            self.finish, self.finished = reason, time.time()


class Engine:
    """Runs the requests; every forward is a prefill or one decode cycle of the whole batch."""

    def __init__(self, args: dict[str, Any], speed: Speed, log: Log):
        self.args, self.speed, self.log = args, speed, log
        self.steps = args["speculative_num_steps"] or 0
        self.graph = "cpu graph" if args["device"] == "cpu" else "cuda graph"
        self.max_running = args["max_running_requests"] or 2048
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.seen: list[list[int]] = []
        self.counters = {"verify": 0, "decode": 0, "prefill": 0, "prompt": 0, "generated": 0}
        self.counters |= {"requests": 0, "whole_requests": 0, "whole_prompt": 0}
        self.counters["whole_generated"] = 0
        self.seconds = {"eagle_draft": 0.0, "target_verify": 0.0, "eagle_draft_extend": 0.0}
        self.seconds |= {"decode": 0.0, "extend": 0.0}
        self.accept_length: float | None = None
        self.throughput = 0.0
        self.stuck = False
        self.on_forward: Callable[[bool], None] = lambda decode: None
        self._wake = asyncio.Event()
        self._window = [0, 0, 0, time.monotonic()]  # cycles, request-cycles, tokens, since

    def submit(self, request: Request) -> None:
        """Queue a request."""
        self.waiting.append(request)
        self._wake.set()

    def abort(self, request: Request) -> None:
        """Forget a request whose client went away."""
        if request in self.waiting:
            self.waiting.remove(request)
        if request in self.running:
            self.running.remove(request)

    def flush(self) -> bool:
        """Empty the prefix cache; refused while requests run, as SGLang does."""
        if self.waiting or self.running:
            return False
        self.seen.clear()
        self.accept_length = None
        return True

    def _cached(self, ids: list[int]) -> int:
        """Length of the prefix that an earlier prompt shares; the last token is always computed."""
        if self.args["disable_radix_cache"]:
            return 0
        best = 0
        for other in self.seen:
            n = 0
            for a, b in zip(ids, other, strict=False):
                if a != b:
                    break
                n += 1
            best = max(best, n)
        page = self.args["page_size"]
        return min(best, len(ids) - 1) // page * page

    async def _prefill(self) -> None:
        batch = []
        while self.waiting and len(self.running) + len(batch) < self.max_running:
            batch.append(self.waiting.popleft())
        for request in batch:
            request.cached = self._cached(request.ids)
            if request.ids not in self.seen and len(self.seen) < 4096:
                self.seen.append(request.ids)
        started = time.monotonic()
        await asyncio.sleep(self.speed.prefill_s)
        new = sum(len(r.ids) - r.cached for r in batch)
        self.counters["prefill"] += 1
        self.seconds["extend"] += self.speed.prefill_s * 0.9
        rate = new / max(time.monotonic() - started, 1e-6)
        self.log.line(
            f"Prefill batch, #new-seq: {len(batch)}, #new-token: {new}, #cached-token:"
            f" {sum(r.cached for r in batch)}, token usage: 0.00, #running-req:"
            f" {len(self.running)}, #queue-req: {len(self.waiting)}, #pending-token: 0,"
            f" {self.graph}: False, input throughput (token/s): {rate:.2f}",
            0,
        )
        self.on_forward(False)
        self.running += batch
        self._give(batch, [1] * len(batch))

    def _give(self, batch: list[Request], counts: list[int]) -> None:
        for request, count in zip(batch, counts, strict=True):
            request.advance(count)
            if request.finish:
                self.running.remove(request)
                self._count(request)
            request.on_tokens(request)

    def _count(self, request: Request) -> None:
        """Counters of requests move when a request ends, as SGLang's do."""
        amounts = {"prompt": len(request.ids), "generated": request.done, "requests": 1}
        for name, amount in amounts.items():
            self.counters[name] += amount
            if not request.stream:
                self.counters[f"whole_{name}"] += amount

    def _decode(self) -> None:
        batch = list(self.running)
        counts = []
        for request in batch:
            correct = request.answer.guessed_from(request.done, self.steps)
            counts.append(correct + 1)
            if self.steps:
                request.verify_ct += 1
                request.correct += correct
                if not request.histogram:
                    request.histogram = [0] * (self.steps + 1)
                request.histogram[correct] += 1
        self.counters["decode"] += 1
        if self.steps:
            self.counters["verify"] += len(batch)
            draft = self.speed.step_s * self.steps
            self.seconds["eagle_draft"] += draft * 0.6
            self.seconds["eagle_draft_extend"] += draft * 0.3
            self.seconds["target_verify"] += self.speed.base_s * 0.9
        else:
            self.seconds["decode"] += self.speed.base_s * 0.9
        self._log_decode(batch, counts)
        self.on_forward(True)
        self._give(batch, counts)

    def _log_decode(self, batch: list[Request], counts: list[int]) -> None:
        window = self._window
        window[0] += 1
        window[1] += len(batch)
        window[2] += sum(counts)
        if window[0] < self.args["decode_log_interval"]:
            return
        now = time.monotonic()
        self.throughput = window[2] / max(now - window[3], 1e-6)
        spec = ""
        if self.steps:
            self.accept_length = window[2] / window[1]
            rate = (window[2] - window[1]) / (window[1] * self.steps)
            spec = f"accept len: {self.accept_length:.2f}, accept rate: {rate:.2f}, "
        graph = not self.args["disable_cuda_graph"]
        tokens = sum(len(r.ids) + r.done for r in batch)
        self.log.line(
            f"Decode batch, #running-req: {len(batch)}, #token: {tokens}, token usage: 0.00,"
            f" {spec}{self.graph}: {graph}, gen throughput (token/s): {self.throughput:.2f},"
            f" #queue-req: {len(self.waiting)}",
            0,
        )
        self._window = [0, 0, 0, now]

    async def run(self) -> None:
        """Serve for ever; cycles are paced on a schedule, so that timer error does not add up."""
        due = time.monotonic()
        while True:
            if not self.waiting and not self.running:
                self._wake.clear()
                await self._wake.wait()
                due = time.monotonic()
            if self.waiting and len(self.running) < self.max_running:
                await self._prefill()
                due = time.monotonic()
                continue
            if self.stuck:
                await asyncio.sleep(3600)
            now = time.monotonic()
            due = max(due, now - 0.05) + self.speed.cycle_s(self.steps, len(self.running))
            await asyncio.sleep(max(0.0, due - now))
            self._decode()
