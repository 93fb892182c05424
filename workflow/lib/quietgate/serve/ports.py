"""TCP ports for servers: picking a free one, and naming who holds a fixed one."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import time
from pathlib import Path

from quietgate.serve.locks import try_lock

# Below the range from which Linux takes client ports, so that no connection can sit on one.
FIRST, LAST = 20000, 31999
# A port is not given again for so long: a late client of the last server must not meet the next.
REST_S = 3600.0
_LISTEN = "0A"


def free(port: int, neighbours: int = 0) -> bool:
    """Whether nothing is bound to `port` and the `neighbours` ports above it."""
    for number in range(port, port + neighbours + 1):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind(("0.0.0.0", number))
            except OSError:
                return False
    return True


def pick(folder: Path, count: int = 1, neighbours: int = 0) -> list[int]:
    """Free ports that no launch on this machine was given lately.

    Args:
        folder: the machine's slot folder; the ports given are noted there.
        count: how many.
        neighbours: how many ports above each must be free too.
    """
    lock = None
    give_up = time.monotonic() + 10
    while lock is None and time.monotonic() < give_up:
        lock = try_lock(folder / "ports.lock")
        if lock is None:
            time.sleep(0.01)
    now = time.time()
    noted = (lock.note() if lock else None) or {}
    lately = {int(p): t for p, t in noted.items() if now - t < REST_S}
    found: list[int] = []
    try:
        for port in random.sample(range(FIRST, LAST - neighbours), LAST - neighbours - FIRST):
            near = range(port, port + neighbours + 1)
            if not any(p in lately for p in near) and free(port, neighbours):
                found.append(port)
                lately.update(dict.fromkeys(near, now))
                if len(found) == count:
                    break
        else:
            raise OSError(f"no free TCP port between {FIRST} and {LAST}")
        if lock:
            lock.write_note(lately)
    finally:
        if lock:
            lock.release()
    return found


def listening(port: int) -> bool:
    """Whether any socket of this network namespace listens on `port`."""
    return bool(_listeners(port))


def _listeners(port: int) -> set[str]:
    """Inodes of the sockets that listen on `port`, any address."""
    inodes = set()
    for name in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/net/{name}").read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in (line.split() for line in lines):
            if fields[3] == _LISTEN and int(fields[1].rsplit(":", 1)[1], 16) == port:
                inodes.add(fields[9])
    return inodes


def holder(port: int) -> str | None:
    """Who listens on `port`: "pid 123 (python -m http.server)" where readable; None if nobody."""
    inodes = _listeners(port)
    if not inodes:
        return None
    wanted = {f"socket:[{inode}]" for inode in inodes}
    for pid in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
        with contextlib.suppress(OSError):
            for descriptor in os.scandir(f"/proc/{pid}/fd"):
                if os.readlink(descriptor.path) in wanted:  # noqa: PTH115
                    raw = Path(f"/proc/{pid}/cmdline").read_bytes()
                    command = raw.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
                    return f"pid {pid} ({command[:200]})"
    return "a process of another user"
