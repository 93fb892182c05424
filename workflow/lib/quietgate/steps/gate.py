"""Rule `gate`: prove that the server of a launch is ready and configured as asked."""

from __future__ import annotations

from quietgate.steps import server
from quietgate.steps.gated import gated
from quietgate.steps.place import Place
from quietgate.study.stages import GATE

_OWN = ("stages", "fingerprints", "ready_after_s")


def main(record: str, log: str) -> None:
    """Run the rule; the record is the summary of the gate of this server life."""
    place = Place.of(record, log)
    server.run(place, GATE, _work)


def _work(place: Place) -> tuple[str, dict[str, object]]:
    live, record = gated(place)
    place.say(f"gate passed, {record['ready_after_s']:.1f} s after the launch")
    return live.instance, {key: record[key] for key in _OWN}
