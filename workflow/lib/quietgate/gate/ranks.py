"""The scheduler processes of a server and the environments they really have.

`setproctitle` overwrites the memory that /proc/<pid>/environ shows; with SPT_NOENV set it leaves it
alone. What a rank shows is the launcher's environment at the moment it started the rank, SGLang's own
additions included; what the launcher shows is what it was started with.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from quietgate.serve import processes

if TYPE_CHECKING:
    from quietgate.gate.stage import Subject

TITLE = "sglang::scheduler"
# Variables that SGLang sets in its ranks where nobody did (0.4.6 to 0.5.23): a profile that wants them
# absent is told so, and cannot have it.
SGLANG_ADDS = frozenset(
    {
        "CUDA_DEVICE_MAX_CONNECTIONS",
        "NCCL_CUMEM_ENABLE",
        "NCCL_GRAPH_MIXING_SUPPORT",
        "NCCL_GRAPH_REGISTER",
        "NCCL_MNNVL_ENABLE",
        "NCCL_NVLS_ENABLE",
    }
)
_PLACE = re.compile(r"_(DP|PP|ATTN_CP|MOE_DP|TP|EP)(\d+)")


@dataclass(frozen=True)
class Rank:
    """One scheduler process.

    Attributes:
        place: its coordinates by name, e.g. {"TP": 1}; empty where there is a single rank.
        environ: what /proc shows, or None where it was overwritten or cannot be read.
        why: why there is no environ.
    """

    pid: int
    title: str
    place: dict[str, int]
    launcher: int
    environ: dict[str, str] | None
    why: str | None = None


def find(subject: Subject) -> list[Rank]:
    """The ranks among the descendants of the launched processes, in order of their coordinates."""
    found: dict[int, Rank] = {}
    for root in subject.roots:
        for pid in (root.pid, *(c.pid for c in processes.descendants(root.pid))):
            title = title_of(pid)
            if title.startswith(TITLE) and pid not in found:
                environ, why = environ_of(pid)
                found[pid] = Rank(pid, title, coordinates(title), root.pid, environ, why)
    return sorted(found.values(), key=lambda r: (sorted(r.place.items()), r.pid))


def coordinates(title: str) -> dict[str, int]:
    """`sglang::scheduler_DP0_TP1` -> {"DP": 0, "TP": 1}."""
    return {name: int(number) for name, number in _PLACE.findall(title)}


def title_of(pid: int) -> str:
    """The first word of a process's command line; its `comm` is cut at 15 characters."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return raw.split(b"\0", 1)[0].decode(errors="replace").strip()


def environ_of(pid: int) -> tuple[dict[str, str] | None, str | None]:
    """(environment, None) or (None, why it cannot be known)."""
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except PermissionError:
        return None, "another user's process: its environment cannot be read"
    except OSError:
        return None, "the process is gone"
    pairs = [word.partition(b"=") for word in raw.split(b"\0") if b"=" in word]
    if not pairs:
        return None, ("wiped: the process title was written over it; start the server with SPT_NOENV=1")
    return {n.decode(errors="replace"): v.decode(errors="replace") for n, _, v in pairs}, None


def added_by_sglang(subject: Subject) -> dict[str, str]:
    """Variables that a rank has and its launcher was not started with, or has with another value."""
    for rank in find(subject):
        before, _ = environ_of(rank.launcher)
        if rank.environ is not None and before is not None and rank.pid != rank.launcher:
            return difference(before, rank.environ)
    return {}


def difference(before: dict[str, str], after: dict[str, str]) -> dict[str, str]:
    """What `after` has that `before` had not, or had otherwise."""
    return {name: value for name, value in after.items() if before.get(name) != value}
