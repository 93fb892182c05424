"""The profiler pass against the fake server."""

from __future__ import annotations

import contextlib
import gzip
import json
import threading
import time

import pytest
from fake_sglang.running import speculation

from quietgate.errors import CellFailed, Interrupted
from quietgate.files import sha256
from quietgate.inspect.trace import ranks
from quietgate.measure import capture as profiler
from quietgate.measure import exchange
from quietgate.measure.prompts import Prompt

pytestmark = pytest.mark.process

PROMPTS = [Prompt("a", "code", "def sort(items):"), Prompt("b", "prose", "Once upon a time")]
SAMPLING = {"temperature": 0, "max_new_tokens": 32, "ignore_eos": True}


def capture(url, folder, cycles=12, timeout_s=60, check=lambda: None):
    return profiler.capture(url, folder, PROMPTS, SAMPLING, cycles, timeout_s, check)


@pytest.mark.parametrize(
    ("flags", "files", "stages"),
    [
        (["--device", "cuda", "--tp-size", "2", *speculation(2)], 2, {"draft", "verify", "draft_extend"}),
        (["--device", "cpu", *speculation(2)], 1, {"draft", "verify", "draft_extend"}),
        (["--device", "cpu"], 1, {"decode"}),
    ],
    ids=["two GPUs", "CPU", "CPU without speculation"],
)
def test_traces_of_all_ranks_whole_and_with_their_digests(fake_server, tmp_path, flags, files, stages):
    server = fake_server(*flags)
    found = capture(server.url, tmp_path / "trace")
    assert len(found["trace_files"]) == files
    for file in found["trace_files"]:
        path = tmp_path / "trace" / file["name"]
        assert (file["sha256"], file["bytes"]) == (sha256(path), path.stat().st_size)
    assert found["cycles_requested"] == 12
    assert 0 < found["profiler_s"] < 60
    assert all(r["phase"] == "capture" and r["ok"] for r in found["requests"])
    assert {r["prompt_id"] for r in found["requests"]} <= {"a", "b"}
    read = ranks.read([tmp_path / "trace" / f["name"] for f in found["trace_files"]])
    assert set(read["spans"]) >= stages
    assert read["problems"] == []


def test_older_traces_in_the_folder_are_not_this_pass(fake_server, tmp_path):
    server = fake_server("--device", "cpu")
    old = tmp_path / "trace" / "1-TP-0.trace.json.gz"
    old.parent.mkdir()
    old.write_bytes(gzip.compress(b"{}"))
    assert old.name not in [f["name"] for f in capture(server.url, tmp_path / "trace")["trace_files"]]


def test_a_profiler_left_running_is_stopped_first(fake_server, tmp_path):
    server = fake_server("--device", "cpu")
    left = {"output_dir": str(tmp_path / "left"), "activities": ["CPU"]}
    assert exchange.post(f"{server.url}/start_profile", 10, left).status == 200
    assert len(capture(server.url, tmp_path / "trace")["trace_files"]) == 1


def test_a_server_that_dies_is_a_failed_cell(fake_server, tmp_path):
    server = fake_server("--device", "cpu", mode="crash-mid-request")
    with pytest.raises(CellFailed, match="profiler: "):
        capture(server.url, tmp_path / "trace", cycles=10**6, timeout_s=30)


def test_stop_check_is_asked_all_along(fake_server, tmp_path):
    server = fake_server("--device", "cpu")
    began = time.monotonic()

    def check():
        if time.monotonic() - began > 0.5:
            raise Interrupted("told to stop")

    with pytest.raises(Interrupted):
        capture(server.url, tmp_path / "trace", cycles=10**6, check=check)


def test_a_trace_that_stays_cut_is_named_at_the_deadline(fake_server, tmp_path, monkeypatch):
    server = fake_server("--device", "cpu")
    folder = tmp_path / "trace"
    stop = threading.Event()

    def cut():
        while not stop.wait(0.01):
            for path in folder.glob("*.gz"):
                with contextlib.suppress(OSError):
                    data = path.read_bytes()
                    if data[-4:] != b"CUT!":
                        path.write_bytes(data[:-10] + b"CUT!")

    thread = threading.Thread(target=cut)
    thread.start()
    try:
        monkeypatch.setattr(profiler, "POLL_S", 0.5)
        with pytest.raises(CellFailed, match=r"0 of 1 traces complete after 4 s.*unfinished: .*TP-0"):
            capture(server.url, folder, timeout_s=4)
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize(
    ("info", "ranks"),
    [
        ({}, None),
        ({"tp_size": 8}, 8),
        ({"tp_size": 4, "pp_size": 2, "dp_size": 2}, 16),
        ({"tp_size": 8, "dp_size": 4, "enable_dp_attention": True}, 8),
        ({"tp_size": 16, "nnodes": 2}, 8),
    ],
)
def test_how_many_ranks_write_here(info, ranks):
    assert profiler._ranks_here(info) == ranks


def test_a_file_is_whole_only_at_its_end(tmp_path):
    path = tmp_path / "a.trace.json.gz"
    data = gzip.compress(json.dumps({"traceEvents": []}).encode())
    for end, whole in ((len(data) - 1, False), (len(data), True)):
        path.write_bytes(data[:end])
        assert profiler._whole(path) is whole


@pytest.mark.parametrize(("nodes", "files"), [(2, 3), (1, 2)])
def test_ranks_of_further_nodes_that_write_here_are_waited_for(tmp_path, nodes, files):
    """With several nodes two ranks are the least: the third, of a process of this machine, comes later."""
    info = {"tp_size": 2 * nodes, "nnodes": nodes}

    class Driver:
        done = ({"ok": True},)

        def stop(self):
            late.start() if not late.is_alive() and not late.finished.is_set() else None

        def failed_only(self):
            return False

    def write(rank):
        (tmp_path / f"1-TP-{rank}.trace.json.gz").write_bytes(gzip.compress(b'{"traceEvents": []}'))

    late = threading.Timer(0.8, write, [2])
    write(0)
    write(1)
    found = profiler._await_traces(
        "http://127.0.0.1:9", tmp_path, set(), profiler._ranks_here(info), profiler._several_nodes(info),
        Driver(), 30.0, lambda: None,
    )  # fmt: skip
    late.join()
    assert len(found) == files
