"""Results that were measured on one machine are finished on another, where their server is not."""

import json
import sys

import pytest

from chain.runs import every
from quietgate.share.verify import verify

pytestmark = pytest.mark.workflow


def test_what_takes_no_server_is_made_without_one(run):
    python = run.folder / "python"
    run.edit(server__python=str(python))
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    assert run() == 0, run.text()[-3000:]
    python.unlink()
    assert run("-n", log="dry") == 0
    assert "would refuse" not in run.text("dry"), "nothing is left that takes a server"
    profiles = list(run.results.glob("cells/*/*/profile.json"))
    for profile in profiles:
        profile.unlink()
    assert run(log="offline") == 0, run.text("offline")[-3000:]
    assert all(profile.exists() for profile in profiles)
    assert "launch" not in run.jobs("offline")
    run.edit(server__args={**run.config["server"]["args"], "max-running-requests": 8})
    assert run("-n", log="edited") == 0
    assert f"server.python: no program {python} here" in run.text("edited")
    assert run(log="refused") == 2
    assert every(run, "launch"), "nothing was set aside"

    kept = (run.results / "cells/steps-0_nccl-default/l1/benchmark.json").read_bytes()
    for force in (("--forcerun", "benchmark"), ("--forceall",)):
        assert run(*force, log="forced") == 2
        assert f"server.python: no program {python} here" in run.text("forced")
    assert (run.results / "cells/steps-0_nccl-default/l1/benchmark.json").read_bytes() == kept
    run.edit(benchmark__repeats=3)
    assert run(log="online") == 2
    assert f"server.python: no program {python} here" in run.text("online")
    assert (run.results / "cells/steps-0_nccl-default/l1/benchmark.json").read_bytes() == kept


def test_a_study_whose_machine_is_gone_is_finished_with_what_was_measured(run):
    python = run.folder / "python"
    run.edit(server__python=str(python), replicates=2)
    starter = f'#!/bin/sh\nexec {sys.executable} "$@"\n'
    python.write_text(starter)
    python.chmod(0o755)
    cells = "results/t/cells"
    first, *others = (
        f"{cells}/{launch}/profile.json"
        for launch in ("steps-0_nccl-default/l1", "steps-2_nccl-default/l1", "steps-0_nccl-default/l2")
    )
    options = ("--configfile", "study.yaml")
    assert run(*others, *options, log="begun", target=first) == 0, run.text("begun")[-3000:]
    python.unlink()
    assert run(log="early", target="share") == 2, "it would start the servers that are missing"
    assert f"server.python: no program {python} here" in run.text("early")

    done = ("--config", "only_measured=True", *options)
    assert run(*done, log="closed") == 0, run.text("closed")[-3000:]
    assert "launch" not in run.jobs("closed")
    assert "1 of 4 launches left out, not measured: steps-2_nccl-default l2" in run.text("closed")
    study = json.loads((run.results / "study.json").read_text())
    assert [x["launch"] for x in study["launches"] + study["left_out"]] == ["l1", "l1", "l2", "l2"]
    assert "3 launches of 4 asked for" in (run.results / "report.html").read_text().replace("\n", " ")
    assert verify(run.results) == []
    assert run(log="shared", target="share") == 0, run.text("shared")[-3000:]
    [archive] = (run.folder / "results").glob("*.zip")
    assert run("--config", f"results={archive}", log="redrawn", target="figures") == 0, run.text("redrawn")

    python.write_text(starter)
    python.chmod(0o755)
    assert run(log="resumed") == 0, run.text("resumed")[-3000:]
    assert run.jobs("resumed")["launch"] == 1
    study = json.loads((run.results / "study.json").read_text())
    assert study["left_out"] == []
    assert [x["epoch"] for x in study["launches"]] == [1, 1, 1, 1]


def test_nothing_measured_is_nothing_to_finish(run):
    assert run("--config", "only_measured=True", "--configfile", "study.yaml") == 2
    assert "no launch with all its records" in run.text()
    assert not run.results.exists()
