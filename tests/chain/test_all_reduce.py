"""The all-reduce check in the chain: before the launch; a hang fails its launch alone, and is retried."""

import shutil
import sys
from pathlib import Path

import pytest

from chain.runs import every
from quietgate import records
from quietgate.analyse import tables

pytestmark = [pytest.mark.workflow, pytest.mark.slow]

GOOD, BAD = "steps-0_nccl-default", "steps-0_nccl-ll-ring"
STAND_IN = Path(__file__).parents[1] / "all_reduce" / "stand_in.py"


def stand_in(run):
    """A Python for the check; its first line names no interpreter that must exist here."""
    python = run.folder / "stand_in.py"
    shutil.copy(STAND_IN, python)
    python.write_text(python.read_text().replace("/usr/bin/env python3", sys.executable))
    return python


def test_a_profile_that_hangs_in_the_check_fails_alone_and_fast(run):
    python = stand_in(run)
    run.edit(
        grid={"steps": [0], "nccl": ["default", "ll-ring"]},
        capture__enabled=False,
        benchmark__repeats=1,
        all_reduce={"enabled": True, "python": str(python), "bytes": [4096, 16384], "timeout_s": 3},
    )
    run.config["server"]["args"]["tp-size"] = 2
    run.edit()
    (run.folder / "hang").touch()
    assert run() == 1, run.text()[-3000:]
    run.nothing_left(5)
    assert "Traceback" not in run.text()

    passed = records.read(run.results / f"cells/{GOOD}/l1/all_reduce.json", "all_reduce")
    assert passed["status"] == "passed"
    assert [s["bytes"] for s in passed["sizes"]] == [4096, 16384]
    assert run.record(GOOD, "benchmark")["status"] == "passed"
    assert passed["instance"] != run.record(GOOD, "launch")["instance"]
    assert passed["started_at"] < run.record(GOOD, "launch")["started_at"]

    failed = records.read(run.results / f"cells/{BAD}/l1/all_reduce.json", "all_reduce")
    assert failed["failure"]["class"] == "hang"
    assert "did not end within 3 s" in failed["failure"]["reason"]
    assert "rank 1: 16384 bytes: sums" in failed["failure"]["evidence"]
    assert failed["seconds"] < 60
    launch = run.record(BAD, "launch")
    assert (launch["status"], launch["failure"]["class"]) == ("skipped", "hang")
    assert not every(run, f"instances/{launch['instance']}/exit")
    assert f"{BAD}," in (run.results / "tables" / "failures.csv").read_text()
    assert ",hang," in (run.results / "tables" / "cells.csv").read_text()

    timed = tables.read(run.results / "tables" / "all_reduce.csv")
    assert timed["cell"].tolist() == [GOOD, GOOD]
    assert timed["bytes"].tolist() == [4096, 16384]
    assert "All-reduces before the servers" in (run.results / "report.html").read_text()

    (run.folder / "hang").unlink()
    assert run(log="again") == 0, run.text("again")[-3000:]
    assert (run.jobs("again")["all_reduce"], run.jobs("again")["launch"]) == (1, 1)
    proof = run.record(BAD, "all_reduce")["ranks"][1]["environment"]
    assert (proof["NCCL_PROTO"], proof["NCCL_ALGO"]) == ("LL", "Ring")
    assert run.record(BAD, "launch")["status"] == "passed"
    assert run("-n", log="third") == 0
    assert run.finished("third")


def test_a_check_that_is_switched_off_starts_no_server_again(run):
    run.edit(
        grid={"steps": [0], "nccl": ["default"]},
        benchmark__repeats=1,
        all_reduce={"enabled": True, "python": str(stand_in(run)), "bytes": [4096, 16384]},
    )
    run.config["server"]["args"]["tp-size"] = 2
    run.edit()
    assert run() == 0, run.text()[-3000:]
    before = {name: run.record(GOOD, name) for name in ("launch", "gate", "benchmark", "exit")}
    run.edit(all_reduce__enabled=False, capture__enabled=False)
    assert run(log="off") == 0, run.text("off")[-3000:]
    assert not set(run.jobs("off")) & {"launch", "gate", "benchmark", "release"}
    assert {name: run.record(GOOD, name) for name in before} == before
    assert "all_reduce" not in {t["name"] for t in tables_of(run)}
    assert "All-reduces before the servers" not in (run.results / "report.html").read_text()


def tables_of(run):
    return records.read(run.results / "tables/tables.json", "tables")["tables"]
