"""Processes by pid and start time: who is alive, who descends from whom, ending them safely (Linux).

A pid alone names nobody: it is reused. Everything here names a process by its pid *and* the time
it started (clock ticks since boot), and signals through a pidfd, so that a signal can never reach
a stranger who was given the pid meanwhile. Nothing is ever found by its name.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

MARKER = "QUIETGATE_INSTANCE"
"""Environment variable that every process of a server life carries."""

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
_libc = ctypes.CDLL(None, use_errno=True)


class Stat(NamedTuple):
    """The part of /proc/PID/stat that matters here."""

    state: str
    parent: int
    group: int
    session: int
    start: int


@dataclass(frozen=True)
class Identity:
    """One process, for ever: its pid and when it started (clock ticks since boot)."""

    pid: int
    start: int

    def as_json(self) -> dict[str, int]:
        """The identity as a JSON object."""
        return {"pid": self.pid, "start": self.start}

    @staticmethod
    def from_json(value: dict[str, Any]) -> Identity:
        """The inverse of `as_json`; further keys are ignored."""
        return Identity(int(value["pid"]), int(value["start"]))


def stat(pid: int) -> Stat | None:
    """State, parent, group, session and start of a process, or None when there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:  # noqa: PTH123 - a hot path
            fields = f.read().rsplit(b")", 1)[1].split()
    except (OSError, IndexError):
        return None
    return Stat(fields[0].decode(), *(int(fields[i]) for i in (1, 2, 3, 19)))


def identity(pid: int) -> Identity | None:
    """The identity of a pid's present holder, zombies included."""
    found = stat(pid)
    return Identity(pid, found.start) if found else None


def myself() -> Identity:
    """The identity of this process."""
    found = identity(os.getpid())
    assert found is not None, "/proc is not mounted"
    return found


def alive(process: Identity) -> bool:
    """Whether this very process runs: not a zombie, not a later holder of its pid."""
    found = stat(process.pid)
    return found is not None and found.state not in "ZX" and found.start == process.start


@cache
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def place() -> dict[str, str]:
    """Where pids have their meaning: host, boot and pid namespace; and the SLURM job, if any."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - not a path
    except OSError:
        namespace = ""
    return {
        "host": socket.gethostname(),
        "boot": _boot(),
        "pid_namespace": namespace,
        "slurm_job": os.environ.get("SLURM_JOB_ID", ""),
    }


def can_judge(there: dict[str, Any]) -> bool:
    """Whether pids recorded at the place `there` can be looked up from here."""
    here = place()
    return all(here[key] == there.get(key) for key in ("host", "boot", "pid_namespace"))


def table() -> dict[int, Stat]:
    """Every process that is not a zombie."""
    found = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - a hot path
        if name.isdigit() and (one := stat(int(name))) and one.state not in "ZX":
            found[int(name)] = one
    return found


def descendants(root: int) -> list[Identity]:
    """Children, grandchildren and so on of `root`, nearest first."""
    processes = table()
    children: dict[int, list[int]] = {}
    for pid, one in processes.items():
        children.setdefault(one.parent, []).append(pid)
    found, todo = [], [root]
    while todo:
        for child in children.get(todo.pop(0), []):
            found.append(Identity(child, processes[child].start))
            todo.append(child)
    return found


def marked(instance: str) -> list[Identity]:
    """Processes whose first environment names this server life, whoever their parents are."""
    mark = f"{MARKER}={instance}".encode()
    found = []
    for pid, one in table().items():
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:  # noqa: PTH123
                environment = f.read()
        except OSError:
            continue
        if mark in environment.split(b"\0"):
            found.append(Identity(pid, one.start))
    return found


def in_sessions(leaders: Iterable[Identity]) -> list[Identity]:
    """Processes in the sessions these leaders opened, also when the leader itself is gone.

    The kernel keeps a session's number from being reused while it has members. A session whose
    leader's pid is held by another process now is a later one, and left alone.
    """
    processes = table()
    found = []
    for leader in leaders:
        holder = stat(leader.pid)
        if holder and holder.start != leader.start:
            continue
        found += [
            Identity(pid, one.start)
            for pid, one in processes.items()
            if one.session == leader.pid and one.start >= leader.start
        ]
    return found


def send(process: Identity, number: int) -> bool:
    """Signal this very process; False when it is gone or not ours."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    except OSError:  # a kernel without pidfds
        descriptor = -1
    try:
        if not alive(process):
            return False
        if descriptor >= 0:
            signal.pidfd_send_signal(descriptor, number)
        else:
            os.kill(process.pid, number)
        return True
    except OSError:
        return False
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def send_all(processes: Iterable[Identity], number: int) -> None:
    """Signal each of these processes that is still there."""
    for process in processes:
        send(process, number)


def become_subreaper() -> None:
    """Adopt orphaned descendants, so that a double fork cannot leave this process's tree."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Have the kernel send `number` to this process when the thread that forked it ends."""
    _libc.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
