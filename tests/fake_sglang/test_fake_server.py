"""The fake server does what its modes and flags say."""

import gzip
import json
import os
import socket
import time

import psutil
import pytest
import requests

from fake_sglang import arguments, modes
from fake_sglang.running import fake_server, speculation

__all__ = ["fake_server"]
pytestmark = pytest.mark.process


def generate(server, tokens=20, timeout=20, **more):
    body = {"text": "one two", "sampling_params": {"temperature": 0, "max_new_tokens": tokens}}
    return requests.post(f"{server.url}/generate", json={**body, **more}, timeout=timeout)


def get(server, path, **options):
    return requests.get(server.url + path, timeout=20, **options)


def until(condition, timeout_s=20):
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def gone(pid):
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_ready_generates_and_ends_cleanly(fake_server):
    server = fake_server(*speculation(2))
    children = psutil.Process(server.pid).children()
    assert [c.cmdline() for c in children] == [["sglang::scheduler"], ["sglang::detokenizer"]]
    answer = generate(server).json()
    assert answer["meta_info"]["completion_tokens"] == 20 == len(answer["output_ids"])
    assert answer["meta_info"]["spec_verify_ct"] > 0
    assert [get(server, p).status_code for p in ("/health", "/ready", "/v1/models")] == [200] * 3
    assert server.stop() == 0
    assert all(gone(child.pid) for child in children)


def test_ranks_show_the_environment_that_nccl_would_see(fake_server, tmp_path):
    env = {"SPT_NOENV": "1", "NCCL_PROTO": "LL", "NCCL_DEBUG": "INFO"}
    env |= {"NCCL_DEBUG_FILE": f"{tmp_path}/nccl.%h.%p.log", "NCCL_DEBUG_SUBSYS": "INIT,ENV,TUNING"}
    server = fake_server("--tp-size", "2", "--fake-nccl", env=env)
    ranks = [c for c in psutil.Process(server.pid).children() if "scheduler" in c.cmdline()[0]]
    assert [c.cmdline()[0] for c in ranks] == ["sglang::scheduler_TP0", "sglang::scheduler_TP1"]
    for rank in ranks:
        seen = rank.environ()
        assert (seen["NCCL_PROTO"], seen["NCCL_CUMEM_ENABLE"]) == ("LL", "0")
        assert seen["CUDA_DEVICE_MAX_CONNECTIONS"] == "8"
        log = (tmp_path / f"nccl.{socket.gethostname()}.{rank.pid}.log").read_text()
        assert "NCCL_PROTO set by environment to LL\n" in log
    assert " TP1] Load weight end" in server.text()


def test_without_spt_noenv_the_environment_of_the_ranks_is_lost(fake_server):
    server = fake_server(env={"NCCL_PROTO": "LL"})
    assert psutil.Process(server.pid).children()[0].environ() == {}


def test_lost_variables(fake_server):
    server = fake_server(mode="lose-env", env={"SPT_NOENV": "1", "NCCL_PROTO": "LL"})
    seen = psutil.Process(server.pid).children()[0].environ()
    assert "NCCL_PROTO" not in seen
    assert seen["NCCL_CUMEM_ENABLE"] == "0"


def test_children_end_with_a_killed_server(fake_server):
    server = fake_server()
    children = psutil.Process(server.pid).children()
    server.process.kill()
    until(lambda: all(gone(child.pid) for child in children))


@pytest.mark.parametrize(("mode", "status"), [("crash-at-start", -9)])
def test_crash_at_start(fake_server, mode, status):
    server = fake_server(mode=mode, ready=False)
    assert server.process.wait(20) == status
    assert "torch.OutOfMemoryError: CUDA out of memory" in server.text()
    assert "Received sigquit from a child process" in server.text()


def test_slow_start_refuses_connections_until_then(fake_server):
    server = fake_server(mode="slow-start:0.6", ready=False)
    server.wait_for("Load weight end")
    with pytest.raises(requests.ConnectionError):
        get(server, "/health")
    server.wait_for("ready to roll")


def test_never_healthy(fake_server):
    server = fake_server(mode="never-healthy", ready=False)
    server.wait_for("Uvicorn running")
    assert get(server, "/health").status_code == 503
    assert get(server, "/model_info").status_code == 200
    with pytest.raises(requests.Timeout):
        generate(server, timeout=0.3)


def test_healthy_but_no_decode(fake_server):
    server = fake_server(mode="healthy-but-no-decode")
    assert get(server, "/health").status_code == 200
    assert generate(server, 1).json()["meta_info"]["completion_tokens"] == 1
    with pytest.raises(requests.Timeout):
        generate(server, timeout=0.3)
    assert get(server, "/health").status_code == 200  # SGLang asks a busy scheduler nothing


def test_ignores_term(fake_server):
    server = fake_server(mode="ignore-term")
    server.process.terminate()
    time.sleep(0.3)
    assert generate(server).ok
    child = psutil.Process(server.pid).children()[0]
    child.terminate()
    time.sleep(0.2)
    assert not gone(child.pid)


