import json
from pathlib import Path

import pytest
import requests as http
from fake_sglang.running import speculation

from quietgate.measure import passes, prompts, warm_up
from quietgate.records import validator

SAMPLING = {"temperature": 0, "max_new_tokens": 60, "ignore_eos": True}
OWN = prompts.load()


def run(server, count=3, concurrency=1, sampling=SAMPLING, flush=True, **options):
    flushed = passes.flush_cache(server.url) if flush else False
    options = {"repeat": 1, "timeout_s": 30.0, "stall_s": 20.0, **options}
    got = passes.run(server.url, OWN[:count], sampling, concurrency=concurrency, **options)
    summary = passes.summarise(got.requests, concurrency, 1, got.wall_s, got.client_cpu_s, flushed)
    return got, summary


# ---------------------------------------------------------------- numbers


@pytest.mark.process
@pytest.mark.parametrize("steps", [0, 2, 5])
def test_numbers_are_the_servers(fake_server, steps):
    server = fake_server(*speculation(steps), "--enable-metrics", "--fake-base-ms", "8")
    got, summary = run(server)
    assert summary["status"] == "passed", summary["problems"]
    cycle_ms = 8 + 0.6 * steps
    # A loaded machine can only make the fake slower than it was set.
    assert 0.9 * cycle_ms < summary["cycle_ms"] < 2 * cycle_ms
    told = summary["server_decode_tokens_per_s"]
    assert summary["decode_tokens_per_s"] == pytest.approx(told, rel=0.1)
    per_cycle = summary["tokens_per_cycle"] / summary["cycle_ms"] * 1000
    assert summary["decode_tokens_per_s"] == pytest.approx(per_cycle, rel=0.2)
    assert summary["request_tokens_per_s"] < summary["decode_tokens_per_s"] * 1.05
    if steps:
        assert 1.2 < summary["tokens_per_cycle"] < steps + 1
    else:
        assert summary["tokens_per_cycle"] == 1.0
    for line in got.requests:
        assert line["completion_tokens"] == sum(line["chunk_tokens"]) == 60
        assert len(line["chunk_s"]) == len(line["chunk_tokens"])
        assert line["ttft_s"] >= 0.003
        assert line["problem"] is None
        assert bool(line["spec_verify_ct"]) == bool(steps)
        json.dumps(line, allow_nan=False)


@pytest.mark.process
def test_greedy_text_is_the_same_at_every_number_of_steps(fake_server):
    texts = []
    for steps in (0, 3):
        got, _ = run(fake_server(*speculation(steps)), count=2)
        texts.append({line["prompt_id"]: line["text_sha256"] for line in got.requests})
    assert texts[0] == texts[1]


@pytest.mark.process
def test_many_streams(fake_server):
    server = fake_server(*speculation(2), "--enable-metrics", "--max-running-requests", "64")
    got, summary = run(server, count=8, concurrency=16)
    assert summary["status"] == "passed", summary["problems"]
    assert summary["requests"] == 32
    one = summary["decode_tokens_per_s"]
    assert summary["output_tokens_per_s"] > 4 * one  # streams run beside each other
    assert summary["client_cpu_s"] < summary["wall_s"]
    assert len({line["prompt_id"] for line in got.requests}) == 32
    assert [line["start_s"] >= 0 for line in got.requests].count(False) == 0


@pytest.mark.process
def test_a_pass_fits_its_schema(fake_server):
    _, good = run(fake_server(*speculation(2)), count=2)
    _, bad = run(fake_server(mode="http-500"), count=2)
    schema = validator("benchmark").schema["properties"]["passes"]["items"]
    check = validator("benchmark").evolve(schema=schema)
    for summary in (good, bad):
        check.validate(summary)


# ---------------------------------------------------------------- what is no result


