"""What figures show: their frames, labels, limits and captions. No pixels are compared."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from draw import synthetic
from draw.conftest import made, material
from draw.synthetic import config
from quietgate import records
from quietgate.analyse import statistics, tables
from quietgate.draw import accepted, by_steps, checks, cycle, grid, latency, load, values
from quietgate.draw.drawn import Material, NotDrawn
from quietgate.draw.figures import FIGURES, draw_all
from quietgate.draw.style import COLUMN_IN, PAGE_IN, house_style, looks
from quietgate.files import sha256


def legend_texts(figure) -> list[str]:
    return [t.get_text() for legend in figure.legends for t in legend.get_texts()]


def markers(axis, colour: str):
    """Marker face colours of single-marker lines of a colour."""
    return {
        to_hex(line.get_markerfacecolor())
        for line in axis.lines
        if len(line.get_xdata()) == 1 and to_hex(line.get_color()) == colour.lower()
        and line.get_marker() not in ("x", ".")
    }  # fmt: skip


@pytest.fixture
def all_of_it(results, marks):
    root, study, outcome = results
    with house_style():
        yield material(root, study, outcome, marks)


def test_decode_speed_has_units_steps_and_the_failed_cell(all_of_it):
    drawn = by_steps.decode_tokens_per_s(all_of_it)
    (axis,) = drawn.figure.axes
    assert axis.get_xlabel() == "speculative steps"
    assert axis.get_ylabel() == "decode tok/s"
    assert [t.get_text() for t in axis.get_xticklabels()] == ["0", "1", "3"]
    assert "failed: out of memory (tuned, 3 steps)" in legend_texts(drawn.figure)
    assert [line.get_marker() for line in axis.lines].count("x") == 1
    cells = drawn.frame[drawn.frame["kind"] == "cell"].set_index("cell")
    assert cells.loc["steps-3_nccl-tuned", "status"] == "failed"
    assert np.isnan(cells.loc["steps-3_nccl-tuned", "value"])
    assert cells.loc["steps-1_nccl-untuned", "launches"] == 2
    assert (cells["low"] < cells["value"]).sum() == 5
    low, high = axis.get_ylim()
    assert low < cells["value"].min() < cells["value"].max() < high
    assert "n = 2 to 3 launches per cell" in drawn.caption
    assert "1 of steps-1_nccl-untuned (killed)" in drawn.caption
    assert drawn.figure.get_figwidth() == COLUMN_IN


@pytest.fixture
def one_noisy(tmp_path):
    """Eight cells, three launches; what a metric says of the launches of one cell scatters."""
    study = synthetic.write(tmp_path, config([0, 1, 2, 3], concurrency=(1, 8)))
    frames = tables.collect(tables.read_all(tmp_path, study), study)
    cells = frames["cells"]

    def draw(figure, metric, streams):
        mine = (cells["cell"] == "steps-2_nccl-tuned") & (cells["concurrency"] == streams)
        for launch, off in {"l1": 0.8, "l2": 1.25, "l3": 1.02}.items():
            cells.loc[mine & (cells["launch"] == launch), metric] *= off
        outcome, derived = statistics.statistics(cells, study)
        with house_style():
            return figure(Material(study, frames | derived, outcome)).caption

    return draw


NAMED = "steps-2_nccl-tuned, whose launches scatter more: from its own, where that is wider"


@pytest.mark.parametrize(
    ("figure", "metric"),
    [
        (by_steps.decode_tokens_per_s, "decode_tokens_per_s"),
        (by_steps.request_tokens_per_s, "request_tokens_per_s"),
    ],
)
def test_a_bar_that_rests_on_its_own_launches_is_named(one_noisy, figure, metric):
    assert NAMED in one_noisy(figure, metric, 1)


def test_a_bar_is_named_for_the_numbers_that_are_drawn(one_noisy):
    assert "scatter more" not in one_noisy(by_steps.decode_tokens_per_s, "decode_tokens_per_s", 8)


def test_a_bar_is_of_the_first_epoch_that_measured_its_cell_at_that_level(tmp_path):
    """The reference, whose passes at one stream all failed in the first epoch, is drawn from the second."""
    study = synthetic.write(tmp_path, config([0, 1, 2, 3], launches=6, concurrency=(1, 8)))
    later = [{**one, "epoch": 1 + (one["launch"] > "l3")} for one in study["launches"]]
    study = {**study, "launches": later}
    frames = tables.collect(tables.read_all(tmp_path, study), study)
    cells = frames["cells"]
    mine = (cells["cell"] == study["reference"]) & (cells["concurrency"] == 1)
    cells.loc[mine & (cells["launch"] <= "l3"), "decode_tokens_per_s"] = np.nan
    for launch, off in {"l4": 0.8, "l5": 1.25, "l6": 1.02}.items():
        cells.loc[mine & (cells["launch"] == launch), "decode_tokens_per_s"] *= off
    outcome, derived = statistics.statistics(cells, study)
    drawn_from = Material(study, frames | derived, outcome)
    assert values.noisy(drawn_from, "decode_tokens_per_s", 1) == [study["reference"]]
    assert study["reference"] not in values.noisy(drawn_from, "decode_tokens_per_s", 8)


def test_one_frame_row_per_launch_with_its_median(all_of_it):
    drawn = by_steps.decode_tokens_per_s(all_of_it)
    launches = drawn.frame[drawn.frame["kind"] == "launch"]
    assert len(launches) == 5 * 3 - 1
    one = launches[(launches["cell"] == "steps-0_nccl-tuned") & (launches["launch"] == "l2")]
    passes = all_of_it.cells.query("cell == 'steps-0_nccl-tuned' and launch == 'l2' and concurrency == 1")
    assert one["value"].item() == pytest.approx(passes["decode_tokens_per_s"].median(), rel=1e-12)


def test_published_numbers_are_marks_on_request_speed_only(all_of_it):
    requests, decode = by_steps.request_tokens_per_s(all_of_it), by_steps.decode_tokens_per_s(all_of_it)
    published = requests.frame[requests.frame["kind"] == "published"]
    assert published["value"].tolist() == [88.8], "of profiles and steps of this study only"
    assert "88.8 (0 steps, tuned)" in requests.caption
    assert "no part of any result" in requests.caption
    assert not (decode.frame["kind"] == "published").any()
    assert requests.figure.axes[0].get_ylabel() == "request tok/s"


def test_tokens_per_cycle_lie_under_their_ceiling(all_of_it):
    drawn = by_steps.tokens_per_cycle(all_of_it)
    cells = drawn.frame[(drawn.frame["kind"] == "cell") & drawn.frame["value"].notna()]
    assert (cells["value"] <= cells["steps"] + 1).all()
    assert cells.loc[cells["steps"] == 0, "value"].tolist() == pytest.approx([1.0, 1.0])
    assert drawn.figure.axes[0].get_ylim()[0] == 0
    assert "ceiling: steps + 1" in legend_texts(drawn.figure)


def test_the_stages_of_a_bar_add_up_to_its_cycle(all_of_it):
    drawn = cycle.cycle_stages(all_of_it)
    known = drawn.frame[drawn.frame["status"] == "passed"]
    stages = known[["draft_ms", "verify_ms", "decode_ms", "extend_ms", "other_ms"]].astype(float)
    assert stages.sum(axis=1).to_numpy() == pytest.approx(known["cycle_ms"].to_numpy(dtype=float), rel=0.01)
    assert drawn.figure.axes[0].get_ylim()[0] == 0
    for axis in drawn.figure.axes:
        tops = [bar.get_y() + bar.get_height() for bar in axis.patches]
        assert max(tops) < axis.get_ylim()[1], "no bar is cut off"
    assert drawn.figure.axes[0].get_ylabel() == "cycle time (ms)"
    assert "SGLang's stage timer" in drawn.caption
    assert any("failed: out of memory" in t.get_text() for a in drawn.figure.axes for t in a.texts)


def test_speed_up_is_relative_to_the_reference_and_marks_claims(all_of_it):
    drawn = grid.speed_up(all_of_it)
    frame = drawn.frame.set_index("cell")
    assert frame.loc["steps-0_nccl-tuned", "ratio"] == 1.0
    assert frame.loc["steps-0_nccl-untuned", "ratio"] == pytest.approx(12.2 / 16.8, rel=0.03)
    assert bool(frame.loc["steps-0_nccl-untuned", "claim"])
    texts = [t.get_text() for t in drawn.figure.axes[0].texts]
    assert "1.00\nref" in texts
    assert sum(t.endswith("*") for t in texts) == frame["claim"].sum()
    assert "failed:\nout of\nmemory" in texts


def test_speed_up_tells_what_was_not_measured_from_what_failed(all_of_it):
    cells = all_of_it.cells.replace({"failure_class": {"out_of_memory": "missing"}})
    drawn = grid.speed_up(dataclasses.replace(all_of_it, tables={**all_of_it.tables, "cells": cells}))
    texts = [t.get_text() for t in drawn.figure.axes[0].texts]
    assert "not\nmeasured" in texts
    assert not any("failed" in t for t in texts)


def test_interaction_breaks_where_a_side_failed(all_of_it):
    drawn = grid.interaction(all_of_it)
    cells = drawn.frame[drawn.frame["kind"] == "cell"].set_index("steps")
    assert cells["nccl"].unique().tolist() == ["untuned"]
    assert cells.loc[3, "failed_cell"] == "steps-3_nccl-tuned"
    below = drawn.figure.legends[1]
    assert [t.get_text() for t in below.get_texts()] == ["failed: out of memory (tuned, 3 steps)"]
    assert np.isnan(cells.loc[3, "ratio"])
    assert (cells.loc[[0, 1], "ratio_low"] < cells.loc[[0, 1], "ratio"]).all()
    blocks = drawn.frame[drawn.frame["kind"] == "block"]
    assert blocks.loc[blocks["steps"] == 1, "block"].tolist() == [1, 3]


def test_acceptance_and_tokens_per_cycle_are_the_same_story(all_of_it):
    drawn = accepted.acceptance(all_of_it)
    sums = drawn.frame.groupby("cell")["accepted"].sum() + 1
    tokens = all_of_it.passed.query("concurrency == 1").groupby("cell")["tokens_per_cycle"].median()
    for cell, value in sums.items():
        assert value == pytest.approx(tokens[cell], rel=0.03)
    assert drawn.frame["position"].max() == 3
    assert drawn.figure.axes[0].get_ylim()[0] == 0


def drawn_verify_cost(root, settings, **kwargs):
    study, outcome = made(root, settings, **kwargs)
    with house_style():
        return accepted.verify_cost(material(root, study, outcome))


def fitted(drawn):
    """The straight lines drawn, which begin at one token."""
    lines = drawn.figure.axes[0].lines
    return [x for x in lines if len(x.get_xdata()) == 2 and x.get_linestyle() != "None"]


def test_the_cost_of_a_drafted_token_is_recovered(tmp_path):
    drawn = drawn_verify_cost(tmp_path, config([0, 1, 2, 4], launches=2))
    untuned = drawn.frame[drawn.frame["nccl"] == "untuned"]
    assert untuned["verify_tokens"].unique().tolist() == [2, 3, 5]
    assert untuned["ms_per_drafted_token"].iloc[0] == pytest.approx(3.35, rel=0.08)
    assert len(fitted(drawn)) == 2
    assert drawn.figure.axes[0].get_ylabel() == "target verify (ms)"


def test_two_numbers_of_verified_tokens_are_no_fit(all_of_it):
    drawn = accepted.verify_cost(all_of_it)
    assert sorted(drawn.frame["verify_tokens"].unique()) == [2, 4]
    assert "ms_per_drafted_token" not in drawn.frame
    assert fitted(drawn) == []
    assert "No line is fitted: that needs 3 different numbers" in drawn.caption
    assert "costs" not in drawn.caption


def test_a_profile_with_too_few_has_no_line_and_the_caption_says_so(tmp_path):
    failed = {(2, "untuned"): "killed"}
    drawn = drawn_verify_cost(tmp_path, config([0, 1, 2, 4], launches=2), failed=failed)
    slopes = drawn.frame.groupby("nccl")["ms_per_drafted_token"].first()
    assert slopes["tuned"] > 0
    assert np.isnan(slopes["untuned"])
    assert len(fitted(drawn)) == 1
    assert "a profile without a line has fewer" in drawn.caption


def test_profiles_that_did_nothing_share_one_fit(tmp_path):
    drawn = drawn_verify_cost(tmp_path, config([0, 1, 2, 4], launches=1), verdict="not_exercised")
    assert drawn.frame["ms_per_drafted_token"].nunique() == 1
    assert len(fitted(drawn)) == 1
    assert "over all profiles" in drawn.caption
    assert "fit over all profiles" in legend_texts(drawn.figure)


def test_verify_tokens_follow_an_axis_over_draft_tokens(tmp_path):
    axes = {"width": {"flag": "speculative-num-draft-tokens", "values": [4, 8]}}
    settings = config([0, 2, 3], launches=1, profiles=("tuned",), axes=axes)
    settings["server"]["speculative"] |= {"topk": 4, "draft_tokens": 4}
    study, outcome = made(tmp_path, settings)
    with house_style():
        frame = accepted.verify_cost(material(tmp_path, study, outcome)).frame
    assert sorted(frame["verify_tokens"].unique()) == [4, 8]


@pytest.fixture
def two_machines(tmp_path):
    """One launch per cell, 2 steps on another machine."""
    study, _ = made(tmp_path, config([0, 1, 2, 3], launches=1, concurrency=(1, 8)), analysed=False)
    folder = tmp_path / "tables"
    cells = tables.read(folder / "cells.csv")
    cells["machine"] = np.where(cells["steps"] == 2, 2, 1)
    outcome, derived = statistics.statistics(cells, study)
    tables.write({"cells": cells, **derived}, folder)
    with house_style():
        yield material(tmp_path, study, outcome)


def test_no_line_no_fit_and_no_ratio_across_machines(two_machines):
    away = {"steps-2_nccl-untuned", "steps-2_nccl-tuned"}
    assert set(two_machines.apart) == away
    speed = by_steps.decode_tokens_per_s(two_machines)
    joined = [line for line in speed.figure.axes[0].lines if len(line.get_xdata()) > 1]
    assert [np.round(line.get_xdata()).tolist() for line in joined] == [[0, 1, 3]] * 2
    assert "Measured on another machine than the reference: steps-2_nccl-untuned" in speed.caption
    ratios = load.concurrency(two_machines).frame.groupby("cell")["ratio_to_0_steps"].count()
    assert {cell for cell, count in ratios.items() if not count} == away
    # Without 2 steps there are two numbers of verified tokens, which any line fits.
    assert "No line is fitted" in accepted.verify_cost(two_machines).caption


def test_a_legend_of_many_rows_leaves_the_panel_its_height(tmp_path):
    heights = []
    for count in (2, 6):
        names = tuple(f"a-profile-with-a-long-name-{i}" for i in range(count))
        root = tmp_path / str(count)
        study, outcome = made(root, config([0, 2], launches=2, profiles=names))
        with house_style():
            figure = checks.drift(material(root, study, outcome)).figure
            figure.draw_without_rendering()
        heights.append(figure.axes[0].get_window_extent().height)
    assert heights[1] > 0.9 * heights[0]


def test_one_launch_tests_no_interaction(two_machines):
    assert "tested" not in grid.interaction(two_machines).caption


def test_markers_are_inside_the_panel(two_machines):
    axis = accepted.verify_cost(two_machines).figure.axes[0]
    highest = max(max(line.get_ydata()) for line in axis.lines if len(line.get_ydata()))
    assert axis.get_ylim()[1] > 1.05 * highest


def test_the_caption_names_where_speculation_always_or_never_pays(tmp_path):
    study, outcome = made(tmp_path, config([0, 1, 7], launches=1, concurrency=(1, 8), profiles=("untuned",)))
    with house_style():
        drawn = load.concurrency(material(tmp_path, study, outcome))
    ratios = drawn.frame[drawn.frame["steps"] == 7]["ratio_to_0_steps"]
    assert (ratios < 1).all()
    assert "Below 1 at every level: steps-7_nccl-untuned." in drawn.caption


@pytest.mark.parametrize(("low", "high"), [(0.95, 1.06), (0.45, 1.3), (0.9, 4.2), (0.2, 30.0), (1.1, 1.4)])
def test_ratio_ticks_are_few_and_hold_one(low, high):
    ticks = load._ratio_ticks(low, high)
    assert 2 <= len(ticks) <= 8
    assert (1.0 in ticks) == (low < 1 < high)
    assert all(low <= tick <= high for tick in ticks)


def test_streams_at_which_speculation_stops_paying(all_of_it):
    drawn = load.concurrency(all_of_it)
    frame = drawn.frame
    base = frame[frame["steps"] == 0]
    assert base["ratio_to_0_steps"].tolist() == [1.0] * 4
    crossed = frame.loc[frame["cell"] == "steps-3_nccl-untuned", "crossover_streams"].iloc[0]
    ratios = frame.loc[frame["cell"] == "steps-3_nccl-untuned", "ratio_to_0_steps"].tolist()
    assert (1 < crossed < 8) == (ratios[0] > 1 >= ratios[1])
    assert drawn.figure.axes[0].get_ylabel() == "output tok/s, all streams"
    assert drawn.figure.axes[-1].get_xlabel() == "concurrent streams"
    assert drawn.figure.get_figwidth() == PAGE_IN


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ([1.2, 1.1, 1.05], None),
        ([0.9, 0.8, 0.7], None),
        ([2.0, 1.0, 0.5], 4.0),
        ([2.0, 0.5, 0.4], 2.0),
        ([2.0, float("nan"), 0.5], 4.0),
        ([1.1, 0.9, 1.2], 2.0**0.95),
    ],
)
def test_crossover(ratios, expected):
    found = load.crossover([1, 4, 16], ratios)
    assert found == (None if expected is None else pytest.approx(expected, rel=0.02))


def test_latencies_at_every_level_in_order_of_percentiles(all_of_it):
    drawn = latency.latency(all_of_it)
    assert set(drawn.frame["concurrency"]) == {1, 8}
    assert set(drawn.frame["quantity"]) == {"ttft_ms", "ms_per_token", "end_to_end_s"}
    points = drawn.frame[["p5", "p25", "p50", "p75", "p95"]].to_numpy(dtype=float)
    assert (np.diff(points, axis=1) >= 0).all()
    assert "not the uncertainty" in drawn.caption
    assert "steps-3_nccl-tuned" not in set(drawn.frame["cell"])
    assert all(axis.get_ylim()[0] == 0 for axis in drawn.figure.axes)


def test_drift_is_seen_in_time_order(all_of_it):
    drawn = checks.drift(all_of_it)
    assert drawn.frame["hours"].is_monotonic_increasing
    assert drawn.frame.groupby("cell")["off_percent"].mean().abs().max() < 0.1
    slope = np.polyfit(drawn.frame["hours"], drawn.frame["off_percent"], 1)[0] * drawn.frame["hours"].max()
    assert -3.5 < slope < 0.5, "the invented machine slows down by 1.5 %"
    assert drawn.figure.axes[0].get_ylabel().endswith("(%)")


def test_predicted_speed_agrees_with_the_measured_one(all_of_it):
    drawn = checks.predicted(all_of_it)
    assert drawn.frame["difference_percent"].abs().max() < 6
    assert "Median difference" in drawn.caption


def test_a_profile_looks_the_same_whatever_is_drawn():
    assert looks(["a", "b"])["b"] == looks(["a", "b", "c"])["b"]
    many = looks([f"p{i}" for i in range(10)])
    assert len({(x.colour, x.marker) for x in many.values()}) == 10


def test_profiles_that_did_nothing_are_hollow_and_said_so(on_cpu):
    root, study, outcome = on_cpu
    with house_style():
        drawn = by_steps.decode_tokens_per_s(material(root, study, outcome))
    assert "ll-ring (not exercised)" in legend_texts(drawn.figure)
    assert "not exercised (no NCCL on this device)" in drawn.caption
    assert markers(drawn.figure.axes[0], "#D55E00") == {"#ffffff"}


def test_equal_configurations_are_not_compared_as_profiles(on_cpu):
    root, study, outcome = on_cpu
    with house_style():
        drawn = grid.interaction(material(root, study, outcome))
    assert drawn.title == "The same configuration measured twice"
    assert "the same configuration" in drawn.caption
    assert "independently" not in drawn.caption


def test_confirmed_profiles_are_filled(all_of_it):
    drawn = by_steps.decode_tokens_per_s(all_of_it)
    assert markers(drawn.figure.axes[0], "#D55E00") == {"#d55e00"}


def test_one_launch_has_no_interval_and_says_why(on_cpu):
    root, study, outcome = on_cpu
    with house_style():
        drawn = by_steps.decode_tokens_per_s(material(root, study, outcome))
    assert drawn.frame["low"].isna().all()
    assert "the variation from launch to launch is unknown" in drawn.caption


def test_a_cycle_without_timed_stages_is_drawn_whole(on_cpu):
    root, study, outcome = on_cpu
    with house_style():
        drawn = cycle.cycle_stages(material(root, study, outcome))
    assert legend_texts(drawn.figure) == ["whole cycle (no stage was timed)"]
    assert "No source told the stages" in drawn.caption


@pytest.mark.parametrize(
    ("draw", "why"),
    [
        (checks.drift, "one launch per cell"),
        (load.concurrency, "one concurrency level"),
        (accepted.verify_cost, "fewer than two numbers of steps"),
    ],
)
def test_what_has_no_data_says_so(on_cpu, draw, why):
    root, study, outcome = on_cpu
    with house_style(), pytest.raises(NotDrawn, match=why):
        draw(material(root, study, outcome))


def test_figures_without_statistics_show_medians(results, tmp_path):
    root, study, _ = results
    for name in ("cells", "requests", "stages", "positions"):
        (tmp_path / f"{name}.csv").write_bytes((root / "tables" / f"{name}.csv").read_bytes())
    with house_style():
        drawn = by_steps.decode_tokens_per_s(material_of(tmp_path, study))
    cells = drawn.frame[drawn.frame["kind"] == "cell"]
    assert cells["low"].isna().all()
    assert cells["value"].notna().sum() == 5
    assert "No interval" in drawn.caption


def material_of(tables_dir, study):
    from quietgate.draw.drawn import Material

    return Material.read(tables_dir, study, None, None)


def test_redrawn_figures_are_the_same_bytes(results, tmp_path, monkeypatch, marks):
    import matplotlib

    root, study, outcome = results
    first = draw_all(root / "tables", tmp_path / "a", study, outcome, marks)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "red", "pdf.fonttype": 3}):
        again = draw_all(root / "tables", tmp_path / "b", study, outcome, marks)
    assert first == again
    assert [f["name"] for f in first["figures"]] == list(FIGURES)
    assert first["not_drawn"] == []
    assert records.problem(first, "figures") is None
    for entry in first["figures"]:
        for extension, wanted in entry["files"].items():
            assert sha256(tmp_path / "a" / f"{entry['name']}.{extension}") == wanted
    pdf = (tmp_path / "a" / "decode_tokens_per_s.pdf").read_bytes()
    assert b"/FontType 42" in pdf or b"/TrueType" in pdf or b"/CIDFontType2" in pdf
    assert b"/Type3" not in pdf
    assert b"CreationDate" not in pdf
    assert b"<dc:date>" not in (tmp_path / "a" / "decode_tokens_per_s.svg").read_bytes()
    caption = (tmp_path / "a" / "decode_tokens_per_s.txt").read_text()
    assert caption.startswith("Decode speed by steps and NCCL profile. Decode tok/s")
    frame = pd.read_csv(tmp_path / "a" / "decode_tokens_per_s.csv")
    assert {"cell", "steps", "nccl", "value", "low", "high", "status"} <= set(frame.columns)


def test_what_can_no_longer_be_drawn_leaves_no_old_file(on_cpu, tmp_path):
    root, study, outcome = on_cpu
    (tmp_path / "drift.png").write_bytes(b"of an earlier run")
    record = draw_all(root / "tables", tmp_path, study, outcome)
    assert not (tmp_path / "drift.png").exists()
    assert {e["name"] for e in record["not_drawn"]} == {"drift", "concurrency", "verify_cost", "transfer"}


def test_a_panel_for_each_value_of_another_axis(tmp_path):
    axes = {"graphs": {"flag": "disable-cuda-graph", "values": [None, True]}}
    settings = config([0, 1, 2], launches=2, concurrency=(1, 4), axes=axes)
    study, outcome = made(tmp_path, settings, transfer={"untuned": 0.5, "tuned": 0.12})
    shown = material(tmp_path, study, outcome)
    with house_style():
        drawn = by_steps.decode_tokens_per_s(shown)
        for draw in FIGURES.values():
            draw(shown)
    assert [a.get_title() for a in drawn.figure.axes] == ["graphs none", "graphs on"]
    assert len(drawn.frame[drawn.frame["kind"] == "cell"]) == 12


def test_nothing_measured_draws_nothing_and_raises_nothing(tmp_path):
    study, _ = made(
        tmp_path, config([0], launches=1, profiles=("tuned",)), analysed=False, failed={(0, "tuned"): "port"}
    )
    record = draw_all(tmp_path / "tables", tmp_path / "figures", study)
    assert record["figures"] == []
    assert len(record["not_drawn"]) == len(FIGURES)
