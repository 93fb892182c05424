"""Stage 2: what listens on the port belongs to the server that we launched.

SGLang opens its port only when every rank has loaded and captured its graphs, so this is the long
wait. A stranger on the port is told at once: SGLang itself would load the whole model first, and log
"ready to roll" before it notices.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from quietgate.gate.progress import last_stage
from quietgate.gate.stage import Evidence, Proof, StageFailed, Subject, tail
from quietgate.gate.waiting import wait_while_working
from quietgate.serve import processes

_LISTEN = "0A"


def prove(subject: Subject) -> Proof:
    """Wait until our own process group listens on the port; a stranger on it is a failure."""
    began = time.monotonic()
    port = subject.live.port
    found: Evidence = {}

    def ours() -> bool:
        sockets = listening(port)
        if not sockets:
            return False
        holder = holder_of(sockets, subject.members())
        if holder is not None:
            found.update(pid=holder, command=command_of(holder), addresses=sorted(sockets.values()))
            return True
        stranger = holder_of(sockets, processes.table())
        who = f"process {stranger} ({command_of(stranger)})" if stranger else "a process of another user"
        raise StageFailed(
            "port_in_use",
            f"port {port} is held by {who}, which is not ours; free it or leave `lease.port` open",
            evidence={"pid": stranger, "addresses": sorted(sockets.values())},
        )

    wait_while_working(subject, ours, subject.plan.ready_s)
    stage, line = last_stage(tail(subject.live.log))
    found.update(listening_after_s=round(time.monotonic() - began, 3), boot=stage, line=line)
    return Proof(found)


def listening(port: int) -> dict[int, str]:
    """Sockets that listen on a TCP port of this network namespace: inode -> address."""
    found = {}
    for name in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/net/{name}").read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            address, _, number = fields[1].rpartition(":")
            if fields[3] == _LISTEN and int(number, 16) == port:
                found[int(fields[9])] = f"{name}:{_address(address)}"
    return found


def _address(text: str) -> str:
    """An address of /proc/net/tcp as a person writes it; IPv6 stays as the kernel prints it."""
    if len(text) != 8:
        return "::" if not text.strip("0") else text
    return ".".join(str(int(text[i : i + 2], 16)) for i in (6, 4, 2, 0))


def holder_of(sockets: dict[int, str], pids: object) -> int | None:
    """The process among `pids` that has one of these sockets open."""
    wanted = {f"socket:[{inode}]" for inode in sockets}
    for pid in list(pids):  # type: ignore[call-overload]
        folder = f"/proc/{pid}/fd"
        try:
            for entry in os.scandir(folder):
                try:
                    if os.readlink(entry.path) in wanted:  # noqa: PTH115 - a hot path
                        return int(pid)
                except OSError:
                    continue
        except OSError:
            continue
    return None


def command_of(pid: int | None) -> str | None:
    """The command line of a process, shortened."""
    if pid is None:
        return None
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return None
    return b" ".join(words).decode(errors="replace").strip()[:200]