@pytest.mark.process
@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("http-500:1", "HTTP 500"),
        ("cut-stream:1", "stream cut"),
        ("crash-mid-request:1", "stream cut"),
        ("hang:1", "silent for too long"),
        ("healthy-but-no-decode", "silent for too long"),
    ],
)
def test_every_way_to_fail_is_named(fake_server, mode, reason):
    ready = "no-decode" not in mode
    server = fake_server(mode=mode, ready=ready)
    if not ready:
        server.wait_for("Uvicorn running")
    got, summary = run(server, stall_s=0.7)
    assert summary["status"] == "failed"
    assert reason in summary["problems"][0]
    assert all(summary[name] is None for name in passes.NUMBERS)
    # Every prompt has its line: what failed, and what was never sent after that.
    assert len(got.requests) == 3
    assert sorted(line["prompt_id"] for line in got.requests) == sorted(p.id for p in OWN[:3])
    assert "not sent" in got.requests[-1]["error"]


@pytest.mark.process
def test_one_stalled_stream_of_many_ends_the_pass(fake_server):
    server = fake_server("--max-running-requests", "16", mode="hang:5")
    _, summary = run(server, count=8, concurrency=8, stall_s=0.7)
    assert summary["status"] == "failed"
    assert any("silent" in p for p in summary["problems"])
    assert summary["wall_s"] < 15


@pytest.mark.process
def test_a_cache_that_was_not_flushed_is_found(fake_server):
    server = fake_server(*speculation(2))
    assert run(server)[1]["status"] == "passed"
    _, again = run(server, flush=False)
    assert again["status"] == "failed"
    assert "prefix cache" in again["problems"][0]
    assert run(server)[1]["status"] == "passed"


@pytest.mark.process
def test_an_answer_that_ends_before_its_length_is_no_result(fake_server):
    server = fake_server("--context-length", "60")
    _, summary = run(server, count=1)
    assert "tokens where 60 were asked for" in summary["problems"][0]


@pytest.mark.process
def test_a_stop_by_the_model_is_fine_where_lengths_are_free(fake_server):
    server = fake_server("--fake-base-ms", "0.5")
    free = {**SAMPLING, "max_new_tokens": 600, "ignore_eos": False}
    got, summary = run(server, count=1, sampling=free)
    assert summary["status"] == "passed", summary["problems"]
    assert got.requests[0]["finish_reason"] == "stop"
    assert got.requests[0]["completion_tokens"] < 600


@pytest.mark.process
def test_flush_is_refused_while_requests_run_and_by_nobody(fake_server):
    server = fake_server("--fake-base-ms", "50")
    assert passes.flush_cache(server.url)
    slow = {"text": "x", "stream": True, "sampling_params": {"max_new_tokens": 400}}
    with http.post(f"{server.url}/generate", json=slow, stream=True, timeout=20) as response:
        next(response.iter_content(10))
        assert not passes.flush_cache(server.url)
    server.stop()
    assert not passes.flush_cache(server.url)


def line(**changes):
    whole = {
        "prompt_id": "a",
        "ok": True,
        "error": None,
        "completion_tokens": 60,
        "prompt_tokens": 100,
        "cached_tokens": 0,
        "finish_reason": "length",
        "decode_tokens_per_s": 50.0,
    }
    return {**whole, **changes}


@pytest.mark.parametrize(
    ("changes", "prompt_bytes", "shared", "says"),
    [
        ({}, 400, 0, None),
        ({"cached_tokens": 1}, 400, 0, None),  # the token that begins every prompt
        ({"cached_tokens": None}, 400, 0, None),
        ({"cached_tokens": 20}, 400, 80, None),  # a shared system prompt
        ({"cached_tokens": 3}, 400, 0, "3 of 100 prompt tokens"),
        ({"cached_tokens": 64}, 400, 80, "64 of 100"),  # whole pages of an old prompt
        ({"cached_tokens": 99}, 400, 399, "99 of 100"),  # a replay, whatever is shared
        ({"completion_tokens": 59}, 400, 0, "59 tokens where 60"),
        ({"completion_tokens": 61}, 400, 0, "at most 60"),
        ({"decode_tokens_per_s": None}, 400, 0, "one piece"),
        ({"ok": False, "error": "HTTP 500: x"}, 400, 0, "HTTP 500"),
    ],
)
def test_problems_of_a_request(changes, prompt_bytes, shared, says):
    found = passes.problem(line(**changes), SAMPLING, prompt_bytes, shared)
    assert found == says if says is None else says in found


