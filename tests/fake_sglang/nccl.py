"""What NCCL would log in every rank, and the variables that SGLang adds for it."""

from __future__ import annotations

import socket
from pathlib import Path

VERSION = "2.30.7+cuda13.0"
ALGORITHMS = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
PROTOCOLS = ("LL", "LL128", "Simple")
# A level given as a number is of an old numbering, and is logged by its name.
LEVELS = ("LOC", "PIX", "PXB", "PHB", "SYS", "SYS")
# Read at communicator creation, in this order, with the form NCCL's source gives each line.
TEXT = ("NCCL_P2P_LEVEL", "NCCL_PROTO", "NCCL_ALGO")
NUMERIC = (
    "NCCL_CUMEM_ENABLE",
    "NCCL_NVLS_ENABLE",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_NCHANNELS",
    "NCCL_BUFFSIZE",
    "NCCL_NTHREADS",
)


def added_by_sglang(environ: dict[str, str]) -> dict[str, str]:
    """The variables SGLang sets before it starts its ranks."""
    added = {"CUDA_DEVICE_MAX_CONNECTIONS": "8"}
    for name in ("NCCL_CUMEM_ENABLE", "NCCL_NVLS_ENABLE"):
        if name not in environ:
            added[name] = "0"
    return added


def lines(environ: dict[str, str], rank: int, ranks: int, pid: int) -> list[str]:
    """One rank's log of a communicator and of its decode-size collectives."""
    here = f"{socket.gethostname()}:{pid}:{pid} [{rank}] NCCL INFO "
    channels = min(int(environ.get("NCCL_MAX_NCHANNELS", "24")), 24)
    p2p = "P2P/CUMEM" if environ.get("NCCL_CUMEM_ENABLE") == "1" else "P2P/IPC"
    if environ.get("NCCL_P2P_DISABLE") == "1":
        p2p = "SHM/direct/direct"
    init = (
        f"ncclCommInitRank comm 0x1c4d6940 rank {rank} nranks {ranks} cudaDev {rank} nvmlDev {rank}"
        f" busId {96 + rank:x}000 commId 0xda8a14382068fa74"
    )
    out = [f"NCCL version {VERSION}", f"{init} - Init START"]
    out += [f"{n} set by environment to {environ[n]}." for n in NUMERIC if n in environ]
    named = {"NCCL_P2P_LEVEL": lambda v: LEVELS[min(int(v), 5)] if v.isdigit() else v}
    out += [f"{n} set by environment to {named.get(n, str)(environ[n])}" for n in TEXT if n in environ]
    chosen_proto = environ.get("NCCL_PROTO", "").upper() or "LL"
    chosen_algo = (listed(environ, "NCCL_ALGO", "AllReduce") or ["RING"])[0]
    gathers = (listed(environ, "NCCL_ALGO", "AllGather") or ["RING"])[0]
    if rank == 0 and ("NCCL_PROTO" in environ or "NCCL_ALGO" in environ):
        out.append("Enabled NCCL Func/Proto/Algo Matrix:\n" + matrix(environ))
    next_rank = (rank + 1) % ranks
    out += [
        f"Channel {c:02d}/0 : {rank}[{rank}] -> {next_rank}[{next_rank}] via {p2p}" for c in range(channels)
    ]
    out += [
        f"{channels} coll channels, {channels} collnet channels, 0 nvls channels,"
        f" {channels} p2p channels, 2 p2p channels per peer",
        f"{init} - Init COMPLETE",
    ]
    if rank == 0 and "TUNING" in environ.get("NCCL_DEBUG_SUBSYS", ""):
        out += [
            f"AllReduce: {size} Bytes -> Algo {chosen_algo} proto {proto} channel{{Lo..Hi}}={{0..{hi}}}"
            for size, proto, hi in (
                (4, chosen_proto, 0),
                (14336, chosen_proto, 0),
                (43008, chosen_proto, 0),
                (86016, environ.get("NCCL_PROTO", "").upper() or "SIMPLE", 1),
            )
        ]
        out.append(
            f"AllGather: 14336 Bytes -> Algo {gathers} proto {chosen_proto} channel{{Lo..Hi}}={{0..0}}"
        )
    return [here + line for line in out]


def listed(environ: dict[str, str], variable: str, function: str) -> list[str]:
    """The algorithms or protocols that a list `a,b;function:c` names for a collective, in capitals."""
    found: list[str] = []
    for part in environ.get(variable, "").upper().split(";"):
        where, colon, names = part.rpartition(":")
        if not colon or where == function.upper():
            found = [name for name in names.split(",") if name]
    return found


def matrix(environ: dict[str, str]) -> str:
    """The table of what NCCL_PROTO and NCCL_ALGO leave enabled, without NCCL's prefix as in its log."""

    def marks(names: tuple[str, ...], variable: str, function: str) -> str:
        wanted = listed(environ, variable, function)
        return "".join(f"{int(not wanted or name.upper() in wanted):10d}" for name in names)

    protocols, algorithms = (f"{name:>10}" for name in PROTOCOLS), (f"{name:>15}" for name in ALGORITHMS)
    rows = [f"     Function |{''.join(protocols)}   |{''.join(algorithms)}"]
    for function in ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce"):
        proto, algo = marks(PROTOCOLS, "NCCL_PROTO", function), marks(ALGORITHMS, "NCCL_ALGO", function)
        rows.append(f"{function:>13} |{proto}   |{algo}")
    return "\n".join(rows)


def write(environ: dict[str, str], rank: int, ranks: int, pid: int) -> None:
    """Write the rank's log where NCCL_DEBUG and NCCL_DEBUG_FILE send it."""
    if environ.get("NCCL_DEBUG", "").upper() not in ("INFO", "TRACE", "WARN"):
        return
    text = "\n".join(lines(environ, rank, ranks, pid)) + "\n"
    target = environ.get("NCCL_DEBUG_FILE")
    if not target:
        print(text, end="", flush=True)
        return
    name = target.replace("%h", socket.gethostname()).replace("%p", str(pid))
    try:
        Path(name).write_text(text)
    except OSError:  # NCCL falls back to standard output without a word
        print(text, end="", flush=True)
