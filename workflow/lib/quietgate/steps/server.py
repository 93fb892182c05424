"""What every server-bound step shares: a live server, and a record whatever happens.

Jobs are short and many, so this module does not import what only some of them need (the client, the gate).
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from quietgate import records
from quietgate.errors import BadInput, CellFailed, Interrupted
from quietgate.serve import lease, slots
from quietgate.serve.lease import LaunchSpec, Live, Process
from quietgate.steps import disk_trouble
from quietgate.steps.place import Place
from quietgate.study import command
from quietgate.study.stages import Stage

Fields = dict[str, Any]


def run(
    place: Place,
    stage: Stage,
    work: Callable[[Place], tuple[str | None, Fields]],
    known: Fields | None = None,
) -> None:
    """Run one server-bound stage and leave its record: passed, failed or skipped.

    Args:
        work: does it and returns the instance it was done on and the record's own fields.
        known: fields of a passed and of a failed record alike.

    A failure is a record and exit status 0, so that the study goes on; an interruption leaves no record
    and exit status 1, so that a resume repeats the stage.
    """
    started = time.time()
    skipped = _skipped(place, stage)
    if skipped:
        place.write(stage, "skipped", started, None, failure=skipped)
        return
    try:
        instance, fields = work(place)
    except Interrupted as e:
        place.say(f"{stage.name} interrupted: {e}")
        sys.exit(1)
    except BadInput as e:
        failure = failure_of("bad_input", str(e), stage.name, [])
    except CellFailed as e:
        failure = failure_of(e.failure_class, e.reason, stage.name, e.evidence)
    except Exception as e:
        if disk_trouble(e):
            raise
        # A bug of ours must not end a study of a week; the record says what and where.
        trace = traceback.format_exc().splitlines()[-12:]
        failure = failure_of("internal_error", f"{type(e).__name__}: {e}", stage.name, trace)
    else:
        place.write(stage, "passed", started, instance, {**(known or {}), **fields})
        return
    place.say(f"{stage.name} FAILED ({failure['class']}): {failure['reason']}")
    place.write(stage, "failed", started, last_instance(place, stage.lives), known, failure=failure)


def failure_of(kind: str, reason: str, stage: str, evidence: list[str]) -> Fields:
    """The `failure` of a record."""
    return {
        "class": kind,
        "reason": reason[:1000],
        "stage": stage,
        "evidence": [str(line)[:500] for line in evidence[-20:]],
    }


def _skipped(place: Place, stage: Stage) -> Fields | None:
    """The failure to hand on when the stage before did not pass."""
    before = place.before(stage)
    if before is None:
        return None
    record = records.read(place.folder / before.record)
    if record["status"] == "passed":
        return None
    failure = record["failure"]
    reason = failure["reason"]
    if record["status"] == "failed":
        reason = f"{failure['stage'] or before.name} failed: {reason}"
    return failure_of(failure["class"], reason, failure["stage"] or before.name, [])


def last_instance(place: Place, lives: str = "instances") -> str | None:
    """The instance of the most recent life of this launch in the folder `lives`, or None."""
    folder = place.folder / lives
    if not folder.is_dir():
        return None
    found = sorted((p.stat().st_mtime, p.name) for p in folder.iterdir() if p.is_dir())
    return found[-1][1] if found else None


def launch_spec(place: Place) -> LaunchSpec:
    """The server of this launch as the lease is asked to run it."""
    study, cell = place.study, place.launch.cell
    resolved, config = study.resolved(cell), study.config
    limits = config["lease"]
    return LaunchSpec(
        study=study.name,
        cell=cell.id,
        launch=place.launch.id,
        digest=study.digests(cell)["server"],
        processes=tuple(
            Process(
                argv=(*p["argv"], *resolved["workflow_argv"]),
                env={**p["env"], **resolved["workflow_env"]},
                unset=tuple(p["unset"]),
            )
            for p in resolved["processes"]
        ),
        cwd=str(study.server_folder.resolve()),
        drop=command.DROPPED,
        keep=tuple(config["server"]["keep_env"]),
        instances_dir=(place.folder / "instances").resolve(),
        live_dir=place.live.resolve(),
        slots=slots.discover(config["slots"]),
        grace_s=limits["grace_s"],
        idle_s=limits["idle_s"],
        idle_contended_s=limits["idle_contended_s"],
        max_life_s=limits["max_life_s"],
        slot_timeout_s=limits["slot_timeout_s"],
        port=limits["port"],
    )


def started(place: Place) -> Live:
    """This run's live server of the launch, started if there is none; not necessarily gated yet."""
    spec = launch_spec(place)
    live = lease.live(spec)
    if live is None:
        place.say("starting the server")
        live = lease.start(spec, place.say)
        place.say(f"server {live.instance} runs, pid {live.pids[0]}, {live.base_url}, slot {live.slot}")
    return live
