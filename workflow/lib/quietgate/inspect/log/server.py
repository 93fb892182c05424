"""One server life in a log: arguments, readiness, batches, failure."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from quietgate.inspect.failure_rules import ADVICE
from quietgate.inspect.failures import USERS_TEXT, Failure, Watch
from quietgate.inspect.lines import Block
from quietgate.inspect.log import arguments
from quietgate.inspect.log.accept_rate import WITH_BONUS, WITHOUT_BONUS
from quietgate.inspect.log.batches import DECODE_FIELDS, PREFILL_FIELDS, Batches, Lines
from quietgate.inspect.log.decode import Decode
from quietgate.inspect.log.prefill import Prefill
from quietgate.inspect.prefixes import message, of_users, stamp, unwrapped

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
        """Is there a sign of a server in these lines at all?"""
        return bool(
            self.started
            or self.ready_line
            or self.decode.lines
            or self.prefill.lines
            or self.watch.stage
            or self.watch.result()
        )

    def see(self, block: Block) -> None:
        """Take a block of lines."""
        lines = block.lines
        others: list[tuple[int, bytes]] = []
        if b"Decode batch" not in lines[0] or block.data.count(b"Decode batch") != len(lines):
            others = [(i, line) for i, line in enumerate(lines) if b"Decode batch" not in line]
        decode: list[bytes] = [] if others else lines
        after = 0
        for i, _ in others:
            decode += lines[after:i]
            after = i + 1
        decode = decode + lines[after:] if others else decode
        last = len(lines) - 1 if after < len(lines) else -1
        prefill: list[bytes] = []
        served: list[bytes] = []
        rest: list[tuple[int, bytes]] = []
        last_prefill = -1
        for entry in others:
            line = entry[1]
            if b"Prefill batch" in line:
                prefill.append(line)
                last_prefill = entry[0]
            elif b' HTTP/1.1" ' in line:
                served.append(line)
            elif USERS_TEXT not in line:
                rest.append(entry)
        if decode:
            for columns in DECODE.read(decode):
                self.decode.add(columns)
            self._comma_at_end |= decode[0].endswith(b", ")
        if prefill:
            for columns in PREFILL.read(prefill):
                self.prefill.add(columns)
        if served:
            self._served(served)
        if (last := max(last, last_prefill)) >= 0:
            self._last_alive = block.number(last)
        if rest:
            self._others(block, rest)

    def _served(self, lines: list[bytes]) -> None:
        fine = [line[-6:] for line in lines].count(b"200 OK")
        if fine:
            self.statuses[b"200"] += fine
        if fine < len(lines):
            others = (line for line in lines if not line.endswith(b"200 OK"))
            self.statuses.update(line.rpartition(b'" ')[2][:3] for line in others)

    def _others(self, block: Block, rest: list[tuple[int, bytes]]) -> None:
        texts = [line for _, line in rest]
        blob = b"\n".join(texts)
        self.watch.look(block, [i for i, _ in rest], texts, blob)
        if b"server_args=" in blob:
            for _, line in rest:
                if arguments.starts(line):
                    self._arguments(line)
        if b"Capture target verify CUDA graph" in blob or b"server_args={" in blob:
            self._newer_than_0_5_13 = True
        if READY in blob:
            for i, line in rest:
                if READY in line:
                    self.ready_line = block.number(i)
                    self.ready_lines += 1
                    self._last_alive = max(self._last_alive, self.ready_line)
                    self._ready_at = stamp(line)[:2]
        if b"etract" in blob:
            for _, line in rest:
                if _RETRACTED.search(line):
                    self._retraction(line)
        if b"sglang" in blob:
            for version in _NCCL.findall(blob):
                if version.decode() not in self.nccl_versions:
                    self.nccl_versions.append(version.decode())
            if self.version is None and (found := _VERSION.search(blob)):
                self.version = found[1].decode()
        if b"ealth check failed" in blob:
            self.health_failures += blob.count(b"ealth check failed. Server couldn't")
        if b"accept len: " in blob or b"gen throughput (token/s): " in blob:
            self._fragments(rest)

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

    def _fragments(self, rest: list[tuple[int, bytes]]) -> None:
        """Decode lines that somebody has cut the head off."""
        taken = Lines()
        for _, line in rest:
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
        lives_on = (
            self.watch.death is None
            and found.line is not None
            and self._last_alive > found.line + _ALIVE_LINES
        )
        return None if lives_on else found

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
