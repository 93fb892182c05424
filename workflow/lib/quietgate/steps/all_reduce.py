"""Rule `all_reduce`: check the all-reduces of a launch's ranks before its server is started.

A launch whose check fails is recorded as failed with that cause, and no server of it is started.
"""

from __future__ import annotations

from typing import Any

from quietgate.gate import all_reduce
from quietgate.steps import server
from quietgate.steps.place import Place
from quietgate.study.stages import ALL_REDUCE, stage_digest


def main(record: str, log: str) -> None:
    """Run the rule; see the module."""
    server.run(Place.of(record, log), ALL_REDUCE, _work)


def _work(place: Place) -> tuple[str | None, dict[str, Any]]:
    cell = place.launch.cell
    check = all_reduce.check_of(place.study, cell)
    if check.ranks == 1:
        return None, {"ranks": [], "sizes": [], "why": "one rank: there is nothing to reduce"}
    digest = stage_digest(place.study, cell, ALL_REDUCE)
    lives = (place.folder / ALL_REDUCE.lives).resolve()
    spec = all_reduce.spec_of(server.launch_spec(place), check, digest, lives)
    place.say(f"all-reduce check: {check.ranks} ranks, {', '.join(map(str, check.sizes))} bytes")
    instance, fields = all_reduce.run(spec, check, place.say)
    times = ", ".join(f"{s['bytes']} bytes {s['median_us']:g} us" for s in fields["sizes"])
    place.say(f"all-reduce check passed: {times}")
    return instance, {"why": None, **fields}
