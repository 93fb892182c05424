"""Rule `gate`: prove that the server of a launch is ready and configured as asked."""

from __future__ import annotations

from quietgate.errors import CellFailed
from quietgate.steps import server
from quietgate.steps.place import Place
from quietgate.study.stages import GATE

_OWN = ("stages", "fingerprints", "ready_after_s")


def main(results: str, cell: str, launch: str, log: str) -> None:
    """Run the rule; the record is the summary of the gate of this server life."""
    place = Place.of(results, cell, launch, log)
    server.run(place, GATE, _work)


def _work(place: Place) -> tuple[str, dict[str, object]]:
    live = server.started(place)
    record = server.gate_record(place, live)
    if record["status"] != "passed":
        failure = record["failure"]
        raise CellFailed(failure["class"], failure["reason"], failure["evidence"])
    place.say(f"gate passed, {record['ready_after_s']:.1f} s after the launch")
    return live.instance, {key: record[key] for key in _OWN}
