"""The whole chain on the real SGLang: two cells on CPU, from launch to report."""

import json
from pathlib import Path

import pytest
import yaml
from chain.runs import ROOT, Run

pytestmark = [pytest.mark.embedded, pytest.mark.slow]

RESOURCES = ROOT / "resources"


@pytest.mark.skipif(
    not (RESOURCES / "tiny-models" / "models.json").exists(),
    reason="the embedded server has not been built: run `make study` first",
)
def test_two_cells_on_real_servers(tmp_path):
    run = Run(tmp_path / "study")
    run.config = yaml.safe_load((ROOT / "config" / "config.yaml").read_text())
    run.edit(grid__steps=[0, 2], grid__nccl=["ll-ring"], reference={}, benchmark__prompt_count=4)
    (run.folder / "resources").symlink_to(RESOURCES)
    # A machine without a free core spoils a timed pass now and then; the next run repeats just that cell.
    passed = any(run(timeout_s=600) == 0 for _ in range(3))
    assert passed, run.text()[-4000:]
    run.nothing_left()

    plain, speculative = (_launch(run, steps) for steps in (0, 2))
    for found in (plain, speculative):
        assert {r["status"] for r in found.values()} == {"passed"}
        stages = {s["name"]: s for s in found["gate"]["stages"]}
        assert stages["environment"]["verdict"] == "passed", "NCCL_PROTO=LL is in the rank's environment"
        assert stages["nccl"]["evidence"]["profile_verdict"] == "not_exercised"
    per_cycle = [
        [p["tokens_per_cycle"] for p in found["benchmark"]["passes"]] for found in (plain, speculative)
    ]
    assert per_cycle[0] == [1.0] * 3
    assert all(1.3 < value < 2.9 for value in per_cycle[1]), per_cycle
    assert len(set(per_cycle[1])) == 1, "greedy: every repeat accepts alike"

    tables = json.loads((run.results / "tables" / "tables.json").read_text())
    assert tables["drifts"] == []
    assert tables["agreement"]
    assert all(a["same"] for a in tables["agreement"]), "speculation does not change the text"
    report = (run.results / "report.html").read_text()
    assert "not exercised" in report


def _launch(run: Run, steps: int) -> dict[str, dict]:
    cell = f"steps-{steps}_nccl-ll-ring"
    folder: Path = run.results / "cells" / cell / "l1"
    names = ("launch", "gate", "benchmark", "capture", "exit", "profile")
    return {name: json.loads((folder / f"{name}.json").read_text()) for name in names}