def test_grandchildren_outlive_it(fake_server):
    server = fake_server(mode="grandchildren")
    until(lambda: server.grandchildren())
    (pid,) = server.grandchildren()
    runaway = psutil.Process(pid)
    until(lambda: "fake-sglang-grandchild" in runaway.cmdline())
    assert runaway.environ() == {}
    assert os.getsid(pid) != os.getsid(server.pid)
    assert server.process.terminate() is None
    server.process.wait(20)
    runaway.terminate()
    time.sleep(0.2)
    assert not gone(pid)
    server.stop()
    until(lambda: gone(pid))


def test_modes_after_so_many_requests_and_degenerate_text(fake_server):
    server = fake_server(mode="http-500:2 degenerate")
    words = generate(server, 30).json()["text"].split()
    assert len(set(words)) == 3
    assert [generate(server).status_code for _ in range(2)] == [200, 500]


def test_an_argument_that_is_not_the_requested_one(fake_server):
    server = fake_server("--max-running-requests", "8", mode="wrong-args:max_running_requests=9")
    assert get(server, "/server_info").json()["max_running_requests"] == 9
    other = fake_server(*speculation(2), mode="wrong-args")
    assert get(other, "/server_info").json()["speculative_eagle_topk"] == 2


def test_effective_arguments_are_sglangs_own(fake_server):
    flags = [*speculation(2)[:-1], "7", "--num-continuous-decode-steps", "4"]
    server = fake_server(*flags)
    info = get(server, "/server_info").json()
    assert info["speculative_num_draft_tokens"] == 3
    assert info["max_running_requests"] == 48
    assert info["internal_states"][0]["effective_max_running_requests_per_dp"] == 48
    assert "is adjusted to speculative_num_steps + 1" in server.text()


def test_port_taken(fake_server):
    first = fake_server()
    second = fake_server(port=first.port, ready=False)
    assert second.process.wait(20) == 1
    assert "address already in use" in second.text()


def test_profiler_window(fake_server, tmp_path):
    server = fake_server(*speculation(2), "--tp-size", "2")
    body = {"output_dir": str(tmp_path / "t"), "num_steps": 5}
    assert requests.post(f"{server.url}/start_profile", json=body, timeout=20).ok
    generate(server, 40)
    server.wait_for("Profiling done")
    files = sorted((tmp_path / "t").iterdir())
    assert [f.name.split("-", 1)[1] for f in files] == [f"TP-{r}.trace.json.gz" for r in (0, 1)]
    names = [e["name"] for e in json.loads(gzip.decompress(files[0].read_bytes()))["traceEvents"]]
    assert names.count("draft") == names.count("step[VERIFY bs=1]") == 4  # one was the prefill


def test_metrics_only_where_asked(fake_server):
    assert get(fake_server(), "/metrics").status_code == 404
    env = {"SGLANG_ENABLE_METRICS_DEVICE_TIMER": "1"}
    server = fake_server(*speculation(2), "--enable-metrics", env=env)
    text = get(server, "/metrics").text
    for name in ("spec_verify_calls_total", "generation_tokens_total", "spec_accept_length"):
        assert f"sglang:{name}" in text
    assert 'mode="decode_cuda_graph"' in text
    assert 'forward_execution_seconds_total{category="eagle_draft"' in text


def test_the_stage_timer_kills_a_cpu_server(fake_server):
    env = {"SGLANG_ENABLE_METRICS_DEVICE_TIMER": "1"}
    server = fake_server("--device", "cpu", "--enable-metrics", env=env, ready=False)
    assert server.process.wait(20) == -9
    assert "enable_timing" in server.text()


@pytest.mark.parametrize(
    ("text", "steps", "expected"),
    [
        ("hang:3 degenerate", 2, {"hang": "3", "degenerate": ""}),
        ("hang@speculative_num_steps=2", 2, {"hang": ""}),
        ("hang@speculative_num_steps=2", 5, {}),
        ("", 0, {}),
    ],
)
def test_modes_hold_where_their_conditions_do(text, steps, expected):
    found = modes.read({"FAKE_SGLANG_MODE": text}, {"speculative_num_steps": steps})
    assert found == expected


def test_a_mode_can_hold_once_and_come_from_a_file(tmp_path):
    file = tmp_path / "modes"
    file.write_text(f"crash-at-start@once={tmp_path}/seen")
    env = {"FAKE_SGLANG_MODE_FILE": str(file)}
    assert modes.read(env, {}) == {"crash-at-start": ""}
    assert modes.read(env, {}) == {}
    with pytest.raises(SystemExit, match="unknown mode"):
        modes.read({"FAKE_SGLANG_MODE": "explode"}, {})


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--tensor-parallel-size=2"], {"tp_size": 2}),
        (["--trust-remote-code", "--port", "1"], {"trust_remote_code": True, "port": 1}),
        (["--cuda-graph-bs", "1", "2"], {"cuda_graph_bs_decode": [1, 2]}),
        (["--json-model-override-args", '{"a": -1}'], {"json_model_override_args": '{"a": -1}'}),
        (["--schedule-conservativeness", "0.5"], {"schedule_conservativeness": 0.5}),
        (["--base-gpu-id", "-1"], {"base_gpu_id": -1}),
    ],
)
def test_command_lines(argv, expected):
    given, _, _ = arguments.parse(["--model-path", "m", *argv])
    assert given == {"model_path": "m", **expected}
