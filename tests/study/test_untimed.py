"""The cell without timers: which it is, when there is one, and that nothing else changes for it."""

import pytest

from quietgate.errors import BadConfig
from quietgate.files import write_json
from quietgate.steps.study import study_record
from quietgate.study import Study
from quietgate.study.earlier import history_of
from quietgate.study.epochs import Asked
from quietgate.study.plan import lines


def study(base, **timer_cost):
    return Study.from_config({**base, "replicates": 2, "timer_cost": timer_cost})


def test_it_is_the_twin_of_one_cell_with_every_timer_off(base):
    base["server"]["env"] = {"EAGLE3_PROFILE": 1, "OTHER": 1}
    s = study(base)
    assert s.untimed.id == "steps-2_nccl-default_timers-off"
    twin, without = s.resolved(s.cell("steps-2_nccl-default")), s.resolved(s.untimed)
    assert twin["workflow_env"]["SGLANG_ENABLE_METRICS_DEVICE_TIMER"] == "1"
    assert "QUIETGATE_CYCLES" in twin["workflow_env"]
    assert not {"SGLANG_ENABLE_METRICS_DEVICE_TIMER", "QUIETGATE_CYCLES", "PYTHONPATH"} & set(
        without["workflow_env"]
    )
    process = without["processes"][0]
    assert process["env"] == {"OTHER": "1"}
    assert set(process["unset"]) == {"SGLANG_ENABLE_METRICS_DEVICE_TIMER", "EAGLE3_PROFILE"}
    assert process["argv"] == twin["processes"][0]["argv"]
    assert s.digests(s.untimed)["server"] != s.digests(s.cell("steps-2_nccl-default"))["server"]


def test_a_timer_that_the_user_switched_on_is_off_there_too(base):
    base["server"]["env"] = {"SGLANG_ENABLE_METRICS_DEVICE_TIMER": "true"}
    assert "SGLANG_ENABLE_METRICS_DEVICE_TIMER" not in str(
        {k: v for k, v in study(base).resolved(study(base).untimed).items() if k != "processes"}
    )


@pytest.mark.parametrize(
    ("steps", "asked", "found"),
    [([0, 1, 3, 5], {}, 3), ([0, 1], {}, 1), ([0], {}, 0), ([0, 1, 3, 5], {"steps": 5}, 5)],
)
def test_which_cell(base, steps, asked, found):
    base["grid"]["steps"] = steps
    assert study(base, **asked).untimed.id == f"steps-{found}_nccl-default_timers-off"


def test_the_profile_can_be_named(base):
    assert study(base, nccl="ll-ring").untimed.nccl == "ll-ring"
    base["reference"] = {"nccl": "ll-ring"}
    assert study(base).untimed.nccl == "ll-ring"


@pytest.mark.parametrize(("asked", "key"), [({"steps": 3}, "steps: 3"), ({"nccl": "x"}, "nccl: 'x'")])
def test_a_cell_outside_the_grid_is_refused(base, asked, key):
    with pytest.raises(BadConfig, match=f"timer_cost.{key} is not in grid"):
        study(base, **asked)


def test_there_is_none_where_no_timer_runs(base):
    base["server"]["args"]["device"] = "cpu"
    assert study(base).untimed is None
    base["server"]["env"] = {"EAGLE3_PROFILE": 1}
    assert study(base).untimed is not None
    assert study(base, enabled=False).untimed is None


def test_every_block_has_it_and_the_order_of_the_others_is_as_without(base):
    s, plain = study(base), study(base, enabled=False)
    assert [x for x in s.launches if x.cell.timers] == list(plain.launches)
    extra = [x.block for x in s.launches if not x.cell.timers]
    assert extra == [1, 2]
    assert s.cells == plain.cells
    assert {c.id: s.digests(c) for c in s.cells} == {c.id: plain.digests(c) for c in plain.cells}


def test_a_study_that_was_finished_without_it_does_not_grow_unasked(base):
    finished = [Asked(c.id, block, 1) for block in (1, 2) for c in study(base, enabled=False).cells]
    old = Study(study(base).config, history=tuple(finished))
    assert old.untimed is None
    assert [(x.cell.id, x.block) for x in old.launches] == [
        (x.cell.id, x.block) for x in study(base, enabled=False).launches
    ]
    asked_for = Study(study(base, enabled=True).config, history=tuple(finished))
    assert {x.cell.id for x in asked_for.launches if x.epoch == 2} == {
        "steps-0_nccl-default",
        "steps-2_nccl-default",
        "steps-2_nccl-default_timers-off",
    }
    assert study(base).untimed is not None


def test_a_study_that_was_finished_with_it_keeps_it_when_its_grid_grows(base):
    base["grid"]["steps"] = [0, 5]
    finished = tuple(Asked(x.cell.id, x.block, x.epoch) for x in study(base).launches)
    base["grid"]["steps"] = [0, 2, 5]
    grown = Study(study(base).config, history=finished)
    assert grown.untimed.id == "steps-5_nccl-default_timers-off"
    assert {x.epoch for x in grown.launches if not x.cell.timers} == {1}
    # Another one, by name, is another wish.
    asked_for = Study(study(base, steps=2).config, history=finished)
    assert {x.epoch for x in asked_for.launches if not x.cell.timers} == {2}


@pytest.mark.parametrize("named", [{"steps": 3}, {"nccl": "ll-ring"}])
def test_to_name_the_cell_is_to_ask_for_it(base, named):
    base["grid"]["steps"] = [0, 2, 3]
    finished = [Asked(x.cell.id, x.block, 1) for x in study(base).launches]
    assert Study(study(base).config, history=tuple(finished)).untimed is not None
    edited = Study(study(base, **named).config, history=tuple(finished))
    assert edited.untimed is not None
    assert edited.untimed.id in {x.cell.id for x in edited.launches}


def test_the_plan_says_what_it_is_for(base, tmp_path):
    text = "\n".join(lines(study(base), tmp_path))
    assert "steps-2_nccl-default_timers-off  <- no cell of the grid: shows what the timers cost" in text
    assert "unset SGLANG_ENABLE_METRICS_DEVICE_TIMER" in text
    assert "5 cells x 2 launches = 10 launches" in text


def test_switched_off_and_no_longer_it_is_where_it_was(base, tmp_path):
    first = study(base)
    for launch in first.launches:
        write_json(tmp_path / "cells" / launch.cell.id / launch.id / "exit.json", {})
    write_json(tmp_path / "study.json", study_record(first))

    def edited(**timer_cost):
        found = Study(study(base, **timer_cost).config, history=history_of(tmp_path))
        write_json(tmp_path / "study.json", study_record(found))
        return found

    assert edited(enabled=False).untimed is None
    assert edited().launches == first.launches, "what was measured of it counts again"
