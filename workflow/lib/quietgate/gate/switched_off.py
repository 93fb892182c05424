"""Transports that a variable switches off and NCCL uses all the same.

NCCL takes P2P between ranks of the same GPU whatever NCCL_P2P_DISABLE says: the variable lowers the distance
up to which P2P is allowed to that within one GPU (ncclTopoCheckP2p in src/graph/paths.cc; seen with 2.30.7).
It logs that it read the variable, and connects over P2P/IPC.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from quietgate.study.nccl_variables import read_integer
from quietgate.wording import counted

# The variable, and how NCCL's log begins the name of such a connection.
_SWITCHES = {"NCCL_P2P_DISABLE": "P2P", "NCCL_SHM_DISABLE": "SHM"}


def still_used(variables: Iterable[dict[str, Any]], transports: Mapping[str, int]) -> None:
    """Give "no_effect" for a verdict to a confirmed variable whose transport is in use.

    Args:
        variables: name, asked, verdict, why of each (see `testimony.judge`).
        transports: how ranks are connected -> how often (see `inspect.nccl`).
    """
    for one in variables:
        kind = _SWITCHES.get(one["name"])
        off = one["verdict"] == "confirmed" and one["asked"] and read_integer(one["asked"])[0]
        used = [f"{how} {counted(n, 'time')}" for how, n in transports.items() if how.split("/")[0] == kind]
        if off and used:
            why = f"NCCL read {one['asked']} and connected by {', '.join(used)}"
            one.update(verdict="no_effect", why=why)


def idle(variables: Iterable[Mapping[str, Any]]) -> str | None:
    """Why a profile is not in force: the first of its variables that has no effect."""
    found = (f"{v['name']}: {v['why']}" for v in variables if v["verdict"] == "no_effect")
    return next(found, None)
