"""Which run owns servers: the main Snakemake process, known to its jobs by an inherited variable."""

from __future__ import annotations

import json
import os
from typing import Any

from quietgate.serve.processes import Identity, alive, can_judge, myself, place

VARIABLE = "QUIETGATE_OWNER"

Owner = dict[str, Any]
"""{"pid", "start", "place": {...}}"""


def _inherited() -> Owner | None:
    try:
        value = json.loads(os.environ[VARIABLE])
        Identity.from_json(value)
        return dict(value)
    except (KeyError, ValueError, TypeError):
        return None


def claim_owner() -> bool:
    """Settle who owns the servers of this run; True in the run's main process.

    Called when the Snakefile is parsed, which Snakemake does in the main process and again in
    jobs. Jobs inherit the owner and stay with it, also when it is gone: then they are orphans of
    a killed run, and everything they try to do with a server is refused as interrupted. Inside
    a batch job (another host or SLURM job than the owner's) the first process to ask, that job's
    own Snakemake, becomes the owner of its servers, but is not the run's main process.
    """
    current = _inherited()
    if current is not None and current.get("place") == place():
        return bool(current["pid"] == os.getpid())
    os.environ[VARIABLE] = json.dumps(myself().as_json() | {"place": place()})
    return current is None


def owner() -> Owner:
    """The owner of what this process starts; outside any run, the process itself."""
    current = _inherited()
    if current is None:
        claim_owner()
        current = _inherited()
        assert current is not None
    return current


def owner_alive(who: Owner) -> bool | None:
    """Whether an owner is alive; None when its pid means nothing here (another host or boot)."""
    there = who.get("place", {})
    if can_judge(there):
        return alive(Identity.from_json(who))
    if there.get("host") == place()["host"] and there.get("boot") != place()["boot"]:
        return False  # this host has been rebooted since
    return None
