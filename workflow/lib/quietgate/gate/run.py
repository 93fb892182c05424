"""The gate: every proof in its order; the first that fails ends it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from quietgate.errors import CellFailed
from quietgate.gate import (
    alive,
    arguments,
    cuda_graphs,
    decode,
    environment,
    http,
    port,
    steady,
    testimony,
)
from quietgate.gate.plan import GatePlan
from quietgate.gate.stage import NAMES, Evidence, NotApplicable, StageFailed, Subject
from quietgate.serve.state import Live

STAGES: tuple[tuple[str, Callable[[Subject], Any]], ...] = (
    ("process", alive.prove),
    ("port", port.prove),
    ("http", http.prove),
    ("arguments", arguments.prove),
    ("environment", environment.prove),
    ("nccl", testimony.prove),
    ("decode", decode.prove),
    ("cuda_graphs", cuda_graphs.prove),
    ("warm_up", steady.prove),
)


def run(
    live: Live,
    plan: GatePlan,
    report: Callable[[str], None] = lambda line: None,
    check: Callable[[], None] = lambda: None,
    stages: list[Evidence] | None = None,
) -> tuple[list[Evidence], list[Evidence]]:
    """Prove the server; returns (stages, fingerprints) as they stand in `gate.json`.

    Args:
        live: the server, just launched or running.
        plan: what was asked for.
        report: gets one line per stage.
        check: called at every poll; raises Interrupted when the job was told to stop, CellFailed when
            the server was lost.
        stages: filled as the proofs go on, so that they are known even where an exception out of a
            signal handler ends this function (see `server_lost`).

    A failed stage is the last one of the list. A server that dies while a later stage is being proved
    fails stage 1, whose entry then says during which stage.
    """
    subject = Subject(live, plan, report, check)
    stages = [] if stages is None else stages
    try:
        for name, prove in STAGES:
            entry = _prove(subject, name, prove)
            if entry["name"] != name:
                # The server died: its first stage is the one that failed, and what came after stands.
                entry["evidence"]["during"] = name
                stages[:1] = [entry]
            else:
                stages.append(entry)
            _tell(report, entry)
            if entry["verdict"] == "failed":
                break
    finally:
        subject.http.close()
    return stages, subject.fingerprints


def server_lost(stages: list[Evidence], error: CellFailed) -> list[Evidence]:
    """The stages of a gate that was ended from outside because the server is gone.

    Stage 1 becomes the failed one; what had been proved before stays on record, and a failure that was
    found before the loss stays the failure.
    """
    if any(s["verdict"] == "failed" for s in stages):
        return stages
    proved = [s["name"] for s in stages]
    during = next((name for name in NAMES if name not in proved), NAMES[-1])
    seconds = stages[0]["seconds"] if stages else 0.0
    evidence = {
        **(stages[0]["evidence"] if stages else {}),
        "during": during,
        "failure_class": error.failure_class,
        "lines": error.evidence,
    }
    lost = {
        "stage": 1,
        "name": NAMES[0],
        "verdict": "failed",
        "why": error.reason,
        "seconds": seconds,
        "evidence": evidence,
    }
    return [lost, *stages[1:]]


def _prove(subject: Subject, name: str, prove: Callable[[Subject], Any]) -> Evidence:
    began = time.monotonic()
    try:
        proof = prove(subject)
        verdict, why, evidence = "passed", proof.why, proof.evidence
    except NotApplicable as e:
        verdict, why, evidence = "not_applicable", e.why, e.evidence
    except StageFailed as e:
        verdict, why = "failed", e.reason
        name = e.stage or name
        evidence = {**e.evidence, "failure_class": e.failure_class, "lines": e.lines}
    return {
        "stage": NAMES.index(name) + 1,
        "name": name,
        "verdict": verdict,
        "why": why,
        "seconds": round(time.monotonic() - began, 3),
        "evidence": evidence,
    }


def _tell(report: Callable[[str], None], entry: Evidence) -> None:
    why = f": {entry['why']}" if entry["why"] else ""
    report(f"gate {entry['stage']} {entry['name']} {entry['verdict']} in {entry['seconds']:.1f} s{why}")
