"""From tables/cells.csv to claims, refusals and the answer."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from simulated import World, cells_table, study_record

from quietgate.analyse.claims import axis_words
from quietgate.analyse.statistics import describe, statistics
from quietgate.errors import BadInput

GRID = [(steps, nccl) for nccl in ("tuned", "untuned") for steps in (0, 1, 2, 5)]
REFERENCE = "steps-0_nccl-untuned"
# Best with tuning: 2 steps; best without: 5 steps.
EFFECTS = np.array([0.30, 0.33, 0.42, 0.36, 0.0, 0.02, 0.05, 0.16])


def table(launches: int = 5, seed: int = 0, effects=EFFECTS, **more) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    verdict = more.pop("verdict", "confirmed")
    passes = World(cells=8, launches=launches, **more).passes(rng, 1, effects)[0]
    return cells_table(passes, GRID, launches, verdict=verdict)


def run(cells: pd.DataFrame, launches: int = 5):
    return statistics(cells, study_record(GRID, launches, REFERENCE))


def row_of(outcome, kind, cell):
    (row,) = [r for r in outcome["contrasts"] if r["kind"] == kind and r["cell"] == cell]
    return row


def test_effects_are_claimed_with_all_that_a_claim_needs():
    outcome, frames = run(table())
    row = row_of(outcome, "reference", "steps-2_nccl-tuned")
    assert row["claim"]
    assert row["ratio_low"] < np.exp(0.42) < row["ratio_high"]
    for piece in ("2 steps, tuned", "faster", "95 % interval", "5 launches", "7 comparisons", "80 %"):
        assert piece in row["text"]
    interaction = row_of(outcome, "interaction", "steps-2_nccl-tuned")
    assert interaction["ratio_low"] < np.exp(0.42 - 0.30 - 0.05) < interaction["ratio_high"]
    assert "speed-up of 2 steps over no speculation" in interaction["text"]
    steps = row_of(outcome, "steps", "steps-5_nccl-tuned")
    assert steps["against"] == "steps-0_nccl-tuned"
    assert row_of(outcome, "profile", "steps-1_nccl-tuned")["against"] == "steps-1_nccl-untuned"
    assert len(frames["contrasts"]) == 7 + 3 + 3 + 3
    assert len(outcome["answer"]) == 3
    assert "2 steps, tuned" in outcome["answer"][0]


def test_outcome_is_json_and_does_not_depend_on_the_order_of_the_rows():
    cells = table(seed=4)
    first = json.dumps(run(cells)[0], allow_nan=False, sort_keys=True)
    shuffled = cells.sample(frac=1, random_state=1)
    second, _ = run(shuffled)
    for a, b in zip(json.loads(first)["contrasts"], second["contrasts"], strict=True):
        assert a["text"] == b["text"]
    assert first == json.dumps(run(cells)[0], allow_nan=False, sort_keys=True)


def test_the_optimum_moves_when_it_does():
    outcome, frames = run(table())
    (move,) = outcome["moves"]
    assert (move["best"], move["best_against"], move["verdict"]) == (2, 5, "moved")
    assert move["probability_moved"] > 0.99
    assert move["keeping_costs_percent"] == pytest.approx(100 * (1 - np.exp(-0.06)), abs=2)
    best = frames["optimum"].query("could_be_best")
    assert dict(zip(best["nccl"], best["steps"], strict=True)) == {"tuned": 2, "untuned": 5}
    assert frames["moves"].loc[0, "could_be_best"] == "2"
    assert "2 under untuned" not in move["text"]
    assert "moves" in outcome["answer"][1]


def test_the_optimum_stays_when_it_does_and_ties_stay_open():
    stays = np.array([0.30, 0.33, 0.50, 0.36, 0.0, 0.02, 0.20, 0.06])
    (move,) = run(table(effects=stays))[0]["moves"]
    assert (move["verdict"], move["probability_moved"]) == ("unmoved", 0)
    ties = np.array([0.3, 0.3, 0.3, 0.3, 0, 0, 0, 0])
    (move,) = run(table(effects=ties, seed=8))[0]["moves"]
    assert move["verdict"] == "open"
    assert len(move["could_be_best"]) > 1
    assert "is open" in move["text"]


def test_a_noisy_cell_keeps_the_best_steps_open():
    """Under tuned, 5 steps are 12 % behind 2 in the mean, in launches that lie up to 60 % apart."""
    effects = np.array([0.0, 0.1, 0.42, 0.30, 0.0, 0.02, 0.05, 0.06])
    quiet = table(effects=effects)
    noisy = quiet.copy()
    for launch, off in {"l1": 0.25, "l2": -0.25, "l3": 0.2, "l4": -0.22, "l5": 0.02}.items():
        here = (noisy["cell"] == "steps-5_nccl-tuned") & (noisy["launch"] == launch)
        noisy.loc[here, "decode_tokens_per_s"] *= np.exp(off)

    def best(cells):
        outcome, frames = run(cells)
        rows = frames["optimum"].query("nccl == 'tuned'").set_index("steps")
        return outcome["levels"][0]["noisiest_cell"], rows["could_be_best"], rows["probability_best"]

    _, could, probably = best(quiet)
    assert could[could].index.tolist() == [2]
    assert probably[2] > 0.999
    cell, could, probably = best(noisy)
    assert (cell["cell"], cell["own_variance_used"]) == ("steps-5_nccl-tuned", True)
    assert could[could].index.tolist() == [2, 5]
    assert 0.05 < probably[5] < 0.5
    assert probably[1] == 0


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        ("not_exercised", "not_exercised"),
        ("contradicted", "profile_contradicted"),
        (None, "profile_not_proved"),
    ],
)
def test_a_profile_that_is_not_proved_gives_no_claim_on_it(verdict, expected):
    cells = table()
    cells.loc[cells["nccl"] == "tuned", "nccl_verdict"] = verdict
    outcome, _ = run(cells)
    for row in outcome["contrasts"]:
        across = row["kind"] in ("profile", "interaction") or row["nccl"] != row["nccl_against"]
        assert (row["verdict"] == expected) == across
    assert outcome["moves"][0]["verdict"] == expected
    assert row_of(outcome, "steps", "steps-2_nccl-tuned")["claim"]
    assert any(r["why"] == expected for r in outcome["refusals"])


def test_one_unproved_launch_is_enough():
    cells = table()
    cells.loc[(cells["cell"] == "steps-2_nccl-tuned") & (cells["launch"] == "l3"), "nccl_verdict"] = (
        "not_exercised"
    )
    outcome, _ = run(cells)
    assert row_of(outcome, "reference", "steps-2_nccl-tuned")["verdict"] == "not_exercised"
    assert row_of(outcome, "reference", "steps-1_nccl-tuned")["claim"]


def test_failed_launches_are_left_out_and_said():
    cells = table()
    gone = (cells["cell"] == "steps-5_nccl-tuned") | (
        (cells["cell"] == "steps-1_nccl-tuned") & (cells["launch"] == "l2")
    )
    cells.loc[gone, ["status", "failure_class"]] = ["failed", "out_of_memory"]
    cells.loc[gone, "decode_tokens_per_s"] = np.nan
    outcome, frames = run(cells)
    assert row_of(outcome, "reference", "steps-1_nccl-tuned")["launches"] == 4
    assert not any(r["cell"] == "steps-5_nccl-tuned" for r in outcome["contrasts"])
    assert {x["why"] for x in outcome["left_out"]} == {"out_of_memory"}
    assert any("steps-5_nccl-tuned" in r["text"] for r in outcome["refusals"])
    missing = frames["estimates"].query("cell == 'steps-5_nccl-tuned'")
    assert missing["launches"].tolist() == [0]
    assert missing["value"].isna().all()


def test_a_failed_pass_leaves_the_other_passes_of_its_launch():
    cells = table()
    one = (cells["cell"] == REFERENCE) & (cells["launch"] == "l2") & (cells["repeat"] == 4)
    cells.loc[one, ["status", "failure_class"]] = ["failed", "invalid_pass"]
    outcome, _ = run(cells)
    (left,) = outcome["left_out"]
    assert left["counts"]
    assert left["why"] == "1 of its passes: invalid_pass"
    assert "without a result" not in outcome["answer"][2]
    assert outcome["levels"][0]["launches"] == 40


def test_without_the_reference_nothing_is_compared():
    cells = table()
    cells.loc[cells["cell"] == REFERENCE, "status"] = "failed"
    outcome, frames = run(cells)
    assert outcome["claims"] == []
    assert outcome["levels"][0]["status"] == "no_reference"
    assert list(frames["contrasts"].columns)[:3] == ["kind", "epoch", "concurrency"]


def test_nothing_measured():
    cells = table()
    cells["status"] = "failed"
    outcome, frames = run(cells)
    assert outcome["claims"] == []
    assert outcome["refusals"][0]["why"] == "no_launch"
    assert frames["estimates"].empty


def test_a_cell_with_one_launch_left_is_not_claimed():
    cells = table()
    alone = (cells["cell"] == "steps-2_nccl-tuned") & (cells["launch"] != "l1")
    cells.loc[alone, "status"] = "failed"
    row = row_of(run(cells)[0], "reference", "steps-2_nccl-tuned")
    assert row["verdict"] == "rests_on_one_launch"
    assert row["detectable_ratio"] is None


def test_an_odd_launch_is_set_aside_named_and_kept_beside():
    cells = table()
    odd = (cells["cell"] == "steps-2_nccl-tuned") & (cells["launch"] == "l4")
    cells.loc[odd, "decode_tokens_per_s"] *= 0.8
    outcome, _ = run(cells)
    (aside,) = outcome["levels"][0]["set_aside"]
    assert (aside["cell"], aside["launch"]) == ("steps-2_nccl-tuned", "l4")
    assert aside["off_percent"] == pytest.approx(-20, abs=3)
    row = row_of(outcome, "reference", "steps-2_nccl-tuned")
    assert row["claim"]
    assert row["ratio_all"] < row["ratio"]
    assert "l4" in row["text"]
    assert row_of(outcome, "reference", "steps-1_nccl-tuned")["set_aside"] == ""


def test_every_concurrency_level_is_another_look():
    cells = pd.concat([table(seed=1), table(seed=2).assign(concurrency=8)])
    outcome, frames = run(cells)
    assert {row["level"] for row in outcome["contrasts"]} == {0.975}
    assert [level["concurrency"] for level in outcome["levels"]] == [1, 8]
    assert "at 8 streams" in outcome["contrasts"][-1]["text"]
    alone, _ = run(table(seed=1))
    assert outcome["contrasts"][0]["ratio_low"] < alone["contrasts"][0]["ratio_low"]
    assert set(frames["estimates"]["concurrency"]) == {1, 8}


def test_contrasts_stay_inside_an_epoch():
    cells = table()
    late = cells["cell"] == "steps-5_nccl-tuned"
    more = cells[cells["cell"] == REFERENCE].assign(epoch=2)
    more["launch"] = "l" + (more["launch"].str[1:].astype(int) + 5).astype(str)
    more["decode_tokens_per_s"] *= 0.5  # another day, another machine state
    study = study_record(GRID, 5, REFERENCE)
    study["launches"] = [x for x in study["launches"] if x["cell"] != "steps-5_nccl-tuned"]
    for block in range(6, 11):
        for cell in (REFERENCE, "steps-5_nccl-tuned"):
            study["launches"].append({"cell": cell, "launch": f"l{block}", "block": block, "epoch": 2})
    moved = cells[late].copy()
    moved["launch"] = "l" + (moved["launch"].str[1:].astype(int) + 5).astype(str)
    moved["decode_tokens_per_s"] *= 0.5
    outcome, _ = statistics(pd.concat([cells[~late], more, moved]), study)
    row = row_of(outcome, "reference", "steps-5_nccl-tuned")
    assert row["epoch"] == 2
    assert row["family"] == 1
    assert row["ratio"] == pytest.approx(np.exp(0.36), rel=0.03)
    assert "Epoch 2 is compared apart" in outcome["answer"][0]
    assert "the fastest measured cell of epoch 1 is" in outcome["answer"][0]
    assert outcome["answer"][1].startswith("Within epoch 1: ")
    assert "Cells of different epochs are not compared" in outcome["answer"][2]
    assert "the fastest there was 5 steps, tuned (" in outcome["answer"][0]
    assert [level["cells"] for level in outcome["levels"]] == [7, 2]
    missing = [r for r in outcome["refusals"] if r["why"] == "no_launch"]
    assert missing == []


def test_a_machine_is_never_taken_for_an_effect():
    """No effect at all, but the launches that a second machine took are 30 % faster."""
    cells = table(effects=np.zeros(8))
    second = (cells["launch"] != "l1") & cells["steps"].isin([2, 5])
    cells.loc[second, "decode_tokens_per_s"] *= 1.3
    assert any(row["claim"] for row in run(cells)[0]["contrasts"])
    cells["machine"] = np.where(second, 2, 1)
    outcome, _ = run(cells)
    assert [row["text"] for row in outcome["contrasts"] if row["claim"]] == []
    assert row_of(outcome, "reference", "steps-2_nccl-tuned")["ratio"] == pytest.approx(1, abs=0.03)


def test_cells_of_two_machines_are_not_compared():
    cells = table()
    second = cells["steps"] == 5
    cells.loc[second, "decode_tokens_per_s"] *= 2
    cells["machine"] = np.where(second, 2, 1)
    outcome, _ = run(cells)
    compared = {row["cell"] for row in outcome["contrasts"] if row["kind"] == "reference"}
    assert "steps-2_nccl-tuned" in compared
    assert not compared & {"steps-5_nccl-tuned", "steps-5_nccl-untuned"}
    assert "the fastest compared cell is 2 steps, tuned" in outcome["answer"][0]
    apart = "with the reference: steps-5_nccl-tuned, steps-5_nccl-untuned."
    assert apart in outcome["answer"][0]
    assert "steps-5" not in outcome["answer"][0].replace(apart, "")


def test_a_launch_on_an_unknown_machine_is_compared_with_none():
    cells = table()
    cells["machine"] = pd.array([1] * len(cells), dtype="Int64")
    cells.loc[cells["cell"] == "steps-2_nccl-tuned", "machine"] = pd.NA
    outcome, _ = run(cells)
    assert "steps-2_nccl-tuned" not in {row["cell"] for row in outcome["contrasts"]}


def test_a_launch_of_two_server_lives_is_left_out():
    cells = table()
    mixed = (cells["cell"] == REFERENCE) & (cells["launch"] == "l2") & (cells["repeat"] > 2)
    cells.loc[mixed, "instance"] = "ffffffffffff"
    outcome, _ = run(cells)
    assert [x["why"] for x in outcome["left_out"]] == ["its passes come from more than one server life"]


def test_repeats_are_summarised_by_their_median():
    cells = table()
    spike = (cells["repeat"] == 3) & (cells["launch"] == "l1")
    cells.loc[spike, "decode_tokens_per_s"] *= 3
    a, b = run(table())[0], run(cells)[0]
    assert a["contrasts"][0]["ratio"] == pytest.approx(b["contrasts"][0]["ratio"], rel=0.01)


def test_other_axes_are_compared_at_equal_values():
    cells = pd.concat([table(seed=1).assign(topk=1), table(seed=2).assign(topk=4)])
    cells["cell"] += "_topk-" + cells["topk"].astype(str)
    study = study_record(GRID, 5, REFERENCE + "_topk-1") | {"axes": ["topk"], "launches": []}
    study["cells"] = []
    outcome, frames = statistics(cells, study)
    assert {(m["topk"], m["verdict"]) for m in outcome["moves"]} == {(1, "moved"), (4, "moved")}
    for row in outcome["contrasts"]:
        if row["kind"] != "reference":
            assert row["cell"][-1] == row["against"][-1]
    assert "topk" in frames["contrasts"].columns


def test_identical_values_make_no_claim():
    cells = table()
    cells["decode_tokens_per_s"] = 50.0 + cells["steps"]
    assert run(cells)[0]["claims"] == []


def test_other_metrics_get_intervals_but_no_claims():
    cells = table()
    cells["cycle_ms"] = 30 / cells["decode_tokens_per_s"]
    frame = describe(cells, study_record(GRID, 5, REFERENCE), ("cycle_ms", "absent"))
    assert len(frame) == 8
    assert ((frame["low"] < frame["value"]) & (frame["value"] < frame["high"])).all()
    assert frame["ratio"].isna().sum() == 1
    assert "claim" not in frame


def test_bad_tables_are_named():
    with pytest.raises(BadInput, match=r"cells\.csv: lacks the column repeat"):
        run(table().drop(columns="repeat"))
    with pytest.raises(BadInput, match="no row of the reference cell"):
        statistics(table(), study_record(GRID, 5, "steps-9_nccl-none"))


def test_the_headline_names_no_profile_that_did_nothing_as_fastest():
    """Every tuned cell is faster, yet the profile was not exercised: noise is no finding."""
    cells = table(verdict="not_exercised")
    outcome, _ = run(cells)
    first = outcome["answer"][0]
    assert "the fastest measured cell is 5 steps, untuned" in first
    assert "the same configuration" in first
    assert "tuned (" not in first.replace("untuned (", "")
    assert sum("same configuration" in sentence for sentence in outcome["answer"]) == 1
    assert "NCCL did no work" not in outcome["answer"][2]
    assert any(r["why"] == "not_exercised" for r in outcome["refusals"])


def test_a_cell_stands_in_for_the_same_configuration_that_was_not_measured():
    cells = table(verdict="not_exercised")
    gone = cells["cell"] == "steps-5_nccl-untuned"
    cells.loc[gone, "status"] = "failed"
    effects_best = run(cells)[0]["answer"][0]
    assert "the fastest measured cell is 5 steps, tuned" in effects_best
    assert "No claim on the NCCL profile" in effects_best


@pytest.mark.parametrize("verdict", ["contradicted", None])
def test_cells_whose_profile_is_not_proved_are_left_out_of_the_headline(verdict):
    cells = table()
    cells.loc[cells["nccl"] == "tuned", "nccl_verdict"] = verdict
    first = run(cells)[0]["answer"][0]
    assert "the fastest measured cell is 5 steps, untuned" in first
    assert "Cells under tuned are left out of this sentence" in first


def test_one_launch_of_a_profile_that_did_nothing_is_not_a_matter_of_more_launches():
    outcome, _ = run(table(launches=1, verdict="not_exercised"), launches=1)
    row = row_of(outcome, "profile", "steps-1_nccl-tuned")
    assert row["verdict"] == "not_exercised"
    assert "replicates" not in row["text"]
    assert outcome["moves"][0]["verdict"] == "not_exercised"
    assert row_of(outcome, "steps", "steps-2_nccl-tuned")["verdict"] == "launch_variation_unknown"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "graphs none"), (float("nan"), "graphs none"), (True, "graphs on"), (np.False_, "graphs off"),
        (4, "graphs 4"), ("auto", "graphs auto"),
    ],
)  # fmt: skip
def test_values_of_further_axes_are_named_as_in_the_cells(value, words):
    assert axis_words("graphs", value) == words


def at_levels(effects) -> pd.DataFrame:
    """Two concurrency levels, the second with these effects."""
    return pd.concat([table(seed=1), table(seed=2, effects=effects).assign(concurrency=8)])


def test_the_answer_says_where_another_cell_is_the_fastest_with_more_streams():
    slower = np.array([0.3, 0.1, 0.1, 0.0, 0.0, -0.1, -0.1, -0.2])
    outcome, _ = run(at_levels(slower))
    first = outcome["answer"][0]
    assert "At 1 stream the fastest measured cell is 2 steps, tuned" in first
    row = next(
        r
        for r in outcome["contrasts"]
        if (r["kind"], r["cell"], r["concurrency"]) == ("reference", "steps-0_nccl-tuned", 8)
    )
    assert "another cell was the fastest: at 8 streams no speculation, tuned (" in first
    assert f"{row['ratio']:.3f} times the reference, claimed)." in first
    assert "other numbers of streams" not in run(at_levels(EFFECTS))[0]["answer"][0]


def test_one_launch_of_several_profiles_is_refused_in_one_sentence():
    grid = [(steps, nccl) for nccl in ("a", "b", "c") for steps in (0, 2)]
    passes = World(cells=6, launches=1).passes(np.random.default_rng(0), 1, np.zeros(6))[0]
    cells = cells_table(passes, grid, 1, verdict="confirmed")
    outcome, _ = statistics(cells, study_record(grid, 1, "steps-0_nccl-a"))
    second = outcome["answer"][1]
    assert "moves from a to b or c at 1 stream cannot be said: one launch per cell" in second
    assert second.count(".") == 1


def test_several_open_moves_are_told_in_one_sentence():
    grid = [(steps, nccl) for nccl in ("a", "b", "c") for steps in (0, 2)]
    passes = World(cells=6, launches=5).passes(np.random.default_rng(3), 1, np.zeros(6))[0]
    cells = cells_table(passes, grid, 5, verdict="confirmed")
    outcome, _ = statistics(cells, study_record(grid, 5, "steps-0_nccl-a"))
    assert [m["verdict"] for m in outcome["moves"]] == ["open", "open"]
    second = outcome["answer"][1]
    assert second.count("Whether") == 1
    assert (
        "from a to b or c at 1 stream is open: could be best are 0 or 2 under a, 0 or 2 under b and" in second
    )


def test_steps_that_failed_under_one_profile_keep_the_optimum_open():
    """5 steps might be the best under tuned too, had they been measured."""
    stays = np.array([0.30, 0.33, 0.50, 0.36, 0.0, 0.02, 0.20, 0.06])
    cells = table(effects=stays)
    assert run(cells)[0]["moves"][0]["verdict"] == "unmoved"
    cells.loc[cells["cell"] == "steps-5_nccl-tuned", "status"] = "failed"
    (move,) = run(cells)[0]["moves"]
    assert (move["could_be_best"], move["could_be_best_against"]) == ([2], [2])
    assert move["verdict"] == "open"
    assert "Not measured under both profiles: 5 steps." in move["text"]


def test_one_common_number_of_steps_is_no_probability_of_a_move():
    cells = table()
    gone = ["steps-1_nccl-tuned", "steps-2_nccl-tuned", "steps-1_nccl-untuned", "steps-5_nccl-untuned"]
    outcome, _ = run(cells[~cells["cell"].isin(gone)])
    (move,) = outcome["moves"]
    assert move["verdict"] == "open"
    assert move["probability_moved"] is None
    assert "probability" not in move["text"]
    assert "2 and 5 steps" in move["text"]
