"""Rule `release`: stop the server of a launch, whatever became of it, and write down how it ended."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

from quietgate.errors import CellFailed, Interrupted
from quietgate.files import read_json
from quietgate.serve import lease
from quietgate.steps import server
from quietgate.steps.place import Place
from quietgate.study.stages import BENCHMARK, RELEASE


def main(record: str, log: str) -> None:
    """Run the rule: the only one that runs however the ones before it ended."""
    place = Place.of(record, log)
    started = time.time()
    instances = place.folder / "instances"
    try:
        last = lease.release(place.live, instances, "released")
    except Interrupted as e:
        place.say(f"release interrupted: {e}")
        sys.exit(1)
    except CellFailed as e:
        place.say(f"release FAILED: {e.reason}; the next run waits for it or ends it")
        sys.exit(1)
    measured = (read_json(place.folder / BENCHMARK.record) or {}).get("instance")
    instance = measured or server.last_instance(place)
    # Capture may have needed another server than the timed passes: the end on record is that of theirs.
    fields = lease.how_ended(instances, instance)
    fields["left"] = sorted({*fields["left"], *last["left"]})
    fields["instances"] = sorted(p.name for p in instances.iterdir()) if instances.is_dir() else []
    _copy_logs(instances / instance if instance else None, place.folder)
    place.write(RELEASE, "passed", started, instance, fields)
    place.say(f"server ended ({last['reason']}); {place.time_left()}")


def _copy_logs(source: Path | None, target: Path) -> None:
    """Put the logs of the measured server life beside the records (hard links where possible)."""
    for old in target.glob("nccl.*.log"):
        old.unlink()
    (target / "server.log").unlink(missing_ok=True)
    logs = sorted(source.glob("*.log")) if source and source.is_dir() else []
    for log in logs:
        try:
            os.link(log, target / log.name)
        except OSError:
            shutil.copy2(log, target / log.name)
    (target / "server.log").touch()
