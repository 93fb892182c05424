"""Counts, bounds and text of the decode proof."""

from __future__ import annotations

import pytest

from quietgate.gate.decode import measure, problems
from quietgate.gate.degenerate import loop_in_answer, period_of_loop
from quietgate.gate.plan import GatePlan, expected_ranks


def plan(steps: int, **fields: object) -> GatePlan:
    return GatePlan(steps=steps, argv=((),), env=({},), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("steps", "tokens", "cycles", "says"),
    [
        (0, 48, None, None),
        (0, 48, 20, "without speculation asked for"),
        (2, 48, 20, None),
        (2, 48, None, "is not on"),
        (2, 48, 0, "is not on"),
        (2, 48, 47, None),  # nothing accepted
        (2, 48, 49, None),  # the overlap scheduler ran ahead
        (2, 48, 60, "fewer than one token"),
        (2, 49, 16, None),  # everything accepted: 48 / 16 = 3
        (2, 50, 16, "more than 2 steps can give"),
        (5, 1, None, "no decode happened"),
        (0, 0, None, "no decode happened"),
    ],
)
def test_counts(steps: int, tokens: int, cycles: int | None, says: str | None) -> None:
    summary = {"completion_tokens": tokens, "spec_verify_ct": cycles}
    found = problems(summary, plan(steps))
    assert [says in p for p in found] == ([True] if says else [])


def test_a_lookup_draft_may_give_as_many_as_it_drafts() -> None:
    assert plan(3, algorithm="NGRAM", draft_tokens=12).most_tokens_per_cycle == 12
    assert plan(3, algorithm="EAGLE3", draft_tokens=12).most_tokens_per_cycle == 4


def test_an_answer_is_kept_as_fingerprint() -> None:
    answer = {
        "text": "a b",
        "output_ids": [5, 6],
        "meta_info": {"completion_tokens": 2, "spec_verify_ct": 1, "finish_reason": {"type": "length"}},
    }
    found = measure("p1", answer)
    assert found["fingerprint"]["token_ids"] == [5, 6]
    assert len(found["fingerprint"]["text_sha256"]) == 64
    assert found["summary"]["tokens_per_cycle"] == 1.0
    assert measure("p1", {"text": "", "meta_info": {}})["fingerprint"]["token_ids"] is None


VARIED = list(range(100, 148))


@pytest.mark.parametrize(
    ("ids", "period"),
    [
        (VARIED, None),
        ([7] * 48, 1),
        (VARIED[:12] + [1, 2, 3] * 12, 3),
        (VARIED[:30] + [1, 2, 3] * 6, None),  # less than half, less than 24 tokens
        ([1, 2, 3, 4, 5, 6, 7, 8] * 6, 8),
        ([1, 2, 3, 4, 5, 6, 7, 8, 9] * 6, None),
        ([1, 2] * 11, None),  # too short to tell
        ([1, 2] * 30 + [3], None),
    ],
)
def test_periods(ids: list[int], period: int | None) -> None:
    assert period_of_loop(ids) == period


def test_end_of_text_tokens_are_no_loop() -> None:
    ids = [5, 6, 7] + [2] * 45
    assert loop_in_answer(ids, "Yes, it is.") is None
    assert "repeated" in (loop_in_answer([5] + [9, 8] * 24, "x" + " ha ho" * 24) or "")
    assert loop_in_answer(None, " ".join(["the cat"] * 30)) is not None
    assert loop_in_answer(None, "a short answer") is None


@pytest.mark.parametrize(
    ("flags", "ranks"),
    [
        ("", 1),
        ("--tp-size 8", 8),
        ("--tp 4 --pp-size 2", 8),
        ("--tensor-parallel-size=2 --dp 2", 4),
        ("--tp 8 --dp 8 --enable-dp-attention", 8),
    ],
)
def test_ranks_of_a_command(flags: str, ranks: int) -> None:
    assert expected_ranks(["python", *flags.split()]) == ranks
