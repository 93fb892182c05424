"""A cell that fails leaves its record and no server; the others go on; a rerun retries that cell alone."""

import http.server
import threading

import pytest

from chain.runs import every
from quietgate.files import write_json
from quietgate.steps.study import study_record
from quietgate.study import Study

pytestmark = [pytest.mark.workflow, pytest.mark.slow]

GOOD = "steps-0_nccl-default"
BAD = "steps-2_nccl-default"
AT_TWO = "@speculative_num_steps=2"

# What goes wrong at which number of steps, the stage that fails, its class (None: several are right).
WRONG = {
    1: ("crash-at-start:0.2", "gate", "out_of_memory"),
    2: ("never-healthy", "gate", None),
    3: ("healthy-but-no-decode", "gate", None),
    4: ("lose-env", "gate", "environment"),
    5: ("crash-mid-request:4", None, None),
    6: ("cut-stream:6", "benchmark", "invalid_pass"),
    7: ("http-500:6", "benchmark", "invalid_pass"),
    8: ("hang:6", "benchmark", "invalid_pass"),
    9: ("exit-at-start", "gate", "unknown"),
}


def test_cells_fail_in_every_way_and_the_others_go_on(run):
    run.edit(
        grid__steps=[0, *WRONG],
        gate__decode_s=4,
        gate__stall_s=3,
        benchmark__stall_timeout_s=3,
        benchmark__request_timeout_s=10,
        server__env={"NCCL_PROTO": "LL"},
    )
    modes = [f"{mode}@speculative_num_steps={steps}" for steps, (mode, _, _) in WRONG.items()]
    run.mode_file.write_text(" ".join(modes))
    assert run() == 1, run.text()[-3000:]
    assert "Traceback" not in run.text()
    assert run.record(GOOD, "profile")["status"] == "passed"
    cells = (run.results / "tables" / "cells.csv").read_text()
    for steps, (mode, stage, failure_class) in WRONG.items():
        cell = f"steps-{steps}_nccl-default"
        found = [run.record(cell, n) for n in ("launch", "gate", "benchmark", "capture", "profile")]
        first = next(r for r in found if r["status"] != "passed")
        assert first["status"] == "failed", mode
        assert first["failure"]["reason"], mode
        assert stage is None or first["schema"] == f"quietgate/{stage}/1", (mode, first)
        assert failure_class in (None, first["failure"]["class"]), (mode, first["failure"])
        after = found[found.index(first) + 1 :]
        assert after, mode
        assert all(r["status"] == "skipped" for r in after), mode
        assert f"{cell}," in cells
    assert (run.results / "figures" / "figures.json").exists(), "drawn, with the failed cells shown"
    run.nothing_left()

    run.mode_file.write_text("")
    before = (run.results / f"cells/{GOOD}/l1/benchmark.json").stat().st_mtime_ns
    assert run(log="again") == 0, run.text("again")[-3000:]
    assert run.jobs("again")["benchmark"] == len(WRONG)
    assert (run.results / f"cells/{GOOD}/l1/benchmark.json").stat().st_mtime_ns == before
    assert all(record_passed(run, steps) for steps in WRONG)
    assert run(log="third") == 0
    assert run.finished("third")


def record_passed(run, steps):
    return run.record(f"steps-{steps}_nccl-default", "profile")["status"] == "passed"


def test_failed_cells_are_kept_when_asked(run):
    run.edit(retry_failed=False)
    run.mode_file.write_text("crash-at-start" + AT_TWO)
    assert run() == 1
    run.mode_file.write_text("")
    assert run(log="again") == 1
    assert not {"launch", "gate", "benchmark"} & set(run.jobs("again"))
    assert run.record(BAD, "benchmark")["status"] == "skipped"


@pytest.mark.parametrize("mode", ["ignore-term", "grandchildren", "ignore-term grandchildren"])
def test_stubborn_servers_end_all_the_same(run, mode):
    run.edit(grid__steps=[2], lease__grace_s=0.5)
    run.mode_file.write_text(mode)
    assert run(target="measured") == 0, run.text()[-3000:]
    run.nothing_left(5)
    assert run.record(BAD, "exit")["left"] == []


def test_a_foreign_server_on_the_port_is_named_and_left_alone(run):
    class Quiet(http.server.BaseHTTPRequestHandler):
        def log_message(self, *words):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as foreign:
        threading.Thread(target=foreign.serve_forever, daemon=True).start()
        run.edit(grid__steps=[2], lease__port=foreign.server_address[1])
        assert run(target="measured") == 0, "the failure is a record"
        failure = run.record(BAD, "launch")["failure"]
        assert failure["class"] == "port_in_use"
        assert str(foreign.server_address[1]) in failure["reason"]
        assert not every(run, "instances/*/server.log")
        foreign.shutdown()


@pytest.mark.parametrize("target", ["all", "share", "figures"])
def test_a_study_json_that_lost_a_block_ends_a_run_in_one_line(run, target):
    record = study_record(Study.from_config(run.config))
    del record["launches"][1]["block"]
    write_json(run.results / "study.json", record)
    kept = (run.results / "study.json").read_bytes()
    assert run(target=target) == 2
    assert "study.json: breaks schema study at launches/1: 'block' is a required property;" in run.text()
    assert "Traceback" not in run.text()
    assert [p.name for p in run.results.iterdir()] == ["study.json"]
    assert (run.results / "study.json").read_bytes() == kept
