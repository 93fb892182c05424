"""Drift, agreement and baselines over the gates of several cells."""

from __future__ import annotations

from typing import Any

from quietgate.gate.agreement import agreement, baseline_of, first_difference
from quietgate.gate.drift import consequences, declared_arguments, describe, drift


def gate(cell: str, launch: str = "l1", **effective: Any) -> dict[str, Any]:
    stage = {"name": "arguments", "evidence": {"effective": {"tp_size": 2, **effective}}}
    return {"cell": cell, "launch": launch, "stages": [stage]}


CONFIG = {
    "server": {"speculative": {"args": {"speculative-attention-mode": "decode"}}},
    "grid": {"axes": {"bs": {"flag": "cuda-graph-max-bs"}, "v": {"variable": "X"}}},
}


def test_only_undeclared_differences_are_drift() -> None:
    records = [
        gate("a", speculative_num_steps=0, max_running_requests=None, port=1, random_seed=4),
        gate("b", speculative_num_steps=2, max_running_requests=48, port=2, random_seed=5),
        gate("c", speculative_num_steps=5, max_running_requests=48, port=3, cuda_graph_max_bs_decode=8),
        {"cell": "d", "launch": "l1", "stages": []},
    ]
    found = drift(records, declared_arguments(CONFIG))
    assert [d["argument"] for d in found] == ["max_running_requests"]
    assert found[0]["values"] == [
        {"value": 48, "cells": ["b/l1", "c/l1"]},
        {"value": None, "cells": ["a/l1"]},
    ]
    assert not found[0]["within_cell"]
    assert describe(found[0]) == "max_running_requests: 48 in b/l1, c/l1, None in a/l1"


def test_what_only_follows_speculation_is_told_not_refused() -> None:
    records = [
        gate("a", speculative_algorithm=None, disable_overlap_schedule=False, page_size=1),
        gate("b", speculative_algorithm="EAGLE3", disable_overlap_schedule=True, page_size=16),
        gate("c", speculative_algorithm="EAGLE3", disable_overlap_schedule=True, page_size=16),
    ]
    declared = declared_arguments(CONFIG)
    assert "speculative_attention_mode" in declared
    assert [d["argument"] for d in drift(records, declared)] == ["page_size"]
    told = consequences(records, declared)
    assert [d["argument"] for d in told] == ["disable_overlap_schedule"]
    assert "no overlap scheduler" in describe(told[0])
    records.append(gate("d", speculative_algorithm="EAGLE3", disable_overlap_schedule=False, page_size=1))
    assert {d["argument"] for d in drift(records, declared)} == {
        "page_size",
        "disable_overlap_schedule",
    }


def test_launches_of_one_cell_that_differ() -> None:
    found = drift([gate("a", x=[1]), gate("a", "l2", x=[1, 2]), gate("b", x=[1])], ())
    assert found[0]["within_cell"]


def test_an_argument_that_only_one_reports() -> None:
    found = drift([gate("a", x=1), gate("b")], ())
    assert found[0]["values"][1]["value"] == "(not reported)"


def prints(*outputs: tuple[str, list[int] | None, str]) -> dict[str, Any]:
    return {"fingerprints": [{"prompt_id": p, "token_ids": ids, "text": text} for p, ids, text in outputs]}


def test_the_first_differing_token_of_each_prompt() -> None:
    here = prints(("p1", [1, 2, 3, 4], ""), ("p2", [1, 9, 3], ""), ("p3", None, "abc"), ("p4", [1], ""))
    there = prints(("p1", [1, 2, 3], ""), ("p2", [1, 2, 3], ""), ("p3", [7], "abd"))
    found = {f["prompt_id"]: f for f in agreement(here, there)}
    assert found["p1"]["same"]
    assert found["p1"]["length"] == 3
    assert (found["p2"]["first_difference"], found["p2"]["here"], found["p2"]["there"]) == (1, 9, 2)
    assert (found["p3"]["compared"], found["p3"]["first_difference"]) == ("text", 2)
    assert "p4" not in found
    assert first_difference("", "x") is None


def test_the_baseline_is_of_the_same_profile_and_axes() -> None:
    cells = [
        {"id": "0-a-4", "steps": 0, "nccl": "a", "axes": {"topk": 4, "page": 1}},
        {"id": "0-a-16", "steps": 0, "nccl": "a", "axes": {"topk": 4, "page": 16}},
        {"id": "0-b", "steps": 0, "nccl": "b", "axes": {"topk": 4, "page": 1}},
    ]
    cell = {"id": "2-a", "steps": 2, "nccl": "a", "axes": {"topk": 8, "page": 16}}
    assert (baseline_of(cell, cells) or {})["id"] == "0-a-16"
    assert (baseline_of({**cell, "axes": {"topk": 4, "page": 1}}, cells) or {})["id"] == "0-a-4"
    assert baseline_of({**cell, "nccl": "c"}, cells) is None
