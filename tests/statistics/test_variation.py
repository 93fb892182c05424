"""Which part of a cycle carries the variation from launch to launch."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from quietgate.analyse.variation import PARTS, variation, warnings


def passes(launches, cell="a", concurrency=1, machine=1, **changed):
    """One pass per launch; each launch is (target, draft, extend, other) in ms."""
    rows = []
    for number, (target, draft, extend, other) in enumerate(launches, start=1):
        rows.append(
            {
                "cell": cell, "launch": f"l{number}", "concurrency": concurrency, "machine": machine,
                "status": "passed", "cycle_ms": sum(x or 0.0 for x in (target, draft, extend, other)),
                "target_ms": target, "draft_ms": draft, "extend_ms": extend,
            }
            | changed
        )  # fmt: skip
    return pd.DataFrame(rows).astype({"draft_ms": float, "extend_ms": float})


def only(frame):
    (row,) = variation(frame).to_dict("records")
    return row


def test_the_part_that_varies_has_the_variance():
    row = only(passes([(2, 0.5, 0.5, 1.0), (2, 0.5, 0.5, 3.0)]))
    assert [row[f"{p}_percent"] for p in PARTS] == pytest.approx([0, 0, 0, 100])
    assert row["cycle_ms"] == 5.0
    assert row["cycle_sd_ms"] == pytest.approx(np.std([4, 6], ddof=1))
    assert row["cycle_sd_percent"] == pytest.approx(100 * np.sqrt(2) / 5)


def test_shares_add_up_and_may_be_negative():
    rng = np.random.default_rng(0)
    launches = rng.uniform(1, 2, size=(8, 4))
    launches[:, 0] = 3 - launches[:, 3] / 2
    row = only(passes(launches.tolist()))
    shares = [row[f"{p}_percent"] for p in PARTS]
    assert sum(shares) == pytest.approx(100)
    assert shares[0] < 0


def test_differences_between_cells_and_machines_are_no_variation():
    a, b = [(2, 0.5, 0.5, 1.0), (2, 0.5, 0.5, 1.1)], [(9, 0.5, 0.5, 1.0), (9, 0.5, 0.5, 1.1)]
    both = pd.concat([passes(a), passes(b, cell="b"), passes(b, machine=2)])
    both.loc[both["machine"] == 2, "launch"] += "0"
    row = only(both)
    assert row["target_percent"] == pytest.approx(0, abs=1e-9)
    assert (row["cells"], row["launches"]) == (2, 6)


def test_repeats_are_one_launch():
    once = passes([(2, 0.5, 0.5, 1.0), (2, 0.5, 0.5, 2.0)])
    again = passes([(2, 0.5, 0.5, 1.2), (2, 0.5, 0.5, 2.2)])
    assert only(pd.concat([once, again]))["launches"] == 2


def test_without_speculation_there_is_no_draft_and_an_untimed_stage_is_outside():
    plain = only(passes([(2, None, None, 1.0), (3, None, None, 1.0)]))
    assert (plain["target_percent"], plain["draft_percent"]) == (pytest.approx(100), None)
    untimed = passes([(2, None, None, 1.0), (3, None, None, 1.0)], target_ms=None)
    assert (only(untimed)["other_percent"], only(untimed)["target_percent"]) == (pytest.approx(100), None)
    assert warnings(variation(untimed)) == [], "no stage was timed"


def test_single_launches_failed_ones_and_unknown_machines_say_nothing():
    two = [(2, 0.5, 0.5, 1.0), (2, 0.5, 0.5, 3.0)]
    assert variation(passes(two[:1])).empty
    assert variation(passes(two, status="failed")).empty
    assert variation(passes(two, machine=None)).empty
    assert only(passes(two[:1] * 2))["other_percent"] is None
    assert warnings(variation(passes(two[:1]))) == []


def test_a_noisy_host_is_told_and_noisy_stages_are_not_put_down_to_it():
    host = passes([(2, 0.5, 0.5, 1.0), (2, 0.5, 0.5, 3.0)])
    (told,) = warnings(variation(host))
    assert "at 1 stream by 28 % of a cycle (sd), of which 100 % lies outside the timed stages" in told
    assert warnings(variation(passes([(2, 0.5, 0.5, 1.0), (4, 0.5, 0.5, 1.0)]))) == []
    assert warnings(variation(passes([(2, 0.5, 0.5, 1.0), (2, 0.5, 0.5, 1.05)]))) == []
