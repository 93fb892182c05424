"""Why a server died, told from its log: the root line, not the last one; a stop by us is no crash."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from quietgate.inspect.failure_rules import (
    ADVICE,
    CLASSES,
    CONSEQUENCE,
    GENERIC,
    NEEDLES,
    ROOT,
    RULES,
    STAGES,
    SYMPTOM,
    VAGUE,
    WEAK,
    Rule,
)
from quietgate.inspect.lines import Block, blocks, blocks_of_text
from quietgate.inspect.prefixes import USERS_JSON, USERS_TEXT, message, shipper, unwrapped
from quietgate.inspect.remarks import Remarks

__all__ = ["CLASSES", "Failure", "Watch", "classify", "last_stage"]

_EXCEPTION = re.compile(
    r"((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Timeout|Interrupt|Exit|Refused))(?::|$)\s*(.*)"
)
_FRAME = re.compile(rb'File "([^"]+)", line (\d+)(?:, in (\S+))?')
_STAGE = re.compile(
    rb"(Init (?:torch distributed|nccl) (?:begin|ends?)|Load weight (?:begin|end)|Memory pool end"
    rb"|KV Cache is allocated|Capture[ a-zA-Z]* (?:cuda|CUDA) graph (?:begin|end)"
    rb"|Application startup complete|Uvicorn running on|The server is fired up)"
)
_EXCEPTION_MARKS = (b"Error", b"xception", b"Timeout", b"Interrupt", b"Exit", b"Refused")
READY = "The server is fired up"
# Triton names the place first, quotes the source, and gives the reason as the last line.
_COMPILATION = re.compile(r"CompilationError: at \d+:\d+:$")
_REASON = re.compile(rb"\w+(?:Error|Exception)\(.*\)")
_QUOTED = ("raise ", "assert ", "return ", "except ", 'File "')
_MOMENT = re.compile(rb"\b(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)")
_KEEP = 80  # lines of context kept before a block, to find an exception's place in the source
_LONGEST_MESSAGE = 600


@dataclass(frozen=True)
class Failure:
    """Why a server failed.

    Attributes:
        failure_class: one of CLASSES.
        message: the root line, without stamps and shippers.
        line: its number in the file or text, from 1.
        location: "file.py:123 function" of an exception, where the log tells.
        advice: what to try, one line, or None.
    """

    failure_class: str
    message: str
    line: int | None
    location: str | None = None
    advice: str | None = None


@dataclass
class Watch:
    """Looks through a log for the reason of a failure, block by block, in flat memory.

    Attributes:
        death: number of the first line that only a dying server writes (an exception in a scheduler,
            a signal, an exit code), or None.
        stopped: the first line that says that the server was told to stop, as a Failure.
        stage: the last stage of starting that began or ended, as logged.
    """

    death: int | None = None
    stopped: Failure | None = None
    stage: str | None = None
    _best: dict[int, Failure] = field(default_factory=dict)
    _first_generic: Failure | None = None
    _after_marker: Failure | None = None
    _marker: Failure | None = None
    _init: list[int] = field(default_factory=lambda: [0, 0, 0])  # NCCL starts, completes, last line
    _leaked: bool = False
    _tail: list[bytes] = field(default_factory=list)
    _moments: list[str] = field(default_factory=list)
    _newest_first: bool = False
    _shipper: re.Pattern[bytes] | None = None

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
            self._line(remarks.number(i), texts, i)
        self._tail = (self._tail + texts[-_KEEP:])[-_KEEP:]

    def _order(self, texts: list[bytes]) -> None:
        # A cloud export may stand newest first: then the root is the last line, not the first.
        if len(self._moments) < 2:
            for line in (*texts[:3], *texts[-3:]):
                if found := _MOMENT.search(line[:60]):
                    self._moments.append(b" ".join(found.groups()).decode())
            if len(self._moments) >= 2:
                self._newest_first = self._moments[0] > self._moments[-1]

    def _line(self, number: int, texts: list[bytes], i: int) -> None:
        line = texts[i]
        if USERS_JSON in line:
            return
        if b"NCCL INFO" in line and (b"- Init " in line or b" COMPLETE" in line):
            self._nccl_init(number, line)
        if b"leaked" in line and b"resource_tracker" in line:
            self._leaked = True
        if stage := _STAGE.search(line):
            self.stage = stage[1].decode()
        rule = _rule_of(line)
        if rule is None and not any(mark in line for mark in _EXCEPTION_MARKS):
            return
        text = self._bare(line)
        if text.startswith(_QUOTED):
            return  # source code quoted by a traceback says what might happen, not what did
        if rule is not None:
            self._matched(rule, number, texts, i)
            return
        found = _EXCEPTION.match(text)
        if found is None and "hit an exception" in text:
            self._hit(line, number)
        # A structured shipper has a whole traceback in one line.
        if found := found or _EXCEPTION.match(text.rpartition("\n")[2]):
            text = found[0]
            place = self._place(texts, i)
            kind = found[1].rsplit(".", 1)[-1]
            failure_class = "unsupported" if kind in ("ImportError", "ModuleNotFoundError") else "unknown"
            failure = Failure(failure_class, text[:_LONGEST_MESSAGE], number, place, ADVICE[failure_class])
            if kind == "KeyboardInterrupt":
                self.stopped = self.stopped or _told("stopped_by_us", text, number)
                return
            if self._marker is not None:
                self._after_marker = self._after_marker or failure
            self._first_generic = self._first_generic or failure

    def _bare(self, line: bytes) -> str:
        """The line's message, without what this log's shipper writes before every line."""
        found = self._shipper.match(line) if self._shipper else None
        return message(line[found.end() :] if found else line)

    def _hit(self, line: bytes, number: int) -> None:
        self.death = self.death or number
        self._shipper = self._shipper or shipper(line)
        self._marker = self._marker or _told("unknown", self._bare(line), number)

    def _nccl_init(self, number: int, line: bytes) -> None:
        if b"Init START" in line:
            self._init[0] += 1
            self._init[2] = number
        elif b"Init COMPLETE" in line:
            self._init[1] += 1
        elif b"Destroy COMPLETE" in line:  # a communicator that ended did begin, whatever was cut away
            self._init[0] = 0

    def _matched(self, rule: Rule, number: int, texts: list[bytes], i: int) -> None:
        text = self._bare(texts[i])
        text = next((part for part in text.split("\n") if rule.text.decode() in part), text).strip()
        if _COMPILATION.search(text):
            reason = next((line for line in texts[i + 1 : i + _KEEP] if _REASON.match(line.strip())), b"")
            text = f"{text} {reason.decode('utf-8', 'replace')}".strip()
        text = text[:_LONGEST_MESSAGE]
        if rule.failure_class == "stopped_by_us":
            self.stopped = self.stopped or _told(rule.failure_class, text, number)
            return
        if rule.rank == CONSEQUENCE and not texts[i].startswith(b"#"):
            self.death = self.death or number
        if self.stopped is not None and not self._newest_first:
            return  # what dies after we told it to stop died of that
        rank = WEAK if texts[i].startswith(b"#") else rule.rank  # a heading or comment quotes others
        place = self._place(texts, i) if b"rror" in texts[i] else None
        failure = Failure(rule.failure_class, text, number, place, ADVICE[rule.failure_class])
        if self._newest_first and rank <= GENERIC:
            self._best[rank] = failure
        else:
            self._best.setdefault(rank, failure)

    def _place(self, texts: list[bytes], i: int) -> str | None:
        before = texts[max(0, i - 12) : i] if i >= 12 else self._tail[i - 12 :] + texts[:i]
        nearest = [*reversed(before), *(texts[i + 1 : i + 12] if self._newest_first else ())]
        for line in nearest:
            if found := _FRAME.search(unwrapped(line)):
                file, number, function = (g.decode("utf-8", "replace") if g else "" for g in found.groups())
                return f"{file.rsplit('/', 1)[-1]}:{number} {function}".rstrip()
        return None

    def result(self, exited: bool = False) -> Failure | None:
        """The failure as far as seen; a stop by us comes back as class stopped_by_us.

        Args:
            exited: the server ended by itself, so whatever its log lacks or says, it did not hang.
        """
        ranked = {r: f for r, f in self._best.items() if not (exited and f.failure_class == "hang")}
        best = ranked.get(ROOT)
        if best is not None:
            return best
        generic = self._after_marker or self._first_generic or self._marker
        if self.stopped is not None and (generic is None or _later(generic, self.stopped)):
            return self.stopped
        if (vague := ranked.get(VAGUE)) is not None:
            return vague
        symptom = ranked.get(SYMPTOM)
        # A scheduler's own exception explains the symptoms that follow it.
        hit = self._after_marker
        if symptom is not None and not (hit is not None and _later(symptom, hit)):
            return symptom
        if generic is not None:
            return generic
        # What is missing tells more than a consequence, or a word in prose.
        structural = None if exited else self._structural()
        return structural or next((ranked[rank] for rank in sorted(ranked)), None)

    def _structural(self) -> Failure | None:
        """A hang shows by what is missing: something began, never ended, and nothing says why."""
        starts, completes, number = self._init
        if starts > completes:
            return Failure(
                "hang",
                f"NCCL: {starts} communicator(s) began to initialise, {completes} completed",
                number,
                advice=ADVICE["hang"],
            )
        if self._leaked and self.stage is not None and self.stage.endswith("begin"):
            return Failure(
                "hang",
                f"the log ends in the stage {self.stage!r}, which began and never ended",
                None,
                advice=ADVICE["hang"],
            )
        return None


def _rule_of(line: bytes) -> Rule | None:
    for rule in RULES:
        if rule.text in line and (rule.pattern is None or rule.pattern.search(line)):
            return rule
    return None


def _told(failure_class: str, text: str, number: int) -> Failure:
    return Failure(failure_class, text[:_LONGEST_MESSAGE], number)


def _later(a: Failure, b: Failure) -> bool:
    return (a.line or 0) > (b.line or 0)


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
    return Failure(
        named, f"ended by signal {signal_number}, and its log names no cause", None, advice=ADVICE[named]
    )


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
