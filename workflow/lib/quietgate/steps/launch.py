"""Rule `launch`: start the server of a launch and write down what was started, on what."""

from __future__ import annotations

from typing import Any

from quietgate import provenance
from quietgate.steps import server
from quietgate.steps.place import Place
from quietgate.study.stages import LAUNCH


def main(record: str, log: str) -> None:
    """Run the rule; see the module."""
    place = Place.of(record, log)
    place.say(f"launch; {place.time_left()}")
    server.run(place, LAUNCH, _work)


def _work(place: Place) -> tuple[str, dict[str, Any]]:
    live = server.started(place)
    return live.instance, {
        "server": place.study.resolved(place.launch.cell),
        **provenance.machine(),
        "versions": provenance.versions(),
        "slot": live.slot,
    }
