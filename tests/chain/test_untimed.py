"""A study with a timer on: the cell without it is launched, proved, compared, shared and kept."""

import pandas as pd
import pytest

from chain.runs import every
from quietgate.records import read
from quietgate.share.verify import verify

pytestmark = pytest.mark.workflow
CELL = "steps-2_nccl-default_timers-off"


def test_the_cell_without_timers_runs_beside_its_twin(run):
    # On a CPU the per-cycle timer is the only one; the fake server has no hooks for it, only its switch.
    run.edit(server__env={"EAGLE3_PROFILE": 1})
    assert run() == 0, run.text()[-3000:]
    assert run.jobs()["launch"] == 3
    assert all(read(path, "gate")["status"] == "passed" for path in every(run, "gate"))
    untimed = run.record(CELL, "launch")
    assert "EAGLE3_PROFILE" not in untimed["server"]["processes"][0]["env"]
    environment = next(s for s in run.record(CELL, "gate")["stages"] if s["name"] == "environment")
    assert environment["verdict"] == "passed"
    [row] = pd.read_csv(run.results / "tables/timer_cost.csv").to_dict("records")
    assert (row["cell"], row["untimed"]) == ("steps-2_nccl-default", CELL)
    assert "the per-cycle timer on" in row["text"]
    assert CELL not in (run.results / "tables/cells.csv").read_text()
    assert verify(run.results) == []
    assert run(log="again") == 0
    assert run.finished("again"), run.text("again")[-2000:]
