"""Launches asked for: complete blocks; later cells stand beside the reference of their own epoch."""

from quietgate.files import write_json
from quietgate.steps.study import study_record
from quietgate.study import Study
from quietgate.study.earlier import history_of
from quietgate.study.epochs import Asked, lay_out


def names(asked):
    return [f"{a.cell}{a.block}/{a.epoch}" for a in asked]


def test_a_new_study_is_one_epoch_of_complete_blocks():
    assert names(lay_out(["r", "a"], "r", 2, [])) == ["r1/1", "a1/1", "r2/1", "a2/1"]


def test_nothing_changes_when_nothing_is_added():
    first = lay_out(["r", "a"], "r", 2, [])
    assert lay_out(["r", "a"], "r", 2, first) == first


def test_a_cell_added_later_brings_launches_of_the_reference():
    first = lay_out(["r", "a"], "r", 2, [])
    second = lay_out(["r", "a", "b"], "r", 2, first)
    assert second[:4] == first
    assert names(second[4:]) == ["r3/2", "b3/2", "r4/2", "b4/2"]
    assert lay_out(["r", "a", "b"], "r", 2, second) == second
    third = lay_out(["c", "r", "a", "b"], "r", 2, second)
    assert names(a for a in third if a.epoch == 3) == ["c5/3", "r5/3", "c6/3", "r6/3"]


def test_more_launches_add_complete_blocks_to_each_epoch():
    second = lay_out(["r", "a", "b"], "r", 1, lay_out(["r", "a"], "r", 1, []))
    grown = lay_out(["r", "a", "b"], "r", 2, second)
    assert set(second) < set(grown)
    assert len(set(grown) - set(second)) == 4
    assert {(a.block, a.epoch) for a in grown} == {(1, 1), (2, 2), (3, 1), (4, 2)}


def test_fewer_launches_and_fewer_cells():
    second = lay_out(["r", "a", "b"], "r", 2, lay_out(["r", "a"], "r", 2, []))
    assert names(lay_out(["r", "a", "b"], "r", 1, second)) == ["r1/1", "a1/1", "r3/2", "b3/2"]
    assert names(lay_out(["r", "a"], "r", 2, second)) == ["r1/1", "a1/1", "r2/1", "a2/1"]


def test_a_new_reference_is_its_own_epochs_reference():
    first = [Asked("a", 1, 1)]
    assert names(lay_out(["a", "r"], "r", 1, first)) == ["a1/1", "r2/2"]


def test_a_cell_that_is_compared_with_another_brings_launches_of_both():
    first = lay_out(["r", "a"], "r", 1, [])
    second = lay_out(["r", "a", "x"], "r", 1, first, {"x": "a"})
    assert names(a for a in second if a.epoch == 2) == ["r2/2", "a2/2", "x2/2"]
    assert names(lay_out(["r", "a", "x"], "r", 1, [], {"x": "a"})) == ["r1/1", "a1/1", "x1/1"]


def test_a_later_epoch_keeps_its_blocks_while_it_is_measured(base, tmp_path):
    first = lay_out(["r", "a"], "r", 2, [])
    second = lay_out(["r", "a", "b"], "r", 2, first)
    write_study(base, tmp_path, second)
    for asked in first:  # of the second epoch nothing has ended yet
        end(tmp_path, asked)
    assert lay_out(["r", "a", "b"], "r", 2, history_of(tmp_path)) == second
    (tmp_path / "cells/a/l1/exit.json").unlink()  # a failed launch that is repeated
    assert lay_out(["r", "a", "b"], "r", 2, history_of(tmp_path)) == second


def test_a_first_epoch_that_is_not_finished_takes_new_cells_in(base, tmp_path):
    write_study(base, tmp_path, lay_out(["r", "a"], "r", 1, []))
    assert history_of(tmp_path) == ()


def test_a_cell_that_left_the_grid_comes_back_to_its_place(base, tmp_path):
    first = lay_out(["r", "a", "b"], "r", 2, [])
    for asked in first:
        end(tmp_path, asked)
    without = lay_out(["r", "a"], "r", 2, first)
    write_study(base, tmp_path, without)
    assert lay_out(["r", "a"], "r", 2, history_of(tmp_path)) == without
    assert lay_out(["r", "a", "b"], "r", 2, history_of(tmp_path)) == first
    # With a launch less it is no longer the cell that was measured beside the others.
    (tmp_path / "cells/b/l2/exit.json").unlink()
    assert names(lay_out(["r", "a", "b"], "r", 2, history_of(tmp_path)))[4:] == [
        "r3/2", "b3/2", "r4/2", "b4/2",
    ]  # fmt: skip


def test_a_cell_of_a_later_epoch_comes_back_to_its_place(base, tmp_path):
    first = lay_out(["r", "a"], "r", 1, [])
    second = lay_out(["r", "a", "b"], "r", 1, first)
    for asked in second:
        end(tmp_path, asked)
    write_study(base, tmp_path, lay_out(["r", "a"], "r", 1, second))
    assert lay_out(["r", "a", "b"], "r", 1, history_of(tmp_path)) == second


def end(results, asked):
    """The end of a launch."""
    path = results / "cells" / asked.cell / f"l{asked.block}" / "exit.json"
    write_json(path, {})


def write_study(base, results, launches):
    """study.json of which only the launches are looked at."""
    some = study_record(Study.from_config(base))
    some["launches"] = [
        {"cell": a.cell, "launch": f"l{a.block}", "block": a.block, "epoch": a.epoch} for a in launches
    ]
    write_json(results / "study.json", some)
