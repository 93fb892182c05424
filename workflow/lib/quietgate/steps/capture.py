"""Rule `capture`: a short profiler pass on the live server, after the timed passes."""

from __future__ import annotations

import shutil
from typing import Any

from quietgate.measure import capture as profiler
from quietgate.measure import workload
from quietgate.serve import lease
from quietgate.steps import server
from quietgate.steps.gated import gated
from quietgate.steps.place import Place
from quietgate.study.stages import CAPTURE
from quietgate.wording import counted


def main(record: str, log: str) -> None:
    """Run the rule; the traces lie in trace/ beside the record."""
    place = Place.of(record, log)
    server.run(place, CAPTURE, _work)
    (place.folder / "trace").mkdir(exist_ok=True)


def _work(place: Place) -> tuple[str, dict[str, Any]]:
    settings = place.study.config["capture"]
    live, _ = gated(place)
    trace = place.folder / "trace"
    shutil.rmtree(trace, ignore_errors=True)
    trace.mkdir(parents=True)
    with lease.hold(live, "capture") as held:
        fields = profiler.capture(
            live.base_url,
            trace.resolve(),
            workload.prompts_of(place.study),
            place.study.sampling(settings["max_new_tokens"]),
            cycles=settings["cycles"],
            timeout_s=settings["timeout_s"],
            stop_check=held.check,
        )
        held.check()
    size = sum(f["bytes"] for f in fields["trace_files"]) / 1e6
    place.say(f"profiler: {counted(len(fields['trace_files']), 'trace file')}, {size:.1f} MB")
    return live.instance, fields
