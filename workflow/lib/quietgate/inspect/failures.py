"""Why a server died, told from its log: the root line, not the last one; a stop by us is no crash."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from quietgate.inspect import tracebacks
from quietgate.inspect.failure_classes import CLASSES, Failure, told
from quietgate.inspect.failure_ranks import CONSEQUENCE, REQUEST, WEAK
from quietgate.inspect.failure_rules import NEEDLES, STAGES, Rule, rule_of
from quietgate.inspect.lines import Block, blocks, blocks_of_text
from quietgate.inspect.prefixes import USERS_JSON, USERS_TEXT, message, shipper, unwrapped
from quietgate.inspect.remarks import Remarks
from quietgate.inspect.tracebacks import Survived
from quietgate.inspect.verdict import Evidence

__all__ = ["CLASSES", "Failure", "Watch", "classify", "last_stage"]

_STAGE = re.compile(
    rb"(Init (?:torch distributed|nccl) (?:begin|ends?)|Load weight (?:begin|end)|Memory pool end"
    rb"|KV Cache is allocated|Capture[ a-zA-Z]* (?:cuda|CUDA) graph (?:begin|end)"
    rb"|Application startup complete|Uvicorn running on|The server is fired up)"
)
READY = "The server is fired up"
_MOMENT = re.compile(rb"\b(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)")
_KEEP = 80  # lines of context kept before a block, to find an exception's place in the source
_PLACE_WITHIN = 12  # lines
# Bytes at each end of a line: rules with several `.*` would take minutes for one that repeats their words.
_LOOKED_AT = 1 << 10


@dataclass
class Watch:
    """Looks through a log for the reason of a failure, block by block, in flat memory.

    Attributes:
        stage: the last stage of starting that began or ended, as logged.
    """

    stage: str | None = None
    _seen: Evidence = field(default_factory=Evidence)
    _survived: Survived = field(default_factory=Survived)
    _tail: list[bytes] = field(default_factory=list)
    _moments: list[str] = field(default_factory=list)
    _shipper: re.Pattern[bytes] | None = None

    @property
    def death(self) -> int | None:
        """Number of the first line that only a dying server writes (an exception in a scheduler, a signal,
        an exit code), or None."""
        return self._seen.death

    @property
    def stopped(self) -> Failure | None:
        """The first line that says that the server was told to stop, as a Failure."""
        return self._seen.stopped

    def see(self, block: Block) -> None:
        """Take a block of a log."""
        lines = [
            (i, line)
            for i, line in enumerate(block.lines)
            if b"Decode batch" not in line
            and b"Prefill batch" not in line
            and b' HTTP/1.1" ' not in line
            and USERS_TEXT not in line
        ]
        self.look(Remarks(block, lines))

    def look(self, remarks: Remarks) -> None:
        """Take the lines of a block that are not ordinary traffic."""
        texts = remarks.lines
        self._order(texts)
        for i in remarks.with_any(NEEDLES if self.stage == READY else (*NEEDLES, *STAGES)):
            self._line(remarks.number(i), texts, i, _shortened(texts[i]))
        self._tail = (self._tail + texts[-_KEEP:])[-_KEEP:]

    def result(self, exited: bool = False) -> Failure | None:
        """The failure as far as seen; a stop by us comes back as class stopped_by_us.

        Args:
            exited: the server ended by itself, so whatever its log lacks or says, it did not hang.
        """
        return self._seen.verdict(self.stage, exited)

    def _order(self, texts: list[bytes]) -> None:
        # A cloud export may stand newest first: then the root is the last line, not the first.
        if len(self._moments) < 2:
            for line in (*texts[:3], *texts[-3:]):
                if found := _MOMENT.search(line[:60]):
                    self._moments.append(b" ".join(found.groups()).decode())
            if len(self._moments) >= 2:
                self._seen.newest_first = self._moments[0] > self._moments[-1]

    def _line(self, number: int, texts: list[bytes], i: int, line: bytes) -> None:
        if USERS_JSON in line:
            return
        if b"NCCL INFO" in line and (b"- Init " in line or b" COMPLETE" in line):
            self._seen.nccl_init(number, line)
        if b"leaked" in line and b"resource_tracker" in line:
            self._seen.leaked = True
        if stage := _STAGE.search(line):
            self.stage = stage[1].decode()
            self._seen.went_on(ready=self.stage == READY, loads=self.stage.startswith("Load weight"))
        survived = self._survived.see(line, self._above(texts, i, 3))
        rule = rule_of(line)
        if rule is None and not tracebacks.may_raise(line):
            return
        text = self._bare(line)
        if tracebacks.quoted(text):
            return
        raised = tracebacks.raised(text)
        if rule is not None:
            survived = survived and (raised is not None or rule.rank == WEAK)
            self._matched(rule, number, texts, i, text, survived, raised is not None)
        elif raised is not None:
            self._raised(*raised, number, texts, i, survived)
        elif "hit an exception" in text:
            self._shipper = self._shipper or shipper(line)
            self._seen.hit(told("unknown", self._bare(line), number))

    def _matched(
        self, rule: Rule, number: int, texts: list[bytes], i: int, text: str, survived: bool, raised: bool
    ) -> None:
        text = next((part for part in text.split("\n") if rule.text.decode() in part), text).strip()
        text = tracebacks.with_reason(text, (), texts[i + 1 :])
        if rule.failure_class == "stopped_by_us":
            self._seen.was_stopped(told(rule.failure_class, text, number))
            return
        heading = texts[i].startswith(b"#")  # a heading or comment quotes others
        if not heading and (rule.rank == CONSEQUENCE or rule.failure_class == "segmentation_fault"):
            self._seen.died(number)
        if self.stopped is not None and not self._seen.newest_first:
            return  # what dies after we told it to stop died of that
        rank = WEAK if heading else REQUEST if survived or self._of_request(rule) else rule.rank
        place = self._place(texts, i) if raised or b"rror" in texts[i] else None
        failure = told(rule.failure_class, text, number, place)
        self._seen.rule(rank, failure, raised)

    def _of_request(self, rule: Rule) -> bool:
        return rule.rank == WEAK and rule.failure_class == "context_too_long" and self.stage == READY

    def _raised(self, kind: str, text: str, number: int, texts: list[bytes], i: int, survived: bool) -> None:
        if kind == "KeyboardInterrupt" or tracebacks.ends_a_server(kind, self._above(texts, i, _KEEP)):
            self._seen.was_stopped(told("stopped_by_us", text, number))
            return
        text = tracebacks.with_reason(text, self._above(texts, i, 4), texts[i + 1 :])
        failure_class = "unknown"
        if kind in ("ImportError", "ModuleNotFoundError"):
            failure_class = "unsupported"
        elif tracebacks.loads_a_draft(self._above(texts, i, _KEEP)):
            failure_class = "draft_mismatch"
        failure = told(failure_class, text, number, self._place(texts, i))
        if survived or kind == "CancelledError":
            self._seen.rule(REQUEST, failure)
        else:
            self._seen.exception(failure)

    def _bare(self, line: bytes) -> str:
        """The line's message, without what this log's shipper writes before every line."""
        found = self._shipper.match(line) if self._shipper else None
        return message(line[found.end() :] if found else line)

    def _above(self, texts: list[bytes], i: int, count: int) -> list[bytes]:
        """So many lines above a line of this block, the nearest first."""
        above = texts[max(0, i - count) : i]
        if i < count:
            above = self._tail[i - count :] + above
        return above[::-1]

    def _place(self, texts: list[bytes], i: int) -> str | None:
        below = texts[i + 1 : i + _PLACE_WITHIN] if self._seen.newest_first else []
        return tracebacks.place([*self._above(texts, i, _PLACE_WITHIN), *below])


def classify(
    text_or_path: str | bytes | Path, returncode: int | None = None, exited: bool = False
) -> Failure | None:
    """Why the server that wrote this log failed, or None where nothing tells.

    Args:
        text_or_path: a Path is read from disk in flat memory (an unreadable or empty one tells
            nothing); a str or bytes is the log's text itself.
        returncode: the launcher's exit status (negative: the signal), asked where the log names no
            cause of its own.
        exited: the server ended by itself, which no hanging server does.
    """
    found = _watched(text_or_path).result(exited)
    named = None if returncode is None else _of_status(returncode)
    if named is not None and (found is None or found.failure_class == "killed"):
        return named
    return found


def _shortened(line: bytes) -> bytes:
    """The line, with each text line in it (a shipper may wrap a whole traceback) cut to its two ends."""
    if len(line) <= 2 * _LOOKED_AT:
        return line
    return b"\n".join(
        text if len(text) <= 2 * _LOOKED_AT else b"%b\n%b" % (text[:_LOOKED_AT], text[-_LOOKED_AT:])
        for text in unwrapped(line).split(b"\n")
    )


def _of_status(returncode: int) -> Failure | None:
    # A shell reports a signal as 128 + its number.
    signal_number = -returncode if returncode < 0 else returncode - 128
    failure_class = {
        2: "stopped_by_us",
        7: "shared_memory",
        9: "killed",
        11: "segmentation_fault",
        15: "stopped_by_us",
    }
    named = failure_class.get(signal_number)
    if named is None:
        return None
    return told(named, f"ended by signal {signal_number}, and its log names no cause", None)


def last_stage(text_or_path: str | bytes | Path) -> str | None:
    """The last stage of starting that the log names, e.g. "Capture target verify CUDA graph begin"."""
    return _watched(text_or_path).stage


def _watched(text_or_path: str | bytes | Path) -> Watch:
    watch = Watch()
    source: Iterable[Block]
    if isinstance(text_or_path, Path):
        source = blocks(text_or_path, tolerant=True)
    else:
        source = blocks_of_text(text_or_path)
    for block in source:
        watch.see(block)
    return watch
