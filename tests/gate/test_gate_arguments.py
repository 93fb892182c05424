"""Requested against effective arguments, in every spelling and type that SGLang has."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from quietgate.gate.arguments import arguments_of, compare, same
from quietgate.gate.rewrites import unasked
from quietgate.study.flags import effective_name, parse

EFFECTIVE: dict[str, Any] = {
    "model_path": "/models/target",
    "tp_size": 2,
    "mem_fraction_static": 0.88,
    "trust_remote_code": True,
    "disable_custom_all_reduce": False,
    "enable_mixed_chunk": False,
    "cuda_graph_bs_decode": [1, 2, 4],
    "cuda_graph_max_bs_decode": 4,
    "json_model_override_args": '{"a": 1}',
    "speculative_algorithm": "EAGLE3",
    "speculative_num_steps": 2,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 3,
    "speculative_draft_model_path": "/models/eagle3",
    "speculative_draft_model_revision": "main",
    "max_running_requests": 48,
    "attention_backend": "fa3",
    "device": "cuda",
    "dist_init_addr": "127.0.0.1:40123",
    "enable_fused_qk_norm_rope": False,
    "host": "127.0.0.1",
    "port": 31000,
}


def compared(flags: str, axis: frozenset[str] = frozenset(), **effective: Any) -> dict[str, Any]:
    return compare(parse(shlex.split(flags)), EFFECTIVE | effective, axis)


@pytest.mark.parametrize(
    "flags",
    [
        "--model-path /models/target",
        "--model /models/target/",
        "--model_path=/models/target",
        "--tensor-parallel-size 2",
        "--tp 2",
        "--tp-s 2",
        "--mem-fraction-static .88",
        "--trust-remote-code",
        "--cuda-graph-bs 1 2 4",
        "--cuda-graph-max-bs 4",
        """--json-model-override-args '{"a":1}'""",
        "--speculative-draft-model /models/eagle3",
        "--dist-init-addr 127.0.0.1:{dist_port}",
        "--no-enable-fused-qk-norm-rope",
        "--host 0.0.0.0 --port 8000",
        "--tp-size 4 --tp-size 2",
    ],
)
def test_the_same_in_other_words(flags: str) -> None:
    result = compared(flags)
    assert result["different"] == result["rewritten"] == []


@pytest.mark.parametrize(
    ("flags", "argument"),
    [
        ("--model-path /models/other", "model_path"),
        ("--tp-size 4", "tp_size"),
        ("--disable-custom-all-reduce", "disable_custom_all_reduce"),
        ("--cuda-graph-bs 1 2 4 8", "cuda_graph_bs_decode"),
        ("--mem-fraction-static 0.9", "mem_fraction_static"),
        ("--attention-backend triton", "attention_backend"),
        ("--speculative-num-steps 3", "speculative_num_steps"),
        ("--dist-init-addr 10.0.0.1:{dist_port}", "dist_init_addr"),
        ("--tp-size 2 --tp-size 8", "tp_size"),
    ],
)
def test_an_unexplained_difference_is_found(flags: str, argument: str) -> None:
    assert [d["argument"] for d in compared(flags)["different"]] == [argument]


@pytest.mark.parametrize(
    ("flags", "effective", "why"),
    [
        ("--speculative-num-draft-tokens 8", {}, "steps + 1"),
        ("--speculative-algorithm NEXTN", {"speculative_algorithm": "EAGLE"}, "other name"),
        ("--enable-mixed-chunk", {}, "mixed chunked prefill off"),
        ("--attention-backend intel_amx", {"device": "cpu"}, "on a CPU"),
    ],
)
def test_sglangs_own_rewriting_is_named(flags: str, effective: dict[str, Any], why: str) -> None:
    result = compared(flags, **effective)
    assert result["different"] == []
    assert why in result["rewritten"][0]["why"]


def test_a_rewritten_axis_is_a_difference_all_the_same() -> None:
    axis = frozenset({"speculative_num_draft_tokens"})
    result = compared("--speculative-num-draft-tokens 8", axis)
    assert result["different"][0]["effective"] == 3
    assert "steps + 1" in result["different"][0]["why"]


def test_what_is_not_reported_proves_nothing() -> None:
    result = compared("--some-new-flag 3 --tp 2 --model m --model /models/target")
    assert result["unreported"] == ["some_new_flag"]
    assert result["repeated"] == {"model_path": ["m", "/models/target"]}


def test_abbreviations_are_resolved_and_named() -> None:
    assert effective_name("speculative_num_st", EFFECTIVE) == (
        "speculative_num_steps",
        "abbreviation of --speculative-num-steps",
    )
    assert effective_name("speculative_num", EFFECTIVE) == (None, None)  # steps or draft tokens?


@pytest.mark.parametrize(
    ("asked", "effective", "expected"),
    [
        (True, "auto", True),
        (True, None, False),
        ("true", True, True),
        ("0", False, True),
        ("1e-1", 0.1, True),
        ("x", 1, False),
        ("none", None, True),
        ("8", [8], True),
        (["1", "2"], [1, 2], True),
        (["1", "2"], [1, 3], False),
        ("~/m", "~/m", False),  # the launch expands it
    ],
)
def test_types(asked: bool | str | list[str], effective: Any, expected: bool) -> None:
    assert same(asked, effective) is expected


def test_what_sglang_sets_unasked() -> None:
    found = {e["argument"] for e in unasked(parse(["--tp", "2"]), EFFECTIVE)}
    assert found == {"max_running_requests", "speculative_draft_model_revision"}
    assert unasked(parse([]), EFFECTIVE | {"speculative_algorithm": None}) == []


def test_no_secret_and_no_state_is_kept() -> None:
    info = {"tp_size": 2, "api_key": "s", "admin_api_key": "s", "internal_states": [{}], "_x": 1}
    assert arguments_of(info) == {"tp_size": 2}
