"""From what a log said, in which order, to why its server failed: the root, not the last line."""

from __future__ import annotations

from dataclasses import dataclass, field

from quietgate.inspect.failure_classes import Failure, told
from quietgate.inspect.failure_ranks import GENERIC, REQUEST, ROOT, SYMPTOM, VAGUE
from quietgate.wording import counted


@dataclass
class Evidence:
    """What was seen that may explain a failure.

    Attributes:
        newest_first: the log stands newest line first, so its root is the last one seen.
        death: number of the first line that only a dying server writes, or None.
        stopped: the first line that says that the server was told to stop.
        leaked: Python complained at its end of what was never given back.
    """

    newest_first: bool = False
    death: int | None = None
    stopped: Failure | None = None
    leaked: bool = False
    _best: dict[int, Failure] = field(default_factory=dict)
    _first_exception: Failure | None = None
    _scheduler: Failure | None = None  # the line that says that a scheduler hit an exception ...
    _schedulers: Failure | None = None  # ... and the exception, where no rule knows it
    _expected: bool = False  # a scheduler's exception has still to come,
    _above: Failure | None = None  # or stands above, in a log that stands newest first
    _starts: int = 0  # communicators that began to initialise
    _completes: int = 0
    _start_line: int | None = None

    def rule(self, rank: int, failure: Failure, raised: bool = False) -> None:
        """A line of this rank tells of this failure; `raised`: it is an exception's."""
        if raised:
            self._expected, self._above = False, None
        if self.newest_first and rank <= GENERIC:
            self._best[rank] = failure
        else:
            self._best.setdefault(rank, failure)

    def hit(self, line: Failure) -> None:
        """A process of the server says that it hit an exception, which stands in the lines that follow."""
        self.died(line.line)
        self._scheduler = self._scheduler or line
        if not self.newest_first:
            self._expected = True
        elif self._above is not None:
            self._schedulers = self._above
        self._above = None

    def exception(self, failure: Failure) -> None:
        """An exception that no rule knows."""
        if self._expected:
            self._schedulers = self._schedulers or failure
        self._expected = False
        self._above = failure
        self._first_exception = failure if self.newest_first else self._first_exception or failure

    def died(self, number: int | None) -> None:
        """Only a dying server writes this line."""
        self.death = self.death or number

    def was_stopped(self, line: Failure) -> None:
        """The server was told to stop."""
        self.stopped = self.stopped or line

    def went_on(self, ready: bool, loads: bool) -> None:
        """A start reached a stage: what a server warned of before it was ready did not stop it.

        Args:
            ready: the server is ready.
            loads: it loads weights, for which its ranks have to have found each other.
        """
        if self.newest_first or self.death is not None:
            return
        if ready:
            self._best.clear()
            self._first_exception = None
        elif loads:
            kept = {rank: f for rank, f in self._best.items() if f.failure_class != "nccl_init"}
            self._best = kept

    def nccl_init(self, number: int, line: bytes) -> None:
        """NCCL tells of a communicator that begins, is complete, or ends."""
        if b"Init START" in line:
            self._starts += 1
            self._start_line = number
        elif b"Init COMPLETE" in line:
            self._completes += 1
        elif b"Destroy COMPLETE" in line:  # a communicator that ended did begin, whatever was cut away
            self._starts = 0

    def verdict(self, stage: str | None, exited: bool) -> Failure | None:
        """The failure as far as seen; a stop by us comes back as class stopped_by_us.

        Args:
            stage: the last stage of starting that began or ended.
            exited: the server ended by itself, so whatever its log lacks or says, it did not hang.
        """
        ranked = {
            rank: failure
            for rank, failure in self._best.items()
            if (rank != REQUEST or exited) and not (exited and failure.failure_class == "hang")
        }
        if (best := ranked.get(ROOT)) is not None:
            return best
        hit, first = self._schedulers, self._first_exception
        generic = hit or first or self._scheduler
        if self.stopped is not None and (generic is None or self._after(generic, self.stopped)):
            return self.stopped
        if (vague := ranked.get(VAGUE)) is not None:
            return vague
        # A scheduler's own exception explains what other ranks say, and both the symptoms that follow.
        said = ranked.get(GENERIC) if hit is None else hit
        symptom = ranked.get(SYMPTOM)
        if symptom is not None and (said is None or not self._after(symptom, said)):
            return symptom
        if said is not None and (said is hit or first is None or self._after(first, said)):
            return said
        if generic is not None:
            return generic
        # What is missing tells more than a consequence, or a word in prose.
        missing = None if exited else self._missing(stage)
        return missing or next((ranked[rank] for rank in sorted(ranked)), None)

    def _missing(self, stage: str | None) -> Failure | None:
        """A hang shows by what is missing: something began, never ended, and nothing says why."""
        if self._starts > self._completes:
            said = f"{counted(self._starts, 'communicator')} began to initialise, {self._completes} completed"
            return told("hang", f"NCCL: {said}", self._start_line)
        if self.leaked and stage is not None and stage.endswith("begin"):
            return told("hang", f"the log ends in the stage {stage!r}, which began and never ended", None)
        return None

    def _after(self, a: Failure, b: Failure) -> bool:
        """Was `a` written after `b`? By their lines."""
        if self.newest_first:
            a, b = b, a
        return (a.line or 0) > (b.line or 0)
