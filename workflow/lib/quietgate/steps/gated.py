"""A live server that has passed the gate in this life: read from its record, or proved now."""

from __future__ import annotations

import time
from typing import Any

from quietgate import records
from quietgate.errors import CellFailed
from quietgate.files import read_json
from quietgate.serve import lease
from quietgate.serve.lease import Live
from quietgate.steps import server
from quietgate.steps.place import Place
from quietgate.study.stages import GATE


def gated(place: Place) -> tuple[Live, records.Record]:
    """A live server and the gate's record of it; CellFailed with the gate's reason if it did not pass."""
    live = server.started(place)
    record = _gate_record(place, live)
    if record["status"] != "passed":
        failure = record["failure"]
        raise CellFailed(failure["class"], failure["reason"], failure["evidence"])
    return live, record


def _gate_record(place: Place, live: Live) -> records.Record:
    """The gate's verdict on this server life: read if it has one, else passed through now."""
    path = place.instance_folder(live.instance) / "gate.json"
    found = read_json(path)
    if found is not None:
        return dict(found)
    # Imported here: a server that has passed needs no proofs.
    from quietgate import gate, provenance
    from quietgate.measure import workload

    began = time.time()
    plan = gate.plan_for(place.study, place.launch.cell, workload.prompts_of(place.study))
    stages: list[dict[str, Any]] = []
    fingerprints: list[dict[str, Any]] = []
    try:
        with lease.hold(live, "gate") as held:
            _, fingerprints = gate.run(live, plan, place.say, held.check, stages)
            held.check()
    except CellFailed as lost:
        # The server went away under the gate: what had been proved before stays on record.
        stages = gate.server_lost(stages, lost)
    bad = next((s for s in stages if s["verdict"] == "failed"), None)
    failure = None
    if bad:
        evidence = bad["evidence"]
        failure = server.failure_of(
            evidence.get("failure_class", "unknown"),
            f"{bad['name']}: {bad['why']}",
            "gate",
            evidence.get("lines", []),
        )
    fields = {
        **provenance.machine(),
        "stages": stages,
        "fingerprints": fingerprints,
        "ready_after_s": round(time.time() - live.started_at, 3),
    }
    status = "failed" if bad else "passed"
    if bad:
        lease.release(live_dir=place.live, instances_dir=place.folder / "instances", reason="gate failed")
    file = str(path.relative_to(place.folder))
    return place.write(GATE, status, began, live.instance, fields, failure, file=file)
