"""The whole gate in front of real processes that behave and misbehave."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_sglang import log

from quietgate import gate, records
from quietgate.errors import CellFailed, Interrupted
from quietgate.gate import cause

pytestmark = pytest.mark.process


def verdicts(stages: list[dict[str, Any]]) -> dict[str, str]:
    return {s["name"]: s["verdict"] for s in stages}


def failed(stages: list[dict[str, Any]]) -> dict[str, Any]:
    bad = [s for s in stages if s["verdict"] == "failed"]
    assert len(bad) == 1, verdicts(stages)
    return bad[0]


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_good_server_passes(gated: Callable[..., Any], steps: int) -> None:
    live, plan = gated(steps, concurrency=(1, 4))
    stages, prints = gate.run(live, plan)
    assert [s["name"] for s in stages] == [name for name, _ in gate_stages()]
    assert set(verdicts(stages).values()) <= {"passed", "not_applicable"}
    assert len(prints) == 3
    decode = stages[6]["evidence"]
    assert (decode["spec_verify_ct"] is None) == (steps == 0)
    assert [c["concurrency"] for c in stages[8]["evidence"]["concurrencies"]] == [1, 4]


def gate_stages() -> Any:
    from quietgate.gate.run import STAGES

    return STAGES


def test_greedy_text_is_the_same_at_every_number_of_steps(gated: Callable[..., Any]) -> None:
    prints = []
    for steps in (0, 2):
        live, plan = gated(steps)
        prints.append([p["token_ids"] for p in gate.run(live, plan)[1]])
    assert prints[0] == prints[1]


def test_the_gate_adds_less_than_a_second_to_readiness(gated: Callable[..., Any]) -> None:
    live, plan = gated(2, mode="slow-start:1", decode_prompts=1, decode_tokens=8)
    ready_at: list[float] = []

    def look() -> None:
        while not ready_at:
            if "ready to roll" in live.log.read_text(errors="replace"):
                ready_at.append(time.monotonic())
            time.sleep(0.005)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    passed_at: dict[str, float] = {}
    stages, _ = gate.run(live, plan, lambda line: passed_at.setdefault(line.split()[2], time.monotonic()))
    thread.join(10)
    assert verdicts(stages)["http"] == "passed"
    assert passed_at["http"] - ready_at[0] < 1.0


def test_a_server_that_dies_at_start_is_classified_at_once(gated: Callable[..., Any]) -> None:
    live, plan = gated(2, mode="crash-at-start")
    began = time.monotonic()
    stages, _ = gate.run(live, plan)
    bad = failed(stages)
    assert bad["name"] == "process"
    assert bad["evidence"]["failure_class"] == "out_of_memory"
    assert bad["evidence"]["during"] == "port"
    assert any("CUDA out of memory" in line for line in bad["evidence"]["lines"])
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("flags", ["", "--fake-nccl --tp-size 2"])
def test_a_server_that_exits_is_no_hang_whatever_its_log_lacks(gated: Callable[..., Any], flags: str) -> None:
    live, plan = gated(2, mode="exit-at-start", flags=flags)
    bad = failed(gate.run(live, plan)[0])
    assert bad["name"] == "process"
    assert "Load weight begin" in live.log.read_text()
    assert "Load weight end" not in live.log.read_text()
    # Nobody recorded its exit status here: it is gone, and why is open.
    assert bad["evidence"]["failure_class"] in ("unknown", "killed")


@pytest.mark.parametrize(
    ("text", "code", "failure_class", "words"),
    [
        (log.UNKNOWN, 3, "unknown", "frobnicator: the flux capacitor is not aligned, cannot go on"),
        ("just a word\n", 1, "unknown", "just a word"),
        ("", 1, "unknown", "nothing in its log"),
        (log.UNKNOWN, -9, "killed", "SIGKILL"),
        (log.UNKNOWN, 139, "segmentation_fault", "SIGSEGV"),
        (log.OUT_OF_MEMORY, 3, "out_of_memory", "CUDA out of memory"),
        ("h:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 2 - Init START\nbad luck\n", 1, "unknown", "bad"),
        ("Health check failed. Server couldn't get a response from detokenizer\n", 1, "unknown", "Health"),
    ],
)  # fmt: skip
def test_the_cause_of_an_exit(tmp_path: Path, text: str, code: int, failure_class: str, words: str) -> None:
    path = tmp_path / "server.log"
    begun = "[2026-11-29 17:00:01 TP0] Load weight begin. avail mem=1.00 GB\n" if text else ""
    path.write_text(begun + text)
    found = cause.of_death(path, code)
    assert found.failure_class == failure_class
    assert words in found.message


def test_a_server_that_dies_while_it_decodes(gated: Callable[..., Any]) -> None:
    live, plan = gated(2, mode="crash-mid-request")
    bad = failed(gate.run(live, plan)[0])
    assert (bad["name"], bad["evidence"]["during"]) == ("process", "decode")
    assert bad["evidence"]["failure_class"] == "illegal_access"


def test_a_server_that_dies_in_the_warm_up(gated: Callable[..., Any]) -> None:
    live, plan = gated(2, mode="crash-mid-request:4")
    bad = failed(gate.run(live, plan)[0])
    assert (bad["name"], bad["evidence"]["during"]) == ("process", "warm_up")


def test_a_hang_after_http_is_not_hidden_by_our_own_probes(gated: Callable[..., Any]) -> None:
    live, plan = gated(2, mode="never-healthy", stall_s=3, ready_s=60)
    bad = failed(gate.run(live, plan)[0])
    assert (bad["name"], bad["evidence"]["failure_class"]) == ("http", "hang")
    added = bad["evidence"]["added_by_sglang"]
    assert added["NCCL_CUMEM_ENABLE"] == "0"
    assert "SGLang itself added NCCL_CUMEM_ENABLE=0" in bad["why"]


def test_a_gate_record_keeps_its_schema(gated: Callable[..., Any]) -> None:
    for steps, mode in ((2, ""), (2, "degenerate")):
        live, plan = gated(steps, mode=mode)
        stages, prints = gate.run(live, plan)
        bad = [s for s in stages if s["verdict"] == "failed"]
        failure = {"class": "x", "reason": "y", "stage": "gate", "evidence": []} if bad else None
        record = {
            "schema": "quietgate/gate/1",
            "study": "s",
            "cell": live.cell,
            "launch": "l1",
            "instance": live.instance,
            "digest": live.digest,
            "status": "failed" if bad else "passed",
            "failure": failure,
            "started_at": "2026-11-29T17:00:00.000Z",
            "seconds": 1.0,
            "stages": stages,
            "fingerprints": prints,
            "ready_after_s": 1.0,
        }
        assert records.problem(record, "gate") is None
        json.dumps(record, allow_nan=False)


def test_a_stranger_on_the_port_is_told_at_once(gated: Callable[..., Any]) -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        live, plan = gated(0, mode="slow-start:20", port=stranger.getsockname()[1])
        bad = failed(gate.run(live, plan)[0])
    assert (bad["name"], bad["evidence"]["failure_class"]) == ("port", "port_in_use")
    assert bad["evidence"]["pid"] == os.getpid()


def test_a_server_that_is_never_healthy(gated: Callable[..., Any]) -> None:
    live, plan = gated(2, mode="never-healthy", ready_s=3)
    bad = failed(gate.run(live, plan)[0])
    assert (bad["name"], bad["evidence"]["failure_class"]) == ("http", "never_ready")


def test_a_silent_server_is_a_hang_long_before_the_deadline(gated: Callable[..., Any]) -> None:
    live, plan = gated(2, mode="slow-start:60", stall_s=2.5)
    began = time.monotonic()
    bad = failed(gate.run(live, plan)[0])
    assert (bad["name"], bad["evidence"]["failure_class"]) == ("port", "hang")
    assert "last stage reached" in bad["why"]
    assert time.monotonic() - began < 30


def test_healthy_but_no_decode(gated: Callable[..., Any]) -> None:
    live, plan = gated(2, mode="healthy-but-no-decode", decode_s=2)
    stages, _ = gate.run(live, plan)
    assert verdicts(stages)["http"] == "passed"
    bad = failed(stages)
    assert (bad["name"], bad["evidence"]["failure_class"]) == ("decode", "hang")


def test_a_looping_server_is_degenerate(gated: Callable[..., Any]) -> None:
    live, plan = gated(2, mode="degenerate")
    bad = failed(gate.run(live, plan)[0])
    assert bad["evidence"]["failure_class"] == "degenerate_text"


def test_a_wrong_argument_is_found(gated: Callable[..., Any]) -> None:
    live, plan = gated(2, mode="wrong-args:context_length=512", flags="--context-length 1024")
    bad = failed(gate.run(live, plan)[0])
    assert (bad["name"], bad["evidence"]["failure_class"]) == ("arguments", "arguments")
    assert bad["evidence"]["different"][0]["argument"] == "context_length"
    assert bad["evidence"]["effective"]["speculative_num_steps"] == 2


def test_speculation_that_is_not_on(gated: Callable[..., Any]) -> None:
    live, plan = gated(0)
    bad = failed(gate.run(live, dataclasses.replace(plan, steps=2))[0])
    assert bad["name"] == "arguments"
    assert "speculative-num-steps: asked for 2" in bad["why"]


def test_variables_lost_on_the_way_to_the_ranks(gated: Callable[..., Any]) -> None:
    profile = {"NCCL_PROTO": "LL"}
    live, plan = gated(0, env=profile, mode="lose-env", profile_set=profile)
    bad = failed(gate.run(live, plan)[0])
    assert bad["name"] == "environment"
    assert "NCCL_PROTO=LL was asked for, but it is absent" in bad["why"]


def test_a_variable_that_was_to_be_absent(gated: Callable[..., Any]) -> None:
    live, plan = gated(0, env={"NCCL_ALGO": "Ring"}, profile_unset=("NCCL_ALGO",))
    bad = failed(gate.run(live, plan)[0])
    assert "NCCL_ALGO=Ring is set, but was to be absent" in bad["why"]


def test_a_wiped_environment_is_named_with_its_cure(gated: Callable[..., Any]) -> None:
    live, plan = gated(0, env={"SPT_NOENV": ""})
    bad = failed(gate.run(live, plan)[0])
    assert bad["name"] == "environment"
    assert "SPT_NOENV=1" in bad["why"]


def test_ranks_that_are_missing(gated: Callable[..., Any]) -> None:
    live, plan = gated(0, ranks=2)
    bad = failed(gate.run(live, plan)[0])
    assert "2 ranks asked for, 1 scheduler process" in bad["why"]


def test_a_batch_larger_than_the_largest_graph(gated: Callable[..., Any]) -> None:
    live, plan = gated(0, flags="--cuda-graph-bs 1 2", concurrency=(1, 4))
    bad = failed(gate.run(live, plan)[0])
    assert (bad["name"], bad["evidence"]["largest_batch"]) == ("cuda_graphs", 2)


def test_requests_that_fail_in_the_warm_up(gated: Callable[..., Any]) -> None:
    live, plan = gated(2, mode="http-500:3")
    bad = failed(gate.run(live, plan)[0])
    assert bad["name"] == "warm_up"


def test_told_to_stop_leaves_no_verdict(gated: Callable[..., Any]) -> None:
    live, plan = gated(2, mode="slow-start:60")
    calls = []

    def check() -> None:
        calls.append(1)
        if len(calls) > 5:
            raise Interrupted("told to stop")

    with pytest.raises(Interrupted):
        gate.run(live, plan, check=check)


def test_a_lost_lease_fails_stage_one(gated: Callable[..., Any]) -> None:
    live, plan = gated(2, mode="slow-start:60")

    def check() -> None:
        raise CellFailed("killed", "both supervisors were killed", ["evidence"])

    bad = failed(gate.run(live, plan, check=check)[0])
    assert (bad["stage"], bad["why"]) == (1, "both supervisors were killed")
    assert bad["evidence"]["lines"] == ["evidence"]


def test_a_gate_ended_from_outside_keeps_what_was_proved(gated: Callable[..., Any]) -> None:
    live, plan = gated(2)
    stages: list[dict[str, Any]] = []

    def check() -> None:
        if len(stages) == 3:
            raise KeyboardInterrupt  # as out of a signal handler

    with pytest.raises(KeyboardInterrupt):
        gate.run(live, plan, check=check, stages=stages)
    lost = gate.server_lost(stages, CellFailed("killed", "gone"))
    assert [s["name"] for s in lost] == ["process", "port", "http"]
    assert failed(lost)["evidence"]["during"] == "arguments"
    assert gate.server_lost(lost, CellFailed("hang", "later")) == lost


def test_proxies_of_the_shell_are_not_asked(
    gated: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    live, plan = gated(2)
    assert set(verdicts(gate.run(live, plan)[0]).values()) <= {"passed", "not_applicable"}


def test_a_server_killed_from_outside(gated: Callable[..., Any]) -> None:
    live, plan = gated(2, mode="slow-start:60")
    threading.Timer(0.3, os.kill, (live.pids[0], signal.SIGKILL)).start()
    bad = failed(gate.run(live, plan)[0])
    assert (bad["name"], bad["evidence"]["failure_class"]) == ("process", "killed")
