"""Rule `extract`: where the time went in one launch, from its records and traces; no server."""

from __future__ import annotations

import time

from quietgate import records
from quietgate.analyse.profile import profile
from quietgate.errors import BadInput
from quietgate.steps.place import Place
from quietgate.study.stages import BENCHMARK, EXTRACT


def main(record: str, log: str) -> None:
    """Run the rule; a launch whose benchmark did not pass is skipped."""
    place = Place.of(record, log)
    started = time.time()
    benchmark = records.read(place.folder / BENCHMARK.record, "benchmark")
    instance = benchmark["instance"]
    if benchmark["status"] != "passed":
        place.write(EXTRACT, "skipped", started, instance, failure=benchmark["failure"])
        return
    try:
        fields = profile(place.folder, steps=place.launch.cell.steps)
    except BadInput as e:
        failure = {"class": "bad_input", "reason": str(e), "stage": "extract", "evidence": []}
        place.write(EXTRACT, "failed", started, instance, failure=failure)
        return
    place.write(EXTRACT, "passed", started, instance, fields)
