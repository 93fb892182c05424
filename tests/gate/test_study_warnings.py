"""What is inert or dangerous in a launch is said with its reason, and nothing else is."""

from __future__ import annotations

import shlex

import pytest

from quietgate.study.warnings import warnings

QUIET = {"NCCL_CUMEM_ENABLE": "1", "NCCL_NVLS_ENABLE": "0"}
ALONE = "--disable-custom-all-reduce --max-running-requests 8 --mem-fraction-static 0.8"


def told(flags: str = "", env: dict[str, str] | None = None, **facts: object) -> list[str]:
    argv = shlex.split(f"python -m sglang.launch_server --model-path llama --tp-size 8 {ALONE} {flags}")
    return warnings({"argv": argv, "env": {**QUIET, **(env or {})}, "steps": [0, 2], **facts})


def test_a_plain_launch_has_only_the_remarks_on_cumem() -> None:
    assert all("overwritten by SGLang before" in note for note in told())


@pytest.mark.parametrize(
    ("flags", "env", "says"),
    [
        ("", {"NCCL_PROTO": "LL,LL128,Simple"}, "corrupt data"),
        ("", {"NCCL_PROTO": "LL", "NCCL_BUFFSIZE": "16777216"}, "16 MiB per channel"),
        ("", {"NCCL_PROTO": "LL", "NCCL_ALGO": "NVLS"}, "stops at the first collective"),
        ("", {"NCCL_PROTO": "LL"}, "time to first token"),
        ("", {"NCCL_ALGO": "Tree"}, 'NCCL_ALGO: "ring,tree;allreduce:tree"'),
        ("", {"NCCL_ALGO": "NVLSTree,tree"}, 'NCCL_ALGO: "ring,nvlstree,tree;allreduce:nvlstree,tree"'),
        ("", {"NCCL_ALGO": "^Ring,NVLS,CollNetDirect,PAT"}, "leaves AllGather nothing"),
        ("", {"NCCL_ALGO": "Ring;allgather:tree"}, 'NCCL_ALGO: "ring,tree;allreduce:tree"'),
        (
            "",
            {"NCCL_ALGO": "allreduce:tree", "NCCL_PROTO": "Simple"},
            'first: NCCL_ALGO: "ring,tree;allreduce',
        ),
        ("", {"NCCL_NTHREADS": "512"}, "NCCL's default"),
        ("", {"NCCL_P2P_LEVEL": "SYS"}, "changes nothing where NVLink"),
        ("", {"NCCL_MAX_NCHANNELS": "16"}, "only lower"),
        ("", {"NCCL_IB_HCA": "mlx5_0"}, "no network is used"),
        ("", {"NCCL_FUTURE_KNOB": "1"}, "nothing reads it"),
        ("", {"NCCL_TOPO_FILE": "/nowhere/topo.xml"}, "no file /nowhere/topo.xml"),
        ("", {"NCCL_DEBUG": "WARN"}, "needs INFO"),
        ("", {"NCCL_DEBUG_SUBSYS": "COLL"}, "lacks INIT, ENV"),
        ("", {"SGLANG_SIMULATE_ACC_LEN": "3"}, "does not exist"),
        ("", {"EAGLE3_PROFILE": "1"}, "unknown to every SGLang release"),
        ("", {"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1"}, "--context-length"),
        ("", {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}, "overwritten by SGLang with 8"),
        ("", {"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0"}, "constant 200"),
        ("--num-continuous-decode-steps 4", {}, "read nowhere"),
        ("--enable-mixed-chunk", {}, "turned off"),
        ("--speculative-algorithm EAGLE", {}, "the target as its own draft"),
        ("--enable-torch-symm-mem", {}, "away from NCCL"),
        ("--enable-deterministic-inference", {}, "allreduce:tree"),
        ("--enable-symm-mem", {"NCCL_CUMEM_ENABLE": "0"}, "over 0"),
        ("--model-path /m/Kimi-K2.5-int4", {}, "FlashInfer"),
        ("--page-size 1 --page-size 16", {}, "the last, 16, counts"),
    ],
)
def test_each_is_said_once(flags: str, env: dict[str, str], says: str) -> None:
    assert sum(says in note for note in told(flags, env)) == 1


def test_what_makes_it_right_silences_it() -> None:
    assert not any("LL128" in n for n in told(env={"NCCL_PROTO": "LL,LL128"}, nvlink=True))
    assert not any("LL128" in n for n in told(env={"NCCL_PROTO": "^LL128"}))
    assert not any("EAGLE3" in n for n in told(env={"EAGLE3_PROFILE": "0"}))
    off = "--model-path kimi-k2 --enforce-disable-flashinfer-allreduce-fusion"
    assert not any("FlashInfer" in n for n in told(off))


@pytest.mark.parametrize(
    ("flags", "env"),
    [
        ("", {"NCCL_ALGO": "ring,tree;allreduce:tree"}),
        ("", {"NCCL_ALGO": "ring,tree;allreduce:tree", "NCCL_PROTO": "Simple"}),
        ("", {"NCCL_ALGO": "Ring"}),
        ("", {"NCCL_ALGO": "NVLS,Tree"}),
        ("", {"NCCL_ALGO": "^Tree"}),
        ("", {"NCCL_ALGO": ""}),
        ("", {"NCCL_ALGO": "allreduce:tree"}),
        ("", {"NCCL_ALGO": "allreduce:tree", "NCCL_PROTO": "allreduce:Simple"}),
        ("--tp-size 1", {"NCCL_ALGO": "Tree"}),
        ("--enable-deterministic-inference", {"NCCL_ALGO": "Tree"}),
    ],
)
def test_an_algorithm_is_left_for_the_gathering_of_logits(flags: str, env: dict[str, str]) -> None:
    assert not any("AllGather" in note for note in told(flags, env))


def test_sglangs_own_defaults_and_the_custom_kernel() -> None:
    argv = shlex.split("python -m sglang.launch_server --model-path llama --tp 2")
    notes = warnings({"argv": argv, "env": {}, "steps": [0, 2], "profile": "default"})
    assert any("NCCL_CUMEM_ENABLE=0 and NCCL_NVLS_ENABLE=0" in n for n in notes)
    assert any("custom kernel" in n for n in notes)
    assert any("max_running_requests to 48" in n for n in notes)
    assert any("--mem-fraction-static is not given" in n for n in notes)
    assert not any("48" in n for n in warnings({"argv": argv, "env": {}, "steps": [0]}))


@pytest.mark.parametrize(("device", "tp"), [("cpu", 2), ("cuda", 1)])
def test_a_profile_without_nccl_does_nothing(device: str, tp: int) -> None:
    argv = shlex.split(f"python -m sglang.launch_server --model-path llama --tp-size {tp}")
    notes = warnings({"argv": argv, "env": {"NCCL_PROTO": "Simple"}, "steps": [0], "device": device})
    assert sum("does nothing" in n or "does \nnothing" in n for n in notes) == 1
    assert not any("custom kernel" in n or "NCCL_CUMEM_ENABLE" in n for n in notes)
