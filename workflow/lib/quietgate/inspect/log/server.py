"""One server life in a log: arguments, readiness, batches, failure."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from quietgate.inspect.failure_classes import ADVICE
from quietgate.inspect.failures import Failure, Watch
from quietgate.inspect.lines import Block
from quietgate.inspect.log import arguments
from quietgate.inspect.log.accept_rate import WITH_BONUS, WITHOUT_BONUS
from quietgate.inspect.log.batches import DECODE_FIELDS, PREFILL_FIELDS, Batches, Lines
from quietgate.inspect.log.decode import Decode
from quietgate.inspect.log.kinds import Unread, read
from quietgate.inspect.log.prefill import Prefill
from quietgate.inspect.log.requests import ANSWERS, USERS, statuses
from quietgate.inspect.prefixes import message, of_users, stamp, unwrapped
from quietgate.inspect.remarks import Remarks

READY = b"The server is fired up and ready to roll"
_NCCL = re.compile(rb"sglang is using nccl==([\d.]+\d)")
_RETRACTED = re.compile(rb"(?:ecode out of memory happened[.,]|KV cache pool is full\. Retract requests\.) #")
_RETRACTED_COUNT = re.compile(r"#retracted[_-]reqs?: (\d+)")
_VERSION = re.compile(rb"\bsglang(?:==| version:? ?|\s{2,})v?(\d+\.\d+\.\d+[\w.]*)", re.I)
_ALIVE_LINES = 3  # batches of other ranks may still be written while one dies
_MOST_RETRACTIONS = 100_000

DECODE, PREFILL = Batches(b"Decode batch", DECODE_FIELDS), Batches(b"Prefill batch", PREFILL_FIELDS)


class Server:
    """Collects one server's lines, block by block."""

    def __init__(self, first_line: int) -> None:
        self.first_line = first_line
        self.arguments: dict[str, Any] | None = None
        self.arguments_cut = False
        self.started = False  # its arguments were logged
        self.ready_line: int | None = None
        self.ready_lines = 0
        self.decode = Decode()
        self.prefill = Prefill()
        self.watch = Watch()
        self.statuses: Counter[bytes] = Counter()
        self.nccl_versions: list[str] = []
        self.version: str | None = None
        self.health_failures = 0
        self._retractions: dict[tuple[int | None, str], Counter[tuple[str, ...]]] = {}
        self._last_alive = 0
        self._newer_than_0_5_13 = False
        self._comma_at_end = False  # "#queue-req: 0, " at the end of a line with accept rate: up to 0.5.8
        self._began: tuple[str | None, float | None] | None = None
        self._ready_at: tuple[str | None, float | None] | None = None

    @property
    def evident(self) -> bool:
        """Is there a sign of a server in these lines at all, be it only of why it failed?"""
        return self._lived or self.watch.result() is not None

    @property
    def spoke(self) -> bool:
        """Are there lines that only a server writes?"""
        return self._lived or bool(
            self.statuses or self._retractions or self.nccl_versions or self.health_failures
        )

    @property
    def _lived(self) -> bool:
        return bool(
            self.started or self.ready_line or self.decode.lines or self.prefill.lines or self.watch.stage
        )

    def see(self, block: Block) -> None:
        """Take a block of lines."""
        unread = Unread(block)
        # What users said first: it may quote anything.
        *_, decode, prefill, answers = read(unread, (*USERS, DECODE.sort, PREFILL.sort, ANSWERS))
        self._comma_at_end |= _first(b"Decode batch", block.text).endswith(b", ")
        decoded, prefilled = DECODE.columns(decode), PREFILL.columns(prefill)
        for columns in decoded:
            self.decode.add(columns)
        for columns in prefilled:
            self.prefill.add(columns)
        alive = [c.after for c in (*decoded, *prefilled) if c.after is not None]
        if alive:
            self._last_alive = block.number(block.count - 1 - min(alive))
        self.statuses.update(statuses(answers))
        if rest := unread.rest():
            self._remarks(Remarks(block, rest))

    def _remarks(self, remarks: Remarks) -> None:
        self.watch.look(remarks)
        for _, line in remarks.with_words(b"server_args="):
            if arguments.starts(line):
                self._arguments(line)
        if b"Capture target verify CUDA graph" in remarks or b"server_args={" in remarks:
            self._newer_than_0_5_13 = True
        for number, line in remarks.with_words(READY):
            self.ready_line = number
            self.ready_lines += 1
            self._last_alive = max(self._last_alive, number)
            self._ready_at = stamp(line)[:2]
        if b"etract" in remarks:
            for line in filter(_RETRACTED.search, remarks.lines):
                self._retraction(line)
        if b"sglang" in remarks:
            for version in _NCCL.findall(remarks.text):
                if version.decode() not in self.nccl_versions:
                    self.nccl_versions.append(version.decode())
            if self.version is None and (found := _VERSION.search(remarks.text)):
                self.version = found[1].decode()
        if b"ealth check failed" in remarks:
            self.health_failures += remarks.text.count(b"ealth check failed. Server couldn't")
        if b"accept len: " in remarks or b"gen throughput (token/s): " in remarks:
            self._fragments(remarks.lines)

    def _arguments(self, line: bytes) -> None:
        self.started = True
        parsed = arguments.parse(unwrapped(line).decode("utf-8", "replace"))
        if parsed is None:
            self.arguments_cut = True
        elif self.arguments is None:
            self.arguments = parsed
        if self._began is None:
            self._began = stamp(line)[:2]

    def _retraction(self, line: bytes) -> None:
        if of_users(line.partition(b"etract")[0]):
            return
        # Every rank of a data rank reports the same events.
        ranks = stamp(line)[2]
        event = ranks.get("DP"), message(line)
        if event in self._retractions or len(self._retractions) < _MOST_RETRACTIONS:
            who = tuple(f"{name}{number}" for name, number in ranks.items())
            self._retractions.setdefault(event, Counter())[who] += 1

    def _fragments(self, lines: list[bytes]) -> None:
        """Decode lines that somebody has cut the head off."""
        taken = Lines()
        for line in lines:
            at = max(line.find(b"accept len: "), line.find(b"gen throughput (token/s): "))
            if at >= 0 and not of_users(unwrapped(line)[:at]):
                DECODE.take_apart(line, taken)
        self.decode.add(taken.columns())

    def close(self) -> None:
        """Its last line is read."""
        self.decode.close(self.draft_tokens, self._accept_rate_by_version())

    def _accept_rate_by_version(self) -> str | None:
        """What this version writes as accept rate, by what else it wrote."""
        if self.version is not None:
            release = [int(n) for n in re.findall(r"\d+", self.version)[:3]]
            return WITHOUT_BONUS if release >= [0, 5, 11] else WITH_BONUS
        if self._newer_than_0_5_13:
            return WITHOUT_BONUS
        return WITH_BONUS if self._comma_at_end else None

    @property
    def draft_tokens(self) -> int | None:
        """--speculative-num-draft-tokens, where the log tells."""
        value = (self.arguments or {}).get("speculative_num_draft_tokens")
        return value if isinstance(value, int) and value > 1 else None

    def http_statuses(self) -> dict[str, int]:
        """Answers by status code."""
        return {k.decode(): v for k, v in sorted(self.statuses.items()) if k.isdigit()}

    @property
    def stopped(self) -> Failure | None:
        """The line that told the server to stop, where it was told."""
        return self.watch.stopped

    def failure(self) -> Failure | None:
        """Why it failed; None for a server that runs on, or was stopped by us."""
        found = self.watch.result()
        if found is None or found.failure_class == "stopped_by_us":
            return None
        if found.line is None or self.watch.death is not None:
            return found
        alive_lines = 0 if found.failure_class == "hang" else _ALIVE_LINES
        return None if self._last_alive > found.line + alive_lines else found

    def seconds_to_ready(self) -> float | None:
        """From its arguments to its ready line, by their stamps."""
        if self._began is None or self._ready_at is None:
            return None
        began, ready = self._began[1], self._ready_at[1]
        return None if began is None or ready is None else (ready - began) % 86400

    def retractions(self) -> dict[str, int]:
        """Times the KV pool ran full, each counted once however many ranks say so."""
        events = [(text, max(counts.values())) for (_, text), counts in self._retractions.items()]
        found = [(_RETRACTED_COUNT.search(text), times) for text, times in events]
        return {
            "events": sum(times for _, times in events),
            "requests": sum(int(count[1]) * times for count, times in found if count),
        }

    def summary(self) -> dict[str, Any]:
        """This server alone, in a file of several."""
        return {
            "first_line": self.first_line,
            "ready": self.ready_line is not None,
            "ready_line": self.ready_line,
            "seconds_to_ready": self.seconds_to_ready(),
            "decode": self.decode.summary(),
            "prefill": self.prefill.summary(),
            "failure": as_json(self.failure()),
            "last_stage": self.watch.stage,
        }


def _first(marker: bytes, text: bytes) -> bytes:
    """The first line with `marker`, from there on, or nothing."""
    at = text.find(marker)
    return text[at : text.find(b"\n", at)] if at >= 0 else b""


def as_json(failure: Failure | None) -> dict[str, Any] | None:
    """A failure as the readers print it."""
    if failure is None:
        return None
    return {
        "class": failure.failure_class,
        "message": failure.message,
        "line": failure.line,
        "location": failure.location,
        "advice": failure.advice or ADVICE[failure.failure_class],
    }
