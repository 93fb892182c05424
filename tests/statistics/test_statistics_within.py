"""Resampling inside a launch, and the reference observations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from quietgate.analyse.reference import derive, marks, read_reference
from quietgate.analyse.within import within_launches
from quietgate.errors import BadInput

KIMI = Path(__file__).parents[2] / "config/reference/kimi-k2.5-eagle3.csv"


def requests(launches: int, rng: np.random.Generator, prompts: int = 40, repeats: int = 4):
    shape = (launches, repeats, prompts)
    prompt = rng.normal(0, 0.15, (launches, 1, prompts))
    log = 4.5 + prompt + rng.normal(0, 0.02, shape)
    at = np.indices(shape).reshape(3, -1)
    return pd.DataFrame(
        {
            "cell": "c",
            "launch": [f"l{i}" for i in at[0]],
            "concurrency": 1,
            "repeat": at[1] + 1,
            "prompt_id": [f"q{i}" for i in at[2]],
            "decode_tokens_per_s": np.exp(log).ravel(),
        }
    )


def test_interval_covers_other_prompts_of_the_same_kind():
    frame = within_launches(requests(300, np.random.default_rng(1)))
    covered = (frame["low"] <= np.exp(4.5)) & (np.exp(4.5) <= frame["high"])
    assert 0.9 <= covered.mean() <= 0.98
    assert frame["prompt_sd"].mean() == pytest.approx(0.15, rel=0.05)
    assert (frame["repeats"] == 4).all()


def test_uneven_launches_and_missing_requests_are_summarised():
    frame = requests(2, np.random.default_rng(2))
    frame = frame.drop(frame.index[[3, 50]])
    frame = frame[~((frame["launch"] == "l1") & (frame["repeat"] == 4))]
    out = within_launches(frame)
    assert out["repeats"].tolist() == [4, 3]
    assert (out["low"] <= out["estimate"]).all()
    assert out.equals(within_launches(frame.sample(frac=1, random_state=0)))


def test_a_prompt_sent_twice_in_a_pass_counts_once():
    frame = requests(2, np.random.default_rng(3), prompts=8)
    again = frame.assign(decode_tokens_per_s=frame["decode_tokens_per_s"] * 1.0)
    pd.testing.assert_frame_equal(
        within_launches(pd.concat([frame, again])), within_launches(frame), check_exact=False
    )


def test_the_hand_run_studys_numbers_follow_from_its_own():
    found = {d.name: d for d in derive(read_reference(KIMI))}
    assert round(found["tuning_gain_without_speculation"].percent, 1) == 41.2
    assert found["tuning_gain_without_speculation"].agrees
    assert round(found["gain_of_2_steps_tuned"].percent, 1) == 5.9
    assert found["gain_of_2_steps_tuned"].agrees
    verify = found["verify_saving_by_tuning"]
    assert round(verify.percent, 1) == 24.4
    assert verify.agrees is False
    assert "about 27 %" in verify.text
    assert "24.4 %" in verify.text
    assert found["gain_of_5_steps_tuned"].percent < 0


def test_marks_are_the_observed_speeds():
    drawn = marks(read_reference(KIMI))
    assert set(zip(drawn["steps"], drawn["nccl"], drawn["value"], strict=True)) == {
        (0, "untuned", 62.9),
        (0, "tuned", 88.8),
        (5, "tuned", 86.7),
        (5, "tuned", 94.0),
        (2, "tuned", 94.0),
    }


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("quantity,steps\na,1\n", "lacks the column nccl"),
        ("quantity,steps,nccl,value,unit,kind,note\na,1,x,5,ms,guessed,\n", "row 1: kind 'guessed'"),
        ("quantity,steps,nccl,value,unit,kind,note\na,1,x,fast,ms,observed,\n", "row 1: value"),
    ],
)
def test_bad_reference_files_are_named(tmp_path, text, wrong):
    path = tmp_path / "reference.csv"
    path.write_text(text)
    with pytest.raises(BadInput, match=wrong):
        read_reference(path)
    with pytest.raises(BadInput, match="no such file"):
        read_reference(tmp_path / "absent.csv")
