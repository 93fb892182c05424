"""The cycle timer on stub workers of each SGLang generation, in real processes, without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

TIMER = Path(__file__).parents[2] / "workflow" / "timer"

# Enough of torch: a clock that moves one millisecond per event, never ready before it is asked twice.
TORCH_CUDA = """
class _Event:
    clock = 0.0
    def __init__(self, enable_timing=False):
        assert enable_timing
        self.asked = 0
    def record(self):
        _Event.clock += 1.0
        self.at = _Event.clock
    def query(self):
        self.asked += 1
        return self.asked > 1
    def elapsed_time(self, end):
        return end.at - self.at
class cuda:
    Event = _Event
    capturing = False
    is_available = staticmethod(lambda: True)
    is_current_stream_capturing = staticmethod(lambda: cuda.capturing)
"""
TORCH_CPU = """
class cuda:
    is_available = staticmethod(lambda: False)
"""

V2 = """
class EagleDraftWorker:
    def draft(self, batch, *, with_topology=False): return "tree"
    def _draft_extend_for_decode(self, batch, result, *, kv_loc_plan=None): return "kv"
class EAGLEWorkerV2:
    tp_rank = 1
    def __init__(self): self.draft_worker = EagleDraftWorker()
    def verify(self, batch, pp_proxy_tensors=None, grammar_barrier=None): return "verified"
    def forward_batch_generation(self, batch, on_publish=None, grammar_barrier=None):
        if batch.decode:
            self.draft_worker.draft(batch)
            self.verify(batch, grammar_barrier=grammar_barrier)
            self.draft_worker._draft_extend_for_decode(batch, None)
        return "result"
    def on_verify_complete_cpu(self, num_correct_drafts_per_req, batch_size=0): return "told"
"""
# 0.5.11: no counts come back to the CPU.
V2_FIRST = V2.replace("    def on_verify_complete_cpu", "    def _unused")
V1 = """
class Output:
    accept_length_per_req_cpu = [2, 0]
class EAGLEWorker:
    def draft(self, batch): return "tree"
    def verify(self, batch, spec_info): return ("logits", Output(), "batch", True)
    def forward_draft_extend_after_decode(self, batch): pass
    def CYCLE(self, batch):
        if batch.decode:
            info = self.draft(batch)
            self.verify(batch, info)
            self.forward_draft_extend_after_decode(batch)
        return "result"
"""
PLAIN = """
class TpModelWorker:
    tp_rank = 0
    def forward_batch_generation(self, batch, **kwargs): return "result"
"""

DRIVE = {
    "v2": """
        from sglang.srt.speculative.eagle_worker_v2 import EAGLEWorkerV2
        w = EAGLEWorkerV2()
        for decode in (False, True, True, True):
            assert w.forward_batch_generation(Batch(decode), on_publish=None) == "result"
            if decode:
                assert w.on_verify_complete_cpu([1, 2], batch_size=2) == "told"
    """,
    "v2_first": """
        from sglang.srt.speculative.eagle_worker_v2 import EAGLEWorkerV2
        w = EAGLEWorkerV2()
        for decode in (False, True, True, True):
            w.forward_batch_generation(Batch(decode))
    """,
    "v1": """
        from sglang.srt.speculative.eagle_worker import EAGLEWorker
        w = EAGLEWorker()
        for decode in (False, True, True, True):
            assert w.CYCLE(Batch(decode)) == "result"
    """,
    "decode": """
        from sglang.srt.managers.tp_worker import TpModelWorker
        w = TpModelWorker()
        for decode in (False, True, True, True):
            assert w.forward_batch_generation(Batch(decode)) == "result"
    """,
}
BATCH = """
    class Mode:
        def __init__(self, name): self.name = name
    class Batch:
        def __init__(self, decode):
            self.decode, self.reqs, self.seq_lens = decode, [1, 2], [7, 8]
            self.forward_mode = Mode("DECODE" if decode else "EXTEND")
