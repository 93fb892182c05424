"""A cell that fails leaves its record and no server; the others go on; a rerun retries that cell alone."""

import http.server
import threading

import pytest
from chain.runs import every

pytestmark = [pytest.mark.workflow, pytest.mark.slow]

BAD, GOOD = "steps-2_nccl-default", "steps-0_nccl-default"
AT_TWO = "@speculative_num_steps=2"


@pytest.mark.parametrize(
    ("mode", "stage", "failure_class"),
    [
        ("crash-at-start:0.2", "gate", "out_of_memory"),
        ("never-healthy", "gate", None),
        ("healthy-but-no-decode", "gate", None),
        ("lose-env", "gate", None),
        ("crash-mid-request:3", None, None),
        ("cut-stream:6", "benchmark", "invalid_pass"),
        ("http-500:6", "benchmark", "invalid_pass"),
        ("hang:6", "benchmark", None),
    ],
)
def test_one_cell_fails(run, mode, stage, failure_class):
    run.edit(
        gate__decode_s=4,
        benchmark__stall_timeout_s=3,
        benchmark__request_timeout_s=10,
        server__env={"NCCL_PROTO": "LL"},
    )
    run.mode_file.write_text(mode + AT_TWO)
    assert run() == 1, run.text()[-3000:]
    assert "Traceback" not in run.text()
    assert run.record(GOOD, "profile")["status"] == "passed"
    records = {n: run.record(BAD, n) for n in ("launch", "gate", "benchmark", "capture", "profile")}
    first = next(r for r in records.values() if r["status"] != "passed")
    assert first["status"] == "failed"
    assert first["failure"]["reason"]
    if stage:
        assert first["failure"]["stage"] in (stage, "gate")
    if failure_class:
        assert first["failure"]["class"] == failure_class, first["failure"]
    after = list(records.values())[list(records.values()).index(first) + 1 :]
    assert all(r["status"] == "skipped" for r in after)
    assert (run.results / "figures" / "figures.json").exists(), "drawn, with the failed cell shown"
    cells = (run.results / "tables" / "cells.csv").read_text()
    assert "failed" in cells
    run.nothing_left()

    run.mode_file.write_text("")
    good_before = (run.results / f"cells/{GOOD}/l1/benchmark.json").stat().st_mtime_ns
    assert run(log="again") == 0, run.text("again")[-3000:]
    assert run.jobs("again")["benchmark"] == 1
    assert (run.results / f"cells/{GOOD}/l1/benchmark.json").stat().st_mtime_ns == good_before
    assert run.record(BAD, "profile")["status"] == "passed"
    assert run(log="third") == 0
    assert run.finished("third")


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
    assert run() == 0, run.text()[-3000:]
    run.nothing_left(5)
    assert run.record(BAD, "exit")["left"] == []


def test_a_foreign_server_on_the_port_is_named_and_left_alone(run):
    class Quiet(http.server.BaseHTTPRequestHandler):
        def log_message(self, *words):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as foreign:
        threading.Thread(target=foreign.serve_forever, daemon=True).start()
        run.edit(grid__steps=[2], lease__port=foreign.server_address[1])
        assert run() == 1
        failure = run.record(BAD, "launch")["failure"]
        assert failure["class"] == "port_in_use"
        assert str(foreign.server_address[1]) in failure["reason"]
        assert not every(run, "instances/*/server.log")
        foreign.shutdown()
