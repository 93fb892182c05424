"""Rule `all_reduce`: check the all-reduces of a launch's ranks before its server is started.

A launch whose check fails is recorded as failed with that cause, and no server of it is started. Launches
that are alike in all that matters to the check (environment, ranks, GPUs, Python, machine) share one: the
first to come makes it, the others repeat what its record says and name it. A failure is shared only within
the run that saw it: whoever asks for a failed launch again means to see for themselves.
"""

from __future__ import annotations

import time
from typing import Any

from quietgate import provenance
from quietgate.analyse import machines
from quietgate.errors import CellFailed
from quietgate.files import read_json
from quietgate.gate import all_reduce
from quietgate.records import Record
from quietgate.serve import lease
from quietgate.steps import server
from quietgate.steps.place import Place
from quietgate.study.stages import ALL_REDUCE, launch_folder, stage_digest

_OWN = (
    *("backend", "clock", "torch", "nccl", "sglang", "set_as_sglang"),
    *("ranks", "sizes", "nccl_log"),
)
# What a profile does to every launch; any other failure may be a matter of the moment.
_SHARED_FAILURES = ("hang", "wrong_sums")


def main(record: str, log: str) -> None:
    """Run the rule; see the module."""
    server.run(Place.of(record, log), ALL_REDUCE, _work, provenance.machine())


def _work(place: Place) -> tuple[str | None, dict[str, Any]]:
    cell = place.launch.cell
    check = all_reduce.check_of(place.study, cell)
    if check.ranks == 1:
        return None, {
            "ranks": [],
            "sizes": [],
            "why": "one rank: there is nothing to reduce",
            "same_as": None,
        }
    if (twin := _twin(place)) is not None:
        return None, _repeated(place, twin)
    digest = stage_digest(place.study, cell, ALL_REDUCE)
    lives = (place.folder / ALL_REDUCE.lives).resolve()
    spec = all_reduce.spec_of(server.launch_spec(place), check, digest, lives)
    place.say(f"all-reduce check: {check.ranks} ranks, {', '.join(map(str, check.sizes))} bytes")
    instance, found = all_reduce.run(spec, check, place.say)
    times = ", ".join(f"{s['bytes']} bytes {s['median_us']:g} us" for s in found["sizes"])
    place.say(f"all-reduce check passed: {times}")
    return instance, {"why": None, "same_as": None, **found}


def _twin(place: Place) -> Record | None:
    """The record of a check that this launch can share, or None."""
    study, cell = place.study, place.launch.cell
    likeness, sizes = all_reduce.likeness(study, cell), all_reduce.sizes_of(study, cell)
    began = lease.run_began(place.results)
    for launch in study.launches:
        path = launch_folder(place.results, launch) / ALL_REDUCE.record
        record = read_json(path)
        if not isinstance(record, dict) or record.get("instance") is None:
            continue
        if machines.identity(record) != machines.identity(provenance.machine()):
            continue
        valid = record["digest"] == stage_digest(study, launch.cell, ALL_REDUCE)
        if not valid or all_reduce.likeness(study, launch.cell) != likeness:
            continue
        if record["status"] == "failed":
            # A time to come is of a clock set back since: of no run that is known.
            of_this_run = began <= path.stat().st_mtime <= time.time()
            shared = of_this_run and record["failure"]["class"] in _SHARED_FAILURES
        else:
            shared = {s["bytes"] for s in record["sizes"]} >= sizes
        if shared:
            return record
    return None


def _repeated(place: Place, twin: Record) -> dict[str, Any]:
    """What the shared check found: its fields, or its failure raised."""
    name = f"{twin['cell']}/{twin['launch']}"
    place.say(f"all-reduce check: as in {name}, {twin['status']}")
    failure = twin["failure"]
    if failure:
        raise CellFailed(failure["class"], f"{failure['reason']} (as in {name})", failure["evidence"])
    return {"why": None, "same_as": name} | {key: twin[key] for key in _OWN}