"""


def run(tmp_path: Path, drive: str, env: dict[str, str] | None = None, torch: str = TORCH_CPU, **files: str):
    """Run a child process in which a stub SGLang is imported and driven; its lines and output."""
    site = tmp_path / "site"
    for module, text in files.items():
        path = site / "sglang" / "srt" / f"{module.replace('.', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for folder in (p for p in (site / "sglang").rglob("*") if p.is_dir()):
        (folder / "__init__.py").touch()
    (site / "sglang" / "__init__.py").write_text("")
    (site / "torch.py").write_text(torch)
    variables = {
        "PYTHONPATH": f"{TIMER}{os.pathsep}{site}",
        "EAGLE3_PROFILE": "1",
        "QUIETGATE_CYCLES": str(tmp_path / "cycles.%p.jsonl"),
    } | (env or {})
    script = textwrap.dedent(BATCH) + textwrap.dedent(drive)
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | variables,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    lines: list[dict[str, Any]] = []
    for file in sorted(tmp_path.glob("cycles.*.jsonl")):
        lines += [json.loads(text) for text in file.read_text().splitlines()]
    return lines, done.stdout


def split(lines):
    hooks = [line for line in lines if line["event"] == "hooks"]
    return hooks, [line for line in lines if line["event"] == "cycle"]


V2_MODULE, V1_MODULE, PLAIN_MODULE = (
    "speculative.eagle_worker_v2",
    "speculative.eagle_worker",
    "managers.tp_worker",
)


def test_v2_times_every_stage_of_every_cycle(tmp_path):
    lines, _ = run(tmp_path, DRIVE["v2"], **{V2_MODULE: V2})
    hooks, cycles = split(lines)
    assert hooks[0]["worker"] == "v2"
    assert len(hooks[0]["attached"]) == 5
    assert hooks[0]["missing"] == []
    assert len(cycles) == 3, "the prefill is no cycle"
    for cycle in cycles:
        assert (cycle["bs"], cycle["tp_rank"], cycle["clock"]) == (2, 1, "cpu")
        assert cycle["accepted"] == [1, 2]
        assert all(cycle[f"{s}_ms"] >= 0 for s in ("draft", "verify", "extend", "worker"))
        assert cycle["worker_ms"] >= cycle["draft_ms"] + cycle["verify_ms"] + cycle["extend_ms"]
    assert cycles[0]["cycle_ms"] is None, "what came before it was a prefill"
    assert cycles[1]["cycle_ms"] >= cycles[0]["worker_ms"]


def test_cuda_events_are_polled_and_never_waited_for(tmp_path):
    lines, _ = run(tmp_path, DRIVE["v2"], torch=TORCH_CUDA, **{V2_MODULE: V2})
    _, cycles = split(lines)
    # The last events are not ready when the process ends: their cycle is lost, not waited for.
    assert len(cycles) == 2
    # Eight events a cycle: its start, two around each of three stages, its end.
    assert cycles[0] | {"t": 0} == {
        "event": "cycle",
        "t": 0,
        "bs": 2,
        "tp_rank": 1,
        "accepted": [1, 2],
        "draft_ms": 1.0,
        "verify_ms": 1.0,
        "extend_ms": 1.0,
        "worker_ms": 7.0,
        "cycle_ms": None,
        "clock": "cuda",
    }
    assert cycles[1]["cycle_ms"] == 8.0


def test_graph_capture_is_left_alone(tmp_path):
    drive = "import torch\n        torch.cuda.capturing = True\n" + DRIVE["v2"]
    lines, _ = run(
        tmp_path, drive.replace("import torch", "        import torch"), torch=TORCH_CUDA, **{V2_MODULE: V2}
    )
    hooks, cycles = split(lines)
    assert hooks[0]["missing"] == []
    assert cycles == []


def test_a_release_that_tells_no_counts_has_cycles_without_them(tmp_path):
    lines, _ = run(tmp_path, DRIVE["v2_first"], **{V2_MODULE: V2_FIRST})
    hooks, cycles = split(lines)
    assert hooks[0]["missing"] == [
        "sglang.srt.speculative.eagle_worker_v2.EAGLEWorkerV2.on_verify_complete_cpu"
    ]
    assert [c["accepted"] for c in cycles] == [None] * 3
    assert all("verify_ms" in c for c in cycles)


@pytest.mark.parametrize("cycle", ["forward_batch_generation", "forward_batch_speculative_generation"])
def test_v1_under_both_names_of_its_cycle(tmp_path, cycle):
    lines, _ = run(tmp_path, DRIVE["v1"].replace("CYCLE", cycle), **{V1_MODULE: V1.replace("CYCLE", cycle)})
    hooks, cycles = split(lines)
    assert hooks[0]["worker"] == "v1"
    assert hooks[0]["attached"][-1] == f"EAGLEWorker.{cycle}"
    assert [c["accepted"] for c in cycles] == [[2, 0]] * 3
    assert all(c["extend_ms"] >= 0 for c in cycles)


def test_without_speculation_a_decode_forward_is_the_cycle(tmp_path):
    lines, _ = run(tmp_path, DRIVE["decode"], **{PLAIN_MODULE: PLAIN})
    _, cycles = split(lines)
    assert len(cycles) == 3
    assert all("verify_ms" not in c and c["decode_ms"] >= 0 and c["bs"] == 2 for c in cycles)
    assert cycles[0]["cycle_ms"] is None
    assert cycles[2]["cycle_ms"] > 0


def test_a_renamed_worker_is_named_and_the_server_runs(tmp_path):
    renamed = V2.replace("class EAGLEWorkerV2", "class EAGLEWorkerV3")
    drive = """
        import sglang.srt.speculative.eagle_worker_v2 as m
        print(m.EAGLEWorkerV3().forward_batch_generation(Batch(True)))
    """
    lines, out = run(tmp_path, drive, **{V2_MODULE: renamed})
    hooks, cycles = split(lines)
    assert out == "result\n"
    assert cycles == []
    assert [m.rsplit(".", 1)[-1] for m in hooks[0]["missing"]] == [
        "verify",
        "forward_batch_generation",
        "on_verify_complete_cpu",
    ]


@pytest.mark.parametrize(
    "env", [{"EAGLE3_PROFILE": "0"}, {"EAGLE3_PROFILE": ""}, {"QUIETGATE_CYCLES": ""}], ids=str
)
def test_off_unless_switched_on(tmp_path, env):
    drive = DRIVE["v2"] + "\n        import sys; print('quietgate_cycle_timer' in sys.modules)"
    lines, out = run(tmp_path, drive, env, **{V2_MODULE: V2})
    assert lines == []
    assert out == "False\n"


def test_a_file_that_cannot_be_written_does_not_stop_the_server(tmp_path):
    env = {"QUIETGATE_CYCLES": str(tmp_path / "no" / "folder" / "%p")}
    lines, _ = run(tmp_path, DRIVE["v2"], env, **{V2_MODULE: V2})
    assert lines == []


def test_an_existing_sitecustomize_still_runs(tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text("print('the distribution speaks')\n")
    env = {"PYTHONPATH": os.pathsep.join([str(TIMER), str(tmp_path / "site"), str(other)])}
    lines, out = run(tmp_path, DRIVE["v2"], env, **{V2_MODULE: V2})
    assert out == "the distribution speaks\n"
    assert len(split(lines)[1]) == 3


def test_the_entry_point_is_found_by_path_and_hooks_once(tmp_path):
    drive = f"""
        from importlib.metadata import entry_points
        found = [e for e in entry_points(group="sglang.srt.plugins") if e.name == "quietgate_cycle_timer"]
        found[0].load()()          # as SGLang's plugin loader does; sitecustomize was here before
        {DRIVE["v2"].strip()}
    """
    lines, _ = run(tmp_path, drive, **{V2_MODULE: V2})
    hooks, cycles = split(lines)
    assert len(hooks) == 1
    assert len(cycles) == 3


def test_the_plugin_alone_hooks_workers_imported_before_it(tmp_path):
    drive = f"""
        import sglang.srt.speculative.eagle_worker_v2, sys
        assert "quietgate_cycle_timer" not in sys.modules
        sys.path.insert(0, {str(TIMER)!r})
        import quietgate_cycle_timer; quietgate_cycle_timer.register()
        {DRIVE["v2"].strip()}
    """
    env = {"PYTHONPATH": str(tmp_path / "site")}
    lines, _ = run(tmp_path, drive, env, **{V2_MODULE: V2})
    assert len(split(lines)[1]) == 3
