"""Two tensor-parallel ranks of the real SGLang on CPU, on a widened model, after the all-reduce check."""

import json
import os
import subprocess

import pytest
import yaml
from chain.runs import ROOT, Run

from quietgate import records

pytestmark = [pytest.mark.embedded, pytest.mark.slow]

RESOURCES = ROOT / "resources"
TINY = RESOURCES / "tiny-models"
CELL = "steps-2_nccl-ll-ring"
PROFILE = {"NCCL_PROTO": "LL", "NCCL_ALGO": "Ring", "NCCL_NTHREADS": "512"}


@pytest.mark.skipif(
    not (TINY / "models.json").exists(),
    reason="the embedded server has not been built: run `make study` first",
)
def test_two_ranks_of_a_widened_model(tmp_path):
    hidden = 2 * json.loads((TINY / "target" / "config.json").read_text())["hidden_size"]
    wide = tmp_path / "wide"
    script = ROOT / "workflow" / "embedded" / "make_wide_models.py"
    python = RESOURCES / "sglang-cpu" / "bin" / "python"
    words = [python, script, "--tiny", TINY, "--out", wide, "--hidden", str(hidden), "--dtype", "float32"]
    subprocess.run(words, check=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"})

    run = Run(tmp_path / "study")
    run.config = yaml.safe_load((ROOT / "config" / "config.yaml").read_text())
    run.config["server"]["args"] |= {"model-path": str(wide / "target"), "tp-size": 2}
    # SGLang binds ranks to sockets unless it is told to which cores.
    cores = sorted(os.sched_getaffinity(0))
    run.config["server"]["env"]["SGLANG_CPU_OMP_THREADS_BIND"] = f"{cores[0]}|{cores[-1]}"
    run.config["server"]["speculative"]["draft_model_path"] = str(wide / "eagle3")
    run.edit(
        grid__steps=[2],
        grid__nccl=["ll-ring"],
        reference={},
        benchmark__prompt_count=2,
        benchmark__repeats=1,
        benchmark__max_new_tokens=64,
        capture__enabled=False,
        all_reduce={"enabled": True},
    )
    (run.folder / "resources").symlink_to(RESOURCES)
    passed = any(run(timeout_s=600, target="measured") == 0 and _passed(run) for _ in range(2))
    assert passed, run.text()[-4000:]
    run.nothing_left()

    check = records.read(run.results / f"cells/{CELL}/l1/all_reduce.json", "all_reduce")
    assert (check["backend"], check["clock"]) == ("gloo", "wall")
    # Of one token, which the draft sends, and of the three that a verify pass sends, in float32.
    assert [s["bytes"] for s in check["sizes"]] == [4 * hidden, 3 * 4 * hidden]
    gate = run.record(CELL, "gate")
    ranks = next(s for s in gate["stages"] if s["name"] == "environment")["evidence"]["ranks"]
    assert len(ranks) == len(check["ranks"]) == 2
    for rank in check["ranks"]:
        assert rank["environment"].items() >= PROFILE.items()
        assert rank["environment"].items() >= {"NCCL_CUMEM_ENABLE": "0"}.items()
    nccl = next(s for s in gate["stages"] if s["name"] == "nccl")
    assert nccl["evidence"]["profile_verdict"] == "not_exercised"
    [one] = run.record(CELL, "benchmark")["passes"]
    assert 1.3 < one["tokens_per_cycle"] < 2.9, "the draft drafts as it did when it was narrow"


def _passed(run: Run) -> bool:
    return all(run.record(CELL, n)["status"] == "passed" for n in ("all_reduce", "gate", "benchmark", "exit"))
