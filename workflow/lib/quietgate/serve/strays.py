"""What is left of a server whose supervisors were both killed: found, ended, recorded."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from quietgate.files import read_json, write_json
from quietgate.serve.processes import Identity, alive, in_sessions, marked, send_all
from quietgate.serve.state import End, State, exit_file, put_json, utc

BOTH_KILLED = "both supervisors of the server were killed"


def sweep(instance: str, leaders: Iterable[Identity] = (), timeout_s: float = 30.0) -> list[int]:
    """Kill every process of a server life, found by marker or session; the pids that would not die.

    Only for a life whose supervisors are dead: a living one does it better.
    """
    leaders = list(leaders)
    give_up = time.monotonic() + timeout_s
    while True:
        found = {p for p in [*marked(instance), *in_sessions(leaders)] if p.pid != os.getpid()}
        if not found or time.monotonic() > give_up:
            return sorted(p.pid for p in found)
        send_all(found, signal.SIGKILL)
        time.sleep(0.02)


def leaders_of(lease: dict[str, Any]) -> list[Identity]:
    """The processes that a lease names as started by the supervisor."""
    return [Identity.from_json(p) for p in lease["started"]]


def supervised(lease: dict[str, Any]) -> bool:
    """Whether a supervisor of this lease is alive, and will end the server if need be."""
    return any(alive(Identity.from_json(s)) for s in lease["supervisors"])


def tombstone(path: Path, lease: dict[str, Any], end: End) -> dict[str, Any]:
    """Mark a lease as ended, so that nobody trusts it any more; the first reason given stays."""
    if lease.get("ended") is None:
        lease = lease | {"ended": vars(end)}
        put_json(path, lease)
    return lease


def bury(state: State) -> list[int]:
    """End and record a life that nobody ended. Only for the holder of the launch's lock."""
    lease = read_json(state.lease)
    if not isinstance(lease, dict):
        return []
    instance = str(lease["instance"])
    record = exit_file(Path(lease["instance_dir"]).parent, instance)
    if record.exists():
        return []
    left = sweep(instance, leaders_of(lease))
    lease = tombstone(state.lease, lease, End(BOTH_KILLED))
    if record.parent.is_dir():
        write_json(
            record,
            {
                "instance": instance,
                "cell": lease["cell"],
                "launch": lease["launch"],
                "slot": lease["slot"],
                "reason": lease["ended"]["reason"],
                "interrupted": lease["ended"]["interrupted"],
                "returncode": None,
                "returncodes": [None] * len(lease["started"]),
                "forced": True,
                "left": left,
                "started_at": utc(lease["started_at"]),
                "ended_at": utc(),
                "gpu_memory": {"used_before_mib": None, "why": BOTH_KILLED},
            },
        )
    return left
