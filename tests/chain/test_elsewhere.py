"""Results that were measured on one machine are finished on another, where their server is not."""

import sys

import pytest

pytestmark = pytest.mark.workflow


def test_what_takes_no_server_is_made_without_one(run):
    python = run.folder / "python"
    run.edit(server__python=str(python))
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    assert run() == 0, run.text()[-3000:]
    python.unlink()
    profiles = list(run.results.glob("cells/*/*/profile.json"))
    for profile in profiles:
        profile.unlink()
    assert run(log="offline") == 0, run.text("offline")[-3000:]
    assert all(profile.exists() for profile in profiles)
    assert "launch" not in run.jobs("offline")

    kept = (run.results / "cells/steps-0_nccl-default/l1/benchmark.json").read_bytes()
    for force in (("--forcerun", "benchmark"), ("--forceall",)):
        assert run(*force, log="forced") == 2
        assert f"server.python: no program {python} here" in run.text("forced")
    assert (run.results / "cells/steps-0_nccl-default/l1/benchmark.json").read_bytes() == kept
    run.edit(benchmark__repeats=3)
    assert run(log="online") == 2
    assert f"server.python: no program {python} here" in run.text("online")
    assert (run.results / "cells/steps-0_nccl-default/l1/benchmark.json").read_bytes() == kept
