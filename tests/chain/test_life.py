"""A study from nothing to figures; again; and what must not change anything."""

import json

import pytest

from chain.runs import Run, every, stamps
from quietgate import records

pytestmark = pytest.mark.workflow


def test_from_nothing_to_figures_and_nothing_to_do(run):
    assert run() == 0, run.text()[-3000:]
    assert run.jobs()["launch"] == 2
    for name in ("launch", "gate", "benchmark", "stages", "capture", "profile", "exit"):
        found = every(run, name)
        assert len(found) == 2, name
        for path in found:
            assert records.read(path, name)["status"] == "passed"
    assert (run.results / "report.html").stat().st_size > 2000
    assert {p.suffix for p in (run.results / "figures").iterdir()} >= {".pdf", ".svg", ".png", ".csv"}
    benchmark = run.record("steps-2_nccl-default", "benchmark")
    assert benchmark["passes"][0]["tokens_per_cycle"] > 1
    assert run.record("steps-0_nccl-default", "benchmark")["passes"][0]["tokens_per_cycle"] == 1
    around = benchmark["passes"][0]["surroundings"]
    assert (around["gpus"], around["why"]) == ([], "no GPU in this slot")
    assert around["other_cores"] >= 0
    assert min(around["loop_ms"].values()) > 0
    assert len((run.results / "tables" / "surroundings.csv").read_text().splitlines()) == 1 + 4
    instance = run.results / "cells/steps-2_nccl-default/l1/instances" / benchmark["instance"]
    assert json.loads((instance / "gate.json").read_text())["status"] == "passed"
    assert run("-n", log="dry") == 0
    assert run.finished("dry")
    before = stamps(run)
    assert run(log="again") == 0
    assert run.finished("again"), run.text("again")[-2000:]
    assert stamps(run) == before

    # A damaged product is made again, and a dry run says so before.
    (run.results / "tables" / "cells.csv").write_text("x")
    assert run("-n", log="dry") == 0
    aside = "study, from tables/tables.json on: a file that it lists was changed"
    assert f"a run would first set aside: {aside}" in run.text("dry")
    assert run(log="third") == 0
    assert f"set aside: {aside}" in run.text("third")
    assert set(run.jobs("third")) == {"collect", "plot", "report_page", "check"}
    assert (run.results / "tables" / "cells.csv").stat().st_size > 100


def test_results_in_a_config_of_a_study(run):
    run.edit(results="out")
    assert run() == 2
    assert "a study's own go to results/<study>" in run.text()


@pytest.mark.parametrize("words", [["-n"], ["--lint"], ["--summary"], ["--rulegraph"]])
def test_looking_changes_nothing(run, words):
    run(*words)
    assert not (run.folder / "results").exists()


def test_bad_config_is_one_line_and_exit_2(run):
    run.edit(nccl_profiles__default={"set": {"NCCL_PROT": "LL"}}, benchmark__repeats=0)
    del run.config["benchmark"]["repeats"]
    run.edit()
    assert run() == 2
    assert "Traceback" not in run.text()
    line = next(x for x in run.text().splitlines() if "NCCL_PROT" in x)
    assert line.startswith("study.yaml: nccl_profiles.default.set.NCCL_PROT:")
    assert not (run.folder / "results").exists()


def test_missing_interpreter_is_found_before_anything_starts(run):
    run.edit(server__python="/no/such/python")
    assert run() == 2
    assert "server.python: no program /no/such/python here" in run.text()
    assert not (run.folder / "results").exists()


def test_missing_models_are_found_before_anything_starts(run):
    run.edit(server__args__tokenizer_path="./none", server__speculative={"draft_model_path": "/no/draft"})
    assert run() == 2
    cure = "here; name its folder, or the model as org/name on its hub"
    assert run.text().splitlines()[-2:] == [
        f"study.yaml: server.args.tokenizer_path: no model ./none {cure}",
        f"study.yaml: server.speculative.draft_model_path: no model /no/draft {cure}",
    ]
    assert not (run.folder / "results").exists()


def test_unreadable_prompts_are_found_before_anything_starts(run):
    (run.folder / "prompts.jsonl").write_text('{"prompt": "one"}\njunk\n')
    run.edit(benchmark__prompts="prompts.jsonl")
    assert run() == 2
    assert "study.yaml: benchmark.prompts: prompts.jsonl:2: not JSON" in run.text()
    assert "Traceback" not in run.text()
    assert not (run.folder / "results").exists()


def test_two_runs_of_one_study_do_not_meet(run):
    run.mode_file.write_text("slow-start:3")
    first = run.start(log="first")
    run.wait_for("server .* runs", "first")
    assert run(log="second") == 2
    assert "already" in run.text("second") or "another" in run.text("second")
    assert "Traceback" not in run.text("second")
    assert first.wait(120) == 0, run.text("first")[-2000:]


def test_one_server_at_a_time_whatever_the_cores(tmp_path):
    run = Run(tmp_path / "study", grid__steps=[0, 1, 2], capture__enabled=False, benchmark__repeats=1)
    process = run.start("--cores", "4")
    most = 0
    while process.poll() is None:
        most = max(most, len(run.servers()))
    assert process.wait() == 0, run.text()[-3000:]
    assert most == 1
    run.nothing_left()
