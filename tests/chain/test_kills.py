"""Killed in any stage: nothing of ours stays alive, the next run needs no help and repeats only the cut."""

import contextlib
import os
import signal
import time

import psutil
import pytest

from chain.runs import every

pytestmark = [pytest.mark.workflow, pytest.mark.slow]

# What snakemake has printed when the stage is under way, and how long after it the blow falls.
STAGES = {
    "launch": (r"starting the server", 0.02),
    "gate": (r"server \w+ runs", 0.3),
    "benchmark": (r"benchmark, 1 stream", 0.0),
    "capture": (r"record a short profile", 0.4),
    "release": (r"stop the server", 0.1),
}


def blow(run, process, how):
    """SIGKILL snakemake alone, its whole group, or everything of this study at once (a power cut)."""
    if how == "main":
        os.kill(process.pid, signal.SIGKILL)
    elif how == "group":
        os.killpg(process.pid, signal.SIGKILL)
    else:
        for pid in run.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    process.wait()


@pytest.mark.parametrize("how", ["main", "group", "everything"])
@pytest.mark.parametrize("stage", STAGES)
def test_killed(run, stage, how):
    pattern, delay = STAGES[stage]
    process = run.start(log="first", target="measured")
    run.wait_for(pattern, "first")
    time.sleep(delay)
    blow(run, process, how)
    if how != "everything":
        run.nothing_left(15)
    measured = {p.parent / "benchmark.json": p for p in every(run, "exit")}
    before = {p: p.stat().st_mtime_ns for p in measured}
    assert run(log="second", target="measured") == 0, run.text("second")[-3000:]
    assert {p: p.stat().st_mtime_ns for p in before} == before, "a finished launch is not repeated"
    assert len(every(run, "profile")) == 2
    assert all(
        run.record(c, "profile")["status"] == "passed"
        for c in ("steps-0_nccl-default", "steps-2_nccl-default")
    )
    run.nothing_left()
    assert run("-n", log="third", target="measured") == 0
    assert run.finished("third"), run.text("third")[-2000:]


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
def test_stopped_by_a_person(run, sig):
    process = run.start(log="first", target="measured")
    run.wait_for(r"benchmark, 1 stream", "first")
    os.killpg(process.pid, sig)
    assert process.wait(60) != 0
    run.nothing_left(15)
    failed = [p for p in every(run, "benchmark") if '"failed"' in p.read_text()]
    assert not failed, "an interruption is no failure"
    assert run(log="second", target="measured") == 0, run.text("second")[-3000:]


def test_server_killed(run):
    process = run.start(log="first", target="measured")
    run.wait_for(r"benchmark, 1 stream", "first")
    for pid in run.processes():
        if psutil.pid_exists(pid) and "fake_sglang/server.py" in " ".join(psutil.Process(pid).cmdline()):
            os.kill(pid, signal.SIGKILL)
            break
    assert process.wait(120) == 0, "a failure is a record"
    failed = next(p for p in every(run, "benchmark") if '"failed"' in p.read_text())
    assert '"killed"' in failed.read_text()
    run.nothing_left(15)
    assert run(log="second", target="measured") == 0, run.text("second")[-3000:]
    assert run.jobs("second")["benchmark"] == 1