def test_a_saturated_client_and_an_empty_pass_are_no_result():
    full = passes.summarise([], 64, 1, wall_s=10.0, client_cpu_s=9.5, flushed=True)
    assert full["status"] == "failed"
    assert any("client saturated" in p for p in full["problems"])
    assert any("no request" in p for p in full["problems"])


def test_a_reason_shared_by_many_is_told_once():
    lines = [line(prompt_id=str(i), problem="HTTP 500: x") for i in range(9)]
    summary = passes.summarise(lines, 1, 1, 1.0, 0.1, True)
    assert summary["problems"] == ["0, 1, 2 and 6 more: HTTP 500: x"]


def test_shared_beginnings():
    assert passes.shared_prefixes(["abc", "xyz", "abd", "é1", "é2"]) == [2, 0, 2, 2, 2]
    assert passes.shared_prefixes(["one"]) == [0]


@pytest.mark.parametrize(
    ("count", "concurrency", "sent"), [(8, 1, 8), (8, 4, 8), (8, 8, 16), (3, 8, 16), (24, 16, 32)]
)
def test_streams_get_equally_many_requests(count, concurrency, sent):
    chosen = passes.planned(OWN[:count], concurrency)
    assert len(chosen) == sent
    assert len({p.text for p in chosen}) == sent
    assert chosen[: min(count, sent)] == OWN[: min(count, sent)]


# ---------------------------------------------------------------- warm-up


@pytest.mark.process
def test_warm_up_ends_when_steady_and_keeps_what_it_ran(fake_server):
    server = fake_server(*speculation(2), "--max-running-requests", "8", "--fake-base-ms", "10")
    got = warm_up.until_steady(server.url, OWN, SAMPLING, 4, max_passes=6, tolerance=0.1, stall_s=20)
    assert got["steady"], got["why"]
    assert 2 <= len(got["passes"]) <= 6
    assert len(got["requests"]) == 4 * len(got["passes"])
    assert {(r["phase"], r["repeat"]) for r in got["requests"]} == {("warm_up", 0)}
    assert len(got["tokens_per_s"]) == len(got["cycle_ms"]) == len(got["passes"])


@pytest.mark.process
@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"max_passes": 2, "tolerance": 1e-9}, "not steady within 2 passes"),
        ({"max_s": 0.0, "tolerance": 1e-9}, "not steady within 0 s"),
    ],
)
def test_warm_up_is_bounded(fake_server, options, why):
    got = warm_up.until_steady(fake_server().url, OWN, SAMPLING, 1, **options)
    assert not got["steady"]
    assert why in got["why"]


@pytest.mark.process
def test_warm_up_on_a_broken_server_says_what_broke(fake_server):
    got = warm_up.until_steady(fake_server(mode="http-500").url, OWN, SAMPLING, 2)
    assert not got["steady"]
    assert "HTTP 500" in got["why"]
    assert len(got["passes"]) == 1


def test_variation():
    assert warm_up.coefficient_of_variation([5.0]) == 0.0
    assert warm_up.coefficient_of_variation([1.0, 1.0]) == 0.0
    assert warm_up.coefficient_of_variation([9.0, 11.0]) == pytest.approx(0.1414, rel=1e-3)


def test_the_own_prompts_are_where_the_study_looks_for_them():
    from quietgate.study.study import PROMPTS

    assert Path(prompts.OWN).resolve() == Path(PROMPTS).resolve()
