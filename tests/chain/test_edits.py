"""After an edit ONE run redoes what is concerned, with and without .snakemake; the next run nothing."""

import json
import shutil

import pytest

from chain.runs import Run

pytestmark = [pytest.mark.workflow, pytest.mark.slow]

SERVER_BOUND = {"launch", "gate", "benchmark", "capture", "release"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished study of two cells (steps 0 and 2), to be copied."""
    run = Run(tmp_path_factory.mktemp("done") / "study", benchmark__repeats=1)
    run.copy_source()
    assert run() == 0, run.text()[-3000:]
    run.nothing_left()
    return run


@pytest.fixture(params=["with .snakemake", "without .snakemake"])
def done(request, finished, tmp_path):
    folder = tmp_path / "study"
    shutil.copytree(finished.folder, folder, symlinks=True)
    run = Run(folder, source=folder / "code", benchmark__repeats=1)
    if request.param == "without .snakemake":
        shutil.rmtree(folder / ".snakemake")
    yield run
    run.nothing_left()


def once_and_done(run: Run, *args: str) -> dict[str, int]:
    """What one run does; a second one must find nothing to do."""
    assert run(*args) == 0, run.text()[-3000:]
    ran = dict(run.jobs())
    assert run(*args, log="again") == 0, run.text("again")[-3000:]
    assert run.finished("again"), run.text("again")[-3000:]
    return ran


def test_nothing_changed(done):
    assert once_and_done(done) == {}


def test_server_arguments_of_one_cell(done):
    done.edit(server__speculative__args={"speculative-attention-mode": "decode"})
    ran = once_and_done(done)
    assert {rule: ran.get(rule) for rule in SERVER_BOUND} == dict.fromkeys(SERVER_BOUND, 1)
    assert ran["extract"] == ran["collect"] == ran["plot"] == 1


def test_benchmark_settings(done):
    done.edit(benchmark__max_new_tokens=20)
    ran = once_and_done(done)
    assert "launch" not in ran
    assert "gate" not in ran
    assert ran["benchmark"] == ran["capture"] == ran["release"] == ran["extract"] == 2
    assert done.record("steps-0_nccl-default", "benchmark")["settings"]["max_new_tokens"] == 20


def test_grown_grid(done):
    done.edit(grid__steps=[0, 2, 3])
    ran = once_and_done(done)
    # The new cell and, in the new epoch, a launch of the reference of its own.
    assert {rule: ran.get(rule) for rule in SERVER_BOUND} == dict.fromkeys(SERVER_BOUND, 2)
    assert done.record("steps-3_nccl-default", "benchmark", "l2")["status"] == "passed"
    assert done.record("steps-0_nccl-default", "benchmark", "l2")["status"] == "passed"
    assert ran["collect"] == 1


def test_shrunk_grid(done):
    done.edit(grid__steps=[0])
    ran = once_and_done(done)
    assert not SERVER_BOUND & set(ran)
    assert ran["collect"] == ran["plot"] == 1
    assert (done.results / "cells/steps-2_nccl-default/l1/benchmark.json").exists(), "left alone"


def test_more_launches(done):
    done.edit(replicates=2)
    ran = once_and_done(done)
    assert ran["launch"] == ran["benchmark"] == ran["release"] == 2


def test_analysis_code(done):
    module = done.source / "workflow/lib/quietgate/analyse/tables.py"
    module.write_text(module.read_text() + "\n# a change\n")
    ran = once_and_done(done)
    assert not SERVER_BOUND & set(ran)
    assert ran["collect"] == ran["plot"] == 1
    assert "extract" not in ran


def test_drawing_code(done):
    module = done.source / "workflow/lib/quietgate/draw/style.py"
    module.write_text(module.read_text() + "\n# a change\n")
    ran = once_and_done(done)
    assert set(ran) <= {"plot", "report_page", "check"}
    assert ran["plot"] == 1


def test_what_is_measured(done):
    module = done.source / "workflow/lib/quietgate/versions.py"
    module.write_text(module.read_text().replace("\nMEASURE = 1", "\nMEASURE = 2"))
    ran = once_and_done(done)
    assert ran["benchmark"] == 2
    assert "launch" not in ran


def test_lost_files_are_made_again(done):
    (done.results / "cells/steps-2_nccl-default/l1/benchmark.json").unlink()
    shutil.rmtree(done.results / "figures")
    ran = once_and_done(done)
    assert ran["benchmark"] == 1
    assert ran["plot"] == 1


FORCED = {
    "benchmark": {"benchmark": 2, "capture": 2, "release": 2, "extract": 2},
    "capture": {"capture": 2, "release": 2, "extract": 2},
    "release": {"release": 2},
}


@pytest.mark.parametrize("stage", FORCED)
def test_a_forced_stage_takes_what_follows_it_along(done, stage):
    before = done.record("steps-2_nccl-default", "benchmark")["instance"]
    assert done("--forcerun", stage) == 0, done.text()[-3000:]
    ran = {rule: n for rule, n in done.jobs().items() if rule in {*SERVER_BOUND, "extract"}}
    assert ran == FORCED[stage]
    agree(done, before, anew=stage == "benchmark")
    assert done(log="again") == 0
    assert done.finished("again"), done.text("again")[-3000:]


def test_one_record_forced_by_its_name(done):
    path = "results/t/cells/steps-2_nccl-default/l1/benchmark.json"
    before = done.record("steps-2_nccl-default", "benchmark")["instance"]
    assert done("--force", target=path) == 0, done.text()[-3000:]
    assert done.jobs() == {"benchmark": 1}
    assert done.record("steps-2_nccl-default", "exit")["instance"] == before
    assert done(log="again") == 0, done.text("again")[-3000:]
    assert done.jobs("again")["release"] == done.jobs("again")["extract"] == 1
    assert "benchmark" not in done.jobs("again")
    agree(done, before, anew=True)


def agree(run, before, anew):
    """The records of a launch name the life that was measured, and how that one ended."""
    found = {n: run.record("steps-2_nccl-default", n) for n in ("benchmark", "exit", "profile")}
    [life] = {record["instance"] for record in found.values()}
    assert (life != before) == anew
    folder = run.results / "cells/steps-2_nccl-default/l1"
    own = json.loads((folder / "instances" / life / "exit.json").read_text())
    assert {k: found["exit"][k] for k in ("reason", "ended_at")} == {
        k: own[k] for k in ("reason", "ended_at")
    }
    assert (folder / "server.log").read_bytes() == (folder / "instances" / life / "server.log").read_bytes()
