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
LOOKS = 3
"""Looks without finding anything before nothing is believed to be left: a process that is just being
forked is not listed yet, and one that is just executing a program shows no environment."""
_UNKNOWN_MEMORY = {"used_before_mib": None, "used_after_mib": None, "settled": None, "why": BOTH_KILLED}


def sweep(instance: str, leaders: Iterable[Identity] = (), timeout_s: float = 30.0) -> list[int]:
    """Kill every process of a server life, found by marker or session; the pids that would not die.

    Only for a life whose supervisors are dead: a living one does it better.
    """
    leaders = list(leaders)
    give_up = time.monotonic() + timeout_s
    seen_none = 0
    while True:
        found = {p for p in [*marked(instance), *in_sessions(leaders)] if p.pid != os.getpid()}
        seen_none = 0 if found else seen_none + 1
        if seen_none == LOOKS or time.monotonic() > give_up:
            return sorted(p.pid for p in found)
        send_all(found, signal.SIGKILL)
        time.sleep(0.03)


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


def bury(state: State) -> list[int] | None:
    """End and record a life that nobody ended; what of it would not die. None if there is none.

    Only for the holder of the launch's lock.
    """
    buried = [left for left in (_bury_unpublished(state), _bury_lease(state)) if left is not None]
    return sorted({pid for left in buried for pid in left}) if buried else None


def _bury_unpublished(state: State) -> list[int] | None:
    """A life cut off between its first process and its lease is known by its order and marker."""
    order = read_json(state.order)
    if not isinstance(order, dict) or order["instance"] == (read_json(state.lease) or {}).get("instance"):
        return None
    instance, spec = str(order["instance"]), order["spec"]
    record = exit_file(Path(spec["instances_dir"]), instance)
    if record.exists() or not record.parent.is_dir():
        return None
    left = sweep(instance)
    whose = {"cell": spec["cell"], "launch": spec["launch"], "slot": None, "ended": vars(End(BOTH_KILLED))}
    write_exit(record, whose, [None] * len(spec["processes"]), True, left, _UNKNOWN_MEMORY)
    return left


def _bury_lease(state: State) -> list[int] | None:
    lease = read_json(state.lease)
    if not isinstance(lease, dict):
        return None
    instance = str(lease["instance"])
    record = exit_file(Path(lease["instance_dir"]).parent, instance)
    if record.exists():
        return None
    left = sweep(instance, leaders_of(lease))
    lease = tombstone(state.lease, lease, End(BOTH_KILLED))
    write_exit(record, lease, [None] * len(lease["started"]), True, left, _UNKNOWN_MEMORY)
    return left


def write_exit(
    path: Path,
    lease: dict[str, Any],
    returncodes: list[int | None],
    forced: bool,
    left: list[int],
    gpu_memory: dict[str, Any],
) -> None:
    """Record the end of a server life, unless its folder was deleted meanwhile."""
    if not path.parent.is_dir():
        return
    write_json(
        path,
        {
            "instance": path.parent.name,
            "cell": lease["cell"],
            "launch": lease["launch"],
            "slot": lease["slot"],
            "reason": lease["ended"]["reason"],
            "interrupted": lease["ended"]["interrupted"],
            "returncode": returncodes[0] if returncodes else None,
            "returncodes": returncodes,
            "forced": forced,
            "left": sorted(left),
            "started_at": utc(lease["started_at"]) if "started_at" in lease else None,
            "ended_at": utc(),
            "gpu_memory": gpu_memory,
        },
    )
