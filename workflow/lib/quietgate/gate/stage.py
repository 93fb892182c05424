"""What the stages share: the server under proof, the watch over its life, and the verdicts."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quietgate.errors import CellFailed
from quietgate.files import read_json
from quietgate.gate import cause, direct
from quietgate.gate.plan import GatePlan
from quietgate.gate.progress import Progress
from quietgate.serve import processes
from quietgate.serve.processes import Identity
from quietgate.serve.state import Live

# Short enough that the gate adds well under a second to the moment a server can decode.
POLL_S = 0.05
# How long the record of a dead server's exit status may take to appear.
EXIT_RECORD_S = 3.0
LOG_TAIL_BYTES = 256_000

NAMES = (
    "process",
    "port",
    "http",
    "arguments",
    "environment",
    "nccl",
    "decode",
    "cuda_graphs",
    "warm_up",
)

Evidence = dict[str, Any]


class StageFailed(Exception):
    """The proof failed: class, reason, and the lines it rests on.

    Attributes:
        stage: the stage to blame where it is not the one that was being proved.
    """

    def __init__(
        self,
        failure_class: str,
        reason: str,
        lines: list[str] | None = None,
        evidence: Evidence | None = None,
        stage: str | None = None,
    ):
        self.failure_class = failure_class
        self.reason = reason
        self.lines = lines or []
        self.evidence = evidence or {}
        self.stage = stage
        super().__init__(reason)


@dataclass
class NotApplicable(Exception):
    """The stage proves nothing here, and why."""

    why: str
    evidence: Evidence = field(default_factory=dict)


@dataclass
class Proof:
    """A stage's evidence, and a remark where it passed with one."""

    evidence: Evidence
    why: str | None = None


class Subject:
    """The server under proof and what earlier stages learnt about it."""

    def __init__(
        self,
        live: Live,
        plan: GatePlan,
        report: Callable[[str], None] = lambda line: None,
        check: Callable[[], None] = lambda: None,
    ):
        self.live = live
        self.plan = plan
        self.report = report
        self._check = check
        self.http = direct.session()
        self.roots: tuple[Identity, ...] = live.started or tuple(
            found for pid in live.pids if (found := processes.identity(pid))
        )
        self.progress = Progress(live, self.roots)
        # Left by one stage for a later one.
        self.version: str | None = None
        self.effective: Evidence = {}
        self.ranks: list[Evidence] = []
        self.metrics_before_decode: Any = None
        self.log_before_decode = 0
        self.fingerprints: list[Evidence] = []

    def url(self, path: str) -> str:
        """The address of an endpoint."""
        return self.live.base_url + path

    def members(self) -> set[int]:
        """Pids of the launched processes, their descendants, and their process groups."""
        pids = {r.pid for r in self.roots}
        for root in self.roots:
            pids |= {child.pid for child in processes.descendants(root.pid)}
        groups = set(self.live.pgids)
        return pids | {pid for pid, one in processes.table().items() if one.group in groups}

    def poll(self) -> None:
        """To be called in every wait: the lease holds, nobody told us to stop, the server lives.

        Raises StageFailed with the cause of death the moment a process of the launch is gone.
        """
        try:
            self._check()
        except CellFailed as e:
            code = self._exit_record().get("returncode")
            raise StageFailed(
                e.failure_class, e.reason, e.evidence, {"returncode": code}, stage="process"
            ) from None
        gone = [r.pid for r in self.roots if not processes.alive(r)]
        if gone or len(self.roots) < len(self.live.pids):
            self.died(gone)

    def linger(self, seconds: float = 2.0) -> None:
        """Watch a little longer: a dying server breaks connections a moment before it is gone."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.poll()
            time.sleep(POLL_S)

    def died(self, pids: list[int]) -> None:
        """Raise StageFailed for a dead server: exit status, root line of the log, its class."""
        record = self._exit_record(wait_s=EXIT_RECORD_S)
        code = record.get("returncode")
        found = cause.of_death(self.live.log, code)
        last = [line.strip() for line in tail(self.live.log).replace("\r", "\n").splitlines()]
        lines = [*found.lines, *[line[:300] for line in last if line][-12:]]
        how = "died" if code is None else f"ended with exit status {code}"
        raise StageFailed(
            found.failure_class,
            f"the server {how}: {found.message}",
            lines,
            {"returncode": code, "pids": pids},
            stage="process",
        )

    def wait(
        self, done: Callable[[], bool], deadline_s: float, on_deadline: Callable[[], StageFailed]
    ) -> None:
        """Poll until `done`; the server's death, a stop, or the deadline end the wait."""
        end = time.monotonic() + deadline_s
        while not done():
            self.poll()
            if time.monotonic() > end:
                raise on_deadline()
            time.sleep(POLL_S)

    def _exit_record(self, wait_s: float = 0.0) -> Evidence:
        end = time.monotonic() + wait_s
        path = self.live.instance_dir / "exit.json"
        while not path.exists() and time.monotonic() < end:
            time.sleep(POLL_S)
        found = read_json(path)
        return found if isinstance(found, dict) else {}


def tail(path: Path, size: int = LOG_TAIL_BYTES) -> str:
    """The end of a log as text; empty when there is none."""
    try:
        with path.open("rb") as f:
            f.seek(0, 2)
            f.seek(max(0, f.tell() - size))
            return f.read().decode(errors="replace")
    except OSError:
        return ""
