"""What every server-bound step shares: a live, gated server, and a record whatever happens."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from quietgate import gate, records
from quietgate.errors import BadInput, CellFailed, Interrupted
from quietgate.files import read_json
from quietgate.measure import prompts
from quietgate.serve import lease, slots
from quietgate.serve.lease import LaunchSpec, Live, Process
from quietgate.steps.place import Place
from quietgate.study import command
from quietgate.study.stages import GATE, Stage

Fields = dict[str, Any]


def run(place: Place, stage: Stage, work: Callable[[Place], tuple[str | None, Fields]]) -> None:
    """Run one server-bound stage and leave its record: passed, failed or skipped.

    Args:
        work: does it and returns the instance it was done on and the record's own fields.

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
        failure = _failure("bad_input", str(e), stage.name, [])
    except CellFailed as e:
        failure = _failure(e.failure_class, e.reason, stage.name, e.evidence)
    except Exception as e:
        # A bug of ours must not end a study of a week; the record says what and where.
        trace = traceback.format_exc().splitlines()[-12:]
        failure = _failure("internal_error", f"{type(e).__name__}: {e}", stage.name, trace)
    else:
        place.write(stage, "passed", started, instance, fields)
        return
    place.say(f"{stage.name} FAILED ({failure['class']}): {failure['reason']}")
    place.write(stage, "failed", started, last_instance(place), failure=failure)


def _failure(kind: str, reason: str, stage: str, evidence: list[str]) -> Fields:
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
    return _failure(failure["class"], reason, failure["stage"] or before.name, [])


def last_instance(place: Place) -> str | None:
    """The instance of the most recent server life of this launch, or None."""
    folder = place.folder / "instances"
    if not folder.is_dir():
        return None
    lives = sorted((p.stat().st_mtime, p.name) for p in folder.iterdir() if p.is_dir())
    return lives[-1][1] if lives else None


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
        cwd=str(Path(config["server"]["cwd"] or ".").expanduser().resolve()),
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
        live = lease.start(spec)
        place.say(f"server {live.instance} runs, pid {live.pids[0]}, {live.base_url}, slot {live.slot}")
    return live


def gated(place: Place) -> Live:
    """A live server that has passed the whole gate in this life; CellFailed with the gate's reason if not."""
    live = started(place)
    record = gate_record(place, live)
    if record["status"] != "passed":
        failure = record["failure"]
        raise CellFailed(failure["class"], failure["reason"], failure["evidence"])
    return live


def gate_record(place: Place, live: Live) -> records.Record:
    """The gate's verdict on this server life: read if it has one, else passed through now."""
    path = place.instance_folder(live.instance) / "gate.json"
    found = read_json(path)
    if found is not None:
        return dict(found)
    began = time.time()
    plan = gate.plan_for(place.study, place.launch.cell, benchmark_prompts(place))
    stages: list[Fields] = []
    fingerprints: list[Fields] = []
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
        failure = _failure(
            evidence.get("failure_class", "unknown"),
            f"{bad['name']}: {bad['why']}",
            "gate",
            evidence.get("lines", []),
        )
    fields = {
        "stages": stages,
        "fingerprints": fingerprints,
        "ready_after_s": round(time.time() - live.started_at, 3),
    }
    status = "failed" if bad else "passed"
    if bad:
        lease.release(live_dir=place.live, instances_dir=place.folder / "instances", reason="gate failed")
    file = str(path.relative_to(place.folder))
    return place.write(GATE, status, began, live.instance, fields, failure, file=file)


def benchmark_prompts(place: Place) -> list[prompts.Prompt]:
    """The study's prompts, as many as asked for, through the model's chat template where asked."""
    settings = place.study.config["benchmark"]
    model = place.study.target_model
    folder = Path(model).expanduser() if model else None
    return prompts.load(
        place.study.prompts_path,
        model_dir=folder if folder and folder.is_dir() else None,
        chat_template=settings["chat_template"],
    )[: settings["prompt_count"]]


def sampling(place: Place, max_new_tokens: int | None = None) -> Fields:
    """SGLang's sampling_params of every request."""
    settings = place.study.config["benchmark"]
    return {
        "max_new_tokens": max_new_tokens or settings["max_new_tokens"],
        "temperature": settings["temperature"],
        "top_p": settings["top_p"],
        "ignore_eos": settings["ignore_eos"],
    }
