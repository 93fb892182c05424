"""How far a boot got, whether it still works, and what a graph capture covers."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from quietgate.gate import progress
from quietgate.gate.cause import of_death
from quietgate.gate.cuda_graphs import _draft_graph, largest_batch
from quietgate.gate.http import _meaning
from quietgate.gate.logtail import LogTail
from quietgate.gate.port import listening
from quietgate.gate.progress import Progress, last_stage
from quietgate.serve import processes

BOOT = """\
[2026-11-29 17:00:00] server_args=ServerArgs(model_path='m', tp_size=2)
[2026-11-29 17:00:20 TP0] Init torch distributed begin.
[2026-11-29 17:00:21 TP0] Init torch distributed ends. elapsed=1.37 s, mem usage=0.97 GB
[2026-11-29 17:00:25 TP1] Load weight begin. avail mem=138.28 GB
[2026-11-29 17:00:25 TP1] Load weight end. elapsed=0.21 s
[2026-11-29 17:00:27 TP0] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 65536
[2026-11-29 17:00:27 TP0] Capture target verify CUDA graph begin. backend=full, bs=[1, 2]
"""


@pytest.mark.parametrize(
    ("lines", "stage"),
    [
        (0, "started"),
        (1, "arguments parsed"),
        (2, "joining the ranks"),
        (4, "loading weights"),
        (6, "KV cache allocated"),
        (7, "capturing CUDA graphs"),
    ],
)
def test_the_last_stage_of_a_boot(lines: int, stage: str) -> None:
    text = "\n".join(BOOT.splitlines()[:lines])
    assert last_stage(text)[0] == stage


@pytest.mark.parametrize(
    ("line", "stage"),
    [
        ("Capture cuda graph begin. This can take up to several minutes.", "capturing CUDA graphs"),
        ("Capture draft extend CUDA graph end. elapsed=3.29 s", "CUDA graphs captured"),
        ("INFO:     Uvicorn running on http://127.0.0.1:8000", "HTTP server up"),
        ("The server is fired up and ready to roll!", "ready"),
    ],
)
def test_stages_of_older_and_newer_releases(line: str, stage: str) -> None:
    assert last_stage(f"[2026-11-29 17:00:00] {line}")[0] == stage


def progress_of(folder: Path, pid: int) -> Progress:
    live: Any = SimpleNamespace(instance_dir=folder, log=folder / "server.log")
    found = processes.identity(pid)
    assert found is not None
    return Progress(live, [found])


@pytest.mark.process
@pytest.mark.parametrize(
    ("work", "stalls"),
    [
        ("import time; time.sleep(60)", True),
        # A rank that spins for another one is busy, and still gets nowhere.
        ("while True: pass", True),
        ("import time\nkeep = []\nwhile True: keep.append(b'x' * (1 << 22)); time.sleep(.1)", False),
        ("import time\nwhile True: open('/dev/zero', 'rb').read(1 << 20); time.sleep(.05)", False),
    ],
)
def test_silence_is_no_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str, stalls: bool) -> None:
    monkeypatch.setattr(progress, "SAMPLE_S", 0.1)
    child = subprocess.Popen([sys.executable, "-c", work])
    try:
        time.sleep(0.5)  # the interpreter's own start is work
        watched = progress_of(tmp_path, child.pid)
        watched.stalled_s()
        most = 0.0
        end = time.monotonic() + 2.5
        while time.monotonic() < end:
            most = max(most, watched.stalled_s())
            time.sleep(0.05)
    finally:
        child.kill()
        child.wait()
    assert (most > 1.5) is stalls


@pytest.mark.process
def test_a_growing_log_is_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SAMPLE_S", 0.0)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        time.sleep(0.5)
        watched = progress_of(tmp_path, child.pid)
        watched.stalled_s()
        time.sleep(0.3)
        assert watched.stalled_s() > 0.2
        (tmp_path / "nccl.host.1.log").write_text("Init COMPLETE\n")
        assert watched.stalled_s() < 0.2
        time.sleep(0.3)
        probe = '[2026-11-29 17:00:00] INFO:  127.0.0.1:5 - "GET /ready HTTP/1.1" 503'
        (tmp_path / "server.log").write_text(probe + "\n")  # our own doing
        assert watched.stalled_s() > 0.2
        with (tmp_path / "server.log").open("a") as f:
            f.write("[2026-11-29 17:00:01 TP0] Load weight begin.\n")
        assert watched.stalled_s() < 0.2
    finally:
        child.kill()
        child.wait()


def test_a_log_is_read_piece_by_piece(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    tail = LogTail(log)
    assert tail.new_text() == ""
    log.write_text("one\nThe server is fired up and re")
    assert "one" in tail.new_text()
    with log.open("a") as f:
        f.write("ady to roll!\n")
    assert "The server is fired up and ready to roll!" in tail.new_text()
    assert tail.new_text() == ""


@pytest.mark.parametrize(
    ("log", "code", "expected"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", 1, "out_of_memory"),
        ("nothing of note", -9, "killed"),
        ("nothing of note", 137, "killed"),
        ("nothing of note", -11, "segmentation_fault"),
        ("nothing of note", 1, "unknown"),
        ("nothing of note", None, "killed"),
    ],
)
def test_causes_of_death(tmp_path: Path, log: str, code: int | None, expected: str) -> None:
    path = tmp_path / "server.log"
    path.write_text(log + "\n")
    assert of_death(path, code).failure_class == expected


@pytest.mark.parametrize(
    ("effective", "log", "largest"),
    [
        ({"cuda_graph_config": {"decode": {"bs": [1, 2, 8]}}}, "", 8),
        ({"cuda_graph_bs": [1, 4], "cuda_graph_max_bs": 160}, "", 4),
        ({"cuda_graph_max_bs": 16}, "", 16),
        ({}, "Capture target verify CUDA graph begin. backend=full, bs=[1, 2, 4], avail", 4),
        ({}, "Capture draft extend CUDA graph begin. backend=full, bs=[1, 2, 4], avail", None),
        ({}, "", None),
    ],
)
def test_the_largest_captured_batch(effective: dict[str, Any], log: str, largest: int | None) -> None:
    assert largest_batch(effective, log) == largest


def test_the_drafts_own_graph() -> None:
    assert _draft_graph(2, ["target verify", "draft decode", "draft extend"]) == "captured"
    assert "extend pass" in _draft_graph(1, ["target verify", "draft extend"])
    assert "without speculation" in _draft_graph(0, [])
    assert "not seen" in _draft_graph(3, [])


def test_what_health_would_have_meant() -> None:
    assert "one generated token" in _meaning({})
    off = {"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "false"}
    assert "constant" in _meaning(off)


def test_nobody_listens_on_port_one() -> None:
    assert listening(1) == {}
