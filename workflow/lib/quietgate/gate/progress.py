"""Is a starting server still getting somewhere, and how far did it get?

A large model may be silent in its log for many minutes while it reads weights, and a deadlocked one
may burn its processors while it waits in a spin loop. So neither silence nor work alone decides: a
server is stalled when its logs are silent *and* its processes read and write nothing, touch no new
memory and start nobody.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from quietgate.gate.logtail import LogTail
from quietgate.serve import processes
from quietgate.serve.processes import Identity
from quietgate.serve.state import Live

# A sample costs a scan of /proc; a stall is a matter of minutes.
SAMPLE_S = 1.0
# Less than this per second is the idle ticking of threads that poll, and of our own probes.
_BYTES_PER_S = 200_000
_PAGE_FAULTS_PER_S = 500
# What our own probes leave in the log is no sign of the server's work.
_PROBE = re.compile(r'"GET /(?:ready|health|health_generate|server_info|get_server_info|metrics) ')

# The last of these that the log has is the stage that was reached; all releases from 0.4 on.
_STAGES = (
    (re.compile(r"server_args=|ServerArgs\("), "arguments parsed"),
    (re.compile(r"Init torch distributed begin"), "joining the ranks"),
    (re.compile(r"Init torch distributed ends"), "ranks joined"),
    (re.compile(r"Load weight begin|Loading (safetensors|pt) checkpoint"), "loading weights"),
    (re.compile(r"Load weight end"), "weights loaded"),
    (re.compile(r"KV Cache is allocated|Memory pool end"), "KV cache allocated"),
    (re.compile(r"Capture .*cuda graph begin", re.I), "capturing CUDA graphs"),
    (re.compile(r"Capture .*cuda graph end", re.I), "CUDA graphs captured"),
    (re.compile(r"max_total_num_tokens="), "scheduler ready"),
    (re.compile(r"Uvicorn running on|Application startup complete"), "HTTP server up"),
    (re.compile(r"Prefill batch"), "first prefill"),
    (re.compile(r"The server is fired up and ready to roll"), "ready"),
)


def last_stage(log: str) -> tuple[str, str | None]:
    """How far a boot got: (the last stage its log shows, the last line that shows one)."""
    reached, line_of = "started", None
    for line in log.splitlines():
        for pattern, name in _STAGES:
            if pattern.search(line):
                reached, line_of = name, line.strip()[:300]
    return reached, line_of


class Progress:
    """Watches a server's logs and processes for signs of work."""

    def __init__(self, live: Live, roots: Sequence[Identity]):
        self._live = live
        self._roots = roots
        self._log = LogTail(live.log)
        self._last: _Sample | None = None
        self._moved = time.monotonic()

    def stalled_s(self) -> float:
        """Seconds since the last sign of work, looking again at most once a second."""
        now = time.monotonic()
        if self._last is None or now - self._last.at >= SAMPLE_S:
            sample = self._sample(now)
            if self._last is None or sample.works_since(self._last) or self._said_something():
                self._moved = now
            self._last = sample
        return now - self._moved

    def _said_something(self) -> bool:
        lines = self._log.new_lines()
        return any(line.strip() and not _PROBE.search(line) for line in lines)

    def _sample(self, now: float) -> _Sample:
        members = {r.pid for r in self._roots}
        for root in self._roots:
            members |= {child.pid for child in processes.descendants(root.pid)}
        others = [p for p in self._live.instance_dir.glob("*.log") if p.name != self._live.log.name]
        return _Sample(
            at=now,
            members=frozenset(members),
            other_logs=sum(map(_size, others)),
            io_bytes=sum(map(_io_bytes, members)),
            page_faults=sum(map(_page_faults, members)),
        )


@dataclass(frozen=True)
class _Sample:
    at: float
    members: frozenset[int]
    other_logs: int
    io_bytes: int
    page_faults: int

    def works_since(self, before: _Sample) -> bool:
        seconds = max(self.at - before.at, 0.01)
        return (
            self.members != before.members
            or self.other_logs != before.other_logs
            or abs(self.io_bytes - before.io_bytes) > _BYTES_PER_S * seconds
            or abs(self.page_faults - before.page_faults) > _PAGE_FAULTS_PER_S * seconds
        )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _io_bytes(pid: int) -> int:
    """Bytes that a process has read and written, page cache included."""
    try:
        text = Path(f"/proc/{pid}/io").read_text()
    except OSError:
        return 0
    fields = dict(line.split(": ") for line in text.splitlines())
    return int(fields.get("rchar", 0)) + int(fields.get("wchar", 0))


def _page_faults(pid: int) -> int:
    """Pages that a process has touched for the first time: weights mapped into memory, buffers."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return 0
    return int(text[7]) + int(text[9])
