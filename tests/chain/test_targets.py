"""A failure is a result: it stays until a run starts whose targets would make the launch again."""

import pytest

pytestmark = [pytest.mark.workflow, pytest.mark.slow]

TREE, LL128 = "steps-2_nccl-tree", "steps-2_nccl-ll128"


def record_of(cell, name="profile"):
    return f"results/t/cells/{cell}/l1/{name}.json"


@pytest.fixture
def failed(run):
    """A study of two launches; all that was asked of it is the first, and that one failed at its gate."""
    run.edit(
        grid={"steps": [2], "nccl": ["tree", "ll128"]},
        nccl_profiles={"tree": {"set": {"NCCL_ALGO": "Tree"}}, "ll128": {"set": {"NCCL_PROTO": "LL128"}}},
        benchmark__repeats=1,
        capture__enabled=False,
        reference={"nccl": "tree"},
    )
    run.mode_file.write_text("crash-at-start")
    assert run(target=record_of(TREE)) == 0, run.text()[-3000:]
    assert run.record(TREE, "gate")["failure"]["class"] == "out_of_memory"
    run.mode_file.write_text("")
    return run


def test_the_failure_of_one_launch_outlives_a_run_of_another(failed):
    run, folder = failed, failed.results / f"cells/{TREE}/l1"
    before = {path.name: path.read_bytes() for path in folder.glob("*.json")}
    assert run(target=record_of(LL128), log="other") == 0, run.text("other")[-3000:]
    assert "set aside" not in run.text("other")
    assert run.record(LL128, "profile")["status"] == "passed"
    assert {path.name: path.read_bytes() for path in folder.glob("*.json")} == before

    only = ("--configfile", "study.yaml", "--config", "only_measured=True")
    assert run(*only, log="closed") == 1, "the failure counts"
    assert "left out" not in run.text("closed")
    [row] = [x for x in (run.results / "tables/failures.csv").read_text().splitlines() if TREE in x]
    assert "out_of_memory" in row
    assert "failed: out of memory" in (run.results / "report.html").read_text()

    # Neither an earlier record nor a dry run touches it; what makes it again does.
    assert run(target=record_of(TREE, "launch"), log="earlier") == 0
    assert run("-n", target=record_of(LL128), log="dry") == 0
    assert not {x for x in ("earlier", "dry") if "set aside" in run.text(x)}
    assert run("-n", target=record_of(TREE), log="dry") == 0
    assert f"a run would first set aside: {TREE} l1, from gate on: failed" in run.text("dry")
    assert run.record(TREE, "gate")["status"] == "failed"
    assert run(target="./" + record_of(TREE, "benchmark"), log="again") == 0
    assert f"set aside: {TREE} l1, from gate on: failed" in run.text("again")
    assert run.record(TREE, "benchmark")["status"] == "passed"
    assert run(log="all") == 0, run.text("all")[-3000:]


def test_a_failure_whose_later_records_were_not_asked_for_is_shown_too(failed):
    run = failed
    run.mode_file.write_text("exit-at-start")
    assert run(target=record_of(TREE, "gate"), log="gate") == 0, run.text("gate")[-3000:]
    assert not (run.results / f"cells/{TREE}/l1/exit.json").exists()
    assert run.record(TREE, "gate")["failure"]["class"] == "unknown"
    run.mode_file.write_text("")
    assert run(target=record_of(LL128), log="other") == 0
    only = ("--configfile", "study.yaml", "--config", "only_measured=True")
    assert run(*only, log="closed") == 1
    assert not {"launch", "gate"} & set(run.jobs("closed"))
    [row] = [x for x in (run.results / "tables/failures.csv").read_text().splitlines() if TREE in x]
    assert ",unknown," in row
    assert run.record(TREE, "exit")["reason"]
