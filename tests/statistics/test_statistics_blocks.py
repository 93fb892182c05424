"""Launches are compared inside the block in whose time they were measured."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from simulated import World, cells_table, study_record

from quietgate.analyse.blocks import Moved, out_of_time
from quietgate.analyse.launches import launch_values
from quietgate.analyse.statistics import statistics

GRID = [(steps, nccl) for nccl in ("tuned", "untuned") for steps in (0, 2)]
REFERENCE = "steps-0_nccl-untuned"
MINUTE = 60.0


def test_launches_in_order_stay():
    assert out_of_time([1, 1, 2, 2, 3, 3], [0, 1, 2, 3, 4, 5]) == []
    assert out_of_time([], []) == []


def test_the_order_of_the_sequence_is_of_no_account():
    assert out_of_time([3, 1, 2, 1, 3, 2], [5, 0, 2, 1, 4, 3]) == []


def test_a_launch_repeated_at_the_end_belongs_to_the_last_block():
    assert out_of_time([1, 1, 2, 2, 3, 3, 1], [0, 1, 2, 3, 4, 5, 6]) == [Moved(6, 1, 3)]


def test_a_launch_repeated_in_between_belongs_to_the_launch_nearest_in_time():
    blocks, started = [1, 1, 1, 2, 2, 2, 3, 3, 3], [0, 1, 6.6, 3, 4, 5, 7, 8, 9]
    assert out_of_time(blocks, started) == [Moved(2, 1, 3)]
    started[2] = 5.2
    assert out_of_time(blocks, started) == [Moved(2, 1, 2)]


def test_servers_side_by_side_may_overlap_at_the_ends_of_blocks():
    assert out_of_time([1, 1, 2, 1, 2, 2, 2], [0, 1, 2, 2.5, 3, 4, 5]) == []


def test_a_launch_measured_ahead_of_its_block_is_moved_too():
    assert out_of_time([1, 1, 1, 2, 2, 2, 3, 3, 3], [1, 2, 3, 4, 5, 6, 0, 8, 9]) == [Moved(6, 3, 1)]


def test_a_time_that_is_not_known_moves_nothing():
    assert out_of_time([1, 2, 1], [0, 1, math.nan]) == []


def test_launches_that_began_at_once_are_in_order_whatever_their_order_in_the_sequence():
    assert out_of_time([2, 1], [0, 0]) == out_of_time([1, 2], [0, 0]) == []
    # Two runs are as long here; which is taken does not hang on the order in which launches are given.
    assert out_of_time([3, 4, 5], [2, 0, 2]) == [Moved(1, 4, 3)]
    assert out_of_time([5, 4, 3], [2, 0, 2]) == [Moved(1, 4, 3)]


def test_a_whole_block_that_ran_at_another_time_stays_a_block():
    blocks, started = [1, 1, 1, 2, 2, 2, 3, 3, 3], [20, 21, 22, 3, 4, 5, 6, 7, 8]
    assert out_of_time(blocks, started) == []
    # A launch of block 2 repeated in its midst ends it as a whole: all go to the one in order before them.
    started[3] = 21.5
    assert {m.block for m in out_of_time(blocks, started)} == {3}
    # Beside it, it is compared inside it.
    started[3] = 23
    assert out_of_time(blocks, started) == [Moved(3, 2, 1)]
    assert out_of_time([1, 2, 2], [9, 2, 3]) == [Moved(0, 1, 2)], "one launch is no block to be compared in"


@pytest.mark.parametrize("seed", range(50))
def test_any_times_give_blocks_that_exist_whatever_the_order_of_the_sequence(seed):
    rng = np.random.default_rng(seed)
    blocks = np.sort(rng.integers(1, 5, 12))
    started = np.where(rng.random(12) < 0.1, np.nan, rng.integers(0, 12, 12).astype(float))
    moved = out_of_time(blocks.tolist(), started.tolist())
    assert all(m.planned == blocks[m.at] != m.block and m.block in blocks for m in moved)
    assert all(np.isfinite(started[m.at]) for m in moved)
    other = rng.permutation(12)
    again = out_of_time(blocks[other].tolist(), started[other].tolist())

    def told(found, at):
        return sorted((started[at[m.at]], m.planned, m.block) for m in found)

    assert told(again, other) == told(moved, np.arange(12))


@pytest.mark.parametrize("seed", range(20))
def test_as_few_as_possible_are_moved(seed):
    rng = np.random.default_rng(seed)
    blocks = np.repeat(np.arange(1, 5), 6)
    started = np.arange(24.0)
    late = rng.choice(12, 3, replace=False)  # of the first two blocks
    started[late] = 24 + np.arange(3)
    moved = out_of_time(blocks.tolist(), started.tolist())
    assert {m.at for m in moved} == set(late.tolist())
    assert all(m.block == 4 for m in moved)


def drifting() -> tuple[pd.DataFrame, dict]:
    """Four cells alike but for noise on a machine that gets 10 % faster with each of five blocks."""
    rng = np.random.default_rng(5)
    cells = cells_table(World(cells=4, launches=5).passes(rng, 1, np.zeros(4))[0], GRID, 5)
    number = cells["launch"].str[1:].astype(int)
    place = cells["cell"].map({c: i for i, c in enumerate(sorted(set(cells["cell"])))})
    cells["decode_tokens_per_s"] *= 1.1**number
    at = pd.Timestamp("2026-01-01", tz="UTC") + pd.to_timedelta((number * 4 + place) * MINUTE, unit="s")
    cells["started_at"] = at.dt.strftime("%Y-%m-%dT%H:%M:%SZ")
    return cells, study_record(GRID, 5, REFERENCE)


def test_a_launch_repeated_after_a_drift_makes_no_difference_of_cells():
    cells, study = drifting()
    usual = statistics(cells, study)[0]
    assert usual["out_of_block"] == []
    # Launch 1 failed and was repeated in the end, when the machine was 1.1^4 times as fast.
    late = (cells["cell"] == "steps-2_nccl-tuned") & (cells["launch"] == "l1")
    cells.loc[late, "decode_tokens_per_s"] *= 1.1**4
    cells.loc[late, "started_at"] = "2026-01-01T01:00:00Z"
    outcome, frames = statistics(cells, study)
    (moved,) = outcome["out_of_block"]
    assert moved == {"cell": "steps-2_nccl-tuned", "launch": "l1", "planned_block": 1, "block": 5}
    assert "l1 of steps-2_nccl-tuned (block 5 instead of 1)" in outcome["answer"][2]
    here = frames["contrasts"].set_index(["kind", "cell"]).loc[("reference", "steps-2_nccl-tuned")]
    assert here["ratio"] == pytest.approx(1.0, abs=0.02)
    assert not here["set_aside"]
    untimed = statistics(cells.drop(columns="started_at"), study)[1]["contrasts"]
    there = untimed.set_index(["kind", "cell"]).loc[("reference", "steps-2_nccl-tuned")]
    assert "launch l1" in there["set_aside"]
    assert there["ratio_all"] > 1.05


def test_each_machine_and_epoch_has_blocks_of_its_own():
    cells, study = drifting()
    # The second machine begins with launches 3 to 5 while the first one has 1 and 2: no launch is late.
    cells["machine"] = np.where(cells["launch"].isin(["l1", "l2"]), 1, 2)
    second = cells["machine"] == 2
    cells.loc[second, "started_at"] = cells.loc[second, "started_at"].str.replace("2026-01-01", "2025-12-31")
    values, _ = launch_values(cells, study, "decode_tokens_per_s")
    assert (values["block"] == values["planned_block"]).all()


def test_a_launch_is_in_the_same_block_whatever_is_looked_at():
    cells, study = drifting()
    cells["machine"] = 1
    late = (cells["cell"] == "steps-2_nccl-tuned") & (cells["launch"] == "l1")
    cells.loc[late, "started_at"] = "2026-01-01T01:00:00Z"
    # Without the traces of the blocks in between, its own block would be the last one in order.
    cells["nccl_transfer_ms"] = np.where(cells["launch"] == "l1", 0.1, np.nan)
    values, _ = launch_values(cells, study, "nccl_transfer_ms")
    assert sorted(set(values["block"])) == [1, 5]
    assert values.loc[values["cell"] == "steps-2_nccl-tuned", "block"].tolist() == [5]


@pytest.mark.parametrize("missing", ["machine", "started_at"])
def test_what_is_not_known_of_launches_leaves_them_where_they_were_planned(missing):
    cells, study = drifting()
    cells["machine"] = 1
    cells.loc[cells["launch"] == "l1", "started_at"] = "2026-01-01T01:00:00Z"
    cells.loc[cells["launch"] == "l2", "started_at"] = "no time"
    cells[missing] = None
    values, _ = launch_values(cells, study, "decode_tokens_per_s")
    assert (values["block"] == values["planned_block"]).all()
