"""NCCL's testimony, who does the all-reduce, and profiles compared by NCCL's choices."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from quietgate import gate
from quietgate.gate.bypass import by_arguments, decode_bytes, reason
from quietgate.gate.choices import compare_profiles, profile_verdict, sentences
from quietgate.gate.plan import GatePlan
from quietgate.gate.switched_off import still_used
from quietgate.gate.testimony import conclude, equal, judge

WANTED = {"NCCL_PROTO": "LL", "NCCL_MAX_NCHANNELS": "16"}
GOOD = {"NCCL_PROTO": "LL", "NCCL_MAX_NCHANNELS": "16", "NCCL_CUMEM_ENABLE": "0"}
SAID = {"init_complete_count": 2}


def verdict_of(variables: list[dict[str, Any]], name: str) -> str:
    return next(v["verdict"] for v in variables if v["name"] == name)


def test_every_rank_confirms() -> None:
    found = judge(WANTED, frozenset({"NCCL_ALGO"}), {"r0": GOOD, "r1": GOOD})
    assert {v["verdict"] for v in found} == {"confirmed"}
    assert conclude(found, None, SAID)[0] == "confirmed"


@pytest.mark.parametrize(
    ("logged", "name", "verdict"),
    [
        ({"r0": GOOD, "r1": GOOD | {"NCCL_PROTO": "Simple"}}, "NCCL_PROTO", "contradicted"),
        ({"r0": GOOD | {"NCCL_MAX_NCHANNELS": "8"}, "r1": GOOD}, "NCCL_MAX_NCHANNELS", "contradicted"),
        ({"r0": GOOD | {"NCCL_ALGO": "Tree"}, "r1": GOOD}, "NCCL_ALGO", "contradicted"),
        ({"r0": {"NCCL_PROTO": "LL"}, "r1": {"NCCL_PROTO": "LL"}}, "NCCL_MAX_NCHANNELS", "never_read"),
        ({"r0": GOOD, "r1": {"NCCL_PROTO": "LL"}}, "NCCL_MAX_NCHANNELS", "confirmed"),
    ],
)
def test_each_variable_gets_its_verdict(logged: dict[str, dict[str, str]], name: str, verdict: str) -> None:
    found = judge(WANTED, frozenset({"NCCL_ALGO"}), logged)
    assert verdict_of(found, name) == verdict
    expected = "contradicted" if verdict == "contradicted" else "confirmed"
    assert conclude(found, None, SAID)[0] == expected


def test_what_sglang_adds_is_a_remark() -> None:
    unset = frozenset({"NCCL_CUMEM_ENABLE"})
    assert verdict_of(judge({}, unset, {"r0": GOOD}), "NCCL_CUMEM_ENABLE") == "contradicted"
    found = judge({}, unset, {"r0": GOOD}, added={"NCCL_CUMEM_ENABLE"})
    assert conclude(found, None, SAID) == (
        "confirmed",
        "NCCL_CUMEM_ENABLE: was to be absent, NCCL read 0 (r0); SGLang adds it by itself",
    )


def test_profiles_that_are_not_exercised() -> None:
    found = judge({"NCCL_IB_HCA": "mlx5_0"}, frozenset(), {"r0": {}})
    assert conclude(found, None, SAID) == (
        "not_exercised",
        "NCCL never read NCCL_IB_HCA on this machine",
    )
    good = judge(WANTED, frozenset(), {"r0": GOOD})
    assert conclude(good, "done by FlashInfer", SAID) == ("not_exercised", "done by FlashInfer")
    assert conclude(good, None, {"init_complete_count": 0})[0] == "not_exercised"
    assert conclude(judge({}, frozenset(), {"r0": GOOD}), None, SAID)[0] == "confirmed"


@pytest.mark.parametrize(
    ("wanted", "transports", "verdict"),
    [
        ({"NCCL_P2P_DISABLE": "1"}, {"P2P/IPC": 32}, "not_exercised"),
        ({"NCCL_P2P_DISABLE": "1"}, {"SHM/direct/direct": 32}, "confirmed"),
        ({"NCCL_P2P_DISABLE": "0"}, {"P2P/IPC": 32}, "confirmed"),
        ({"NCCL_SHM_DISABLE": "1"}, {"NET/Socket/0": 2, "SHM/direct/direct": 2}, "not_exercised"),
        ({"NCCL_P2P_LEVEL": "SYS"}, {"P2P/IPC": 32}, "confirmed"),
    ],
)
def test_a_transport_that_is_switched_off_and_used_all_the_same(
    wanted: dict[str, str], transports: dict[str, int], verdict: str
) -> None:
    """Two ranks of one GPU talk over P2P whatever NCCL_P2P_DISABLE says (NCCL 2.30.7)."""
    found = judge(wanted, frozenset(), {"r0": wanted, "r1": wanted})
    still_used(found, transports)
    said, why = conclude(found, None, SAID)
    assert said == verdict
    assert verdict == "confirmed" or "32 times" in why or "2 times" in why
    evidence = {
        "profile_verdict": "confirmed", "variables": judge(wanted, frozenset(), {"r0": wanted}),
        "transports": transports,
    }  # fmt: skip
    older = {"stages": [{"name": "nccl", "evidence": evidence}]}
    assert profile_verdict(older) == verdict


@pytest.mark.parametrize(
    ("name", "asked", "logged", "same"),
    [
        ("NCCL_BUFFSIZE", "0x1000000", "16777216", True),
        ("NCCL_BUFFSIZE", "16777216", "4194304", False),
        ("NCCL_PROTO", "LL", "ll", False),
        ("NCCL_ALGO", "Ring", "Ring", True),
        ("NCCL_ALGO", "ring,tree;allreduce:tree", "ring,tree;allreduce:tree", True),
        ("NCCL_ALGO", "ring,tree;allreduce:tree", "ring,tree", False),
        # A level given as a number is logged by its name.
        ("NCCL_P2P_LEVEL", "4", "SYS", True),
        ("NCCL_P2P_LEVEL", "1", "PIX", True),
        ("NCCL_P2P_LEVEL", "9", "SYS", True),
        ("NCCL_P2P_LEVEL", "2", "SYS", False),
        ("NCCL_NET_GDR_LEVEL", "PHB", "PHB", True),
        ("NCCL_P2P_DISABLE", "1", "1", True),
    ],
)
def test_values_as_nccl_prints_them(name: str, asked: str, logged: str, same: bool) -> None:
    assert equal(name, asked, logged) is same


@pytest.mark.parametrize(
    ("effective", "log", "ranks", "what"),
    [
        ({"disable_custom_all_reduce": True}, "", 8, None),
        ({"disable_custom_all_reduce": False}, "", 8, "custom kernel"),
        ({"disable_custom_all_reduce": False}, "", 3, None),
        (
            {"disable_custom_all_reduce": False},
            "[2026-11-29 17:00:00 TP0] Custom allreduce is disabled because it's not supported on more"
            " than two PCIe-only GPUs.",
            8,
            None,
        ),
        ({"enable_flashinfer_allreduce_fusion": True}, "", 8, "FlashInfer"),
        ({"flashinfer_allreduce_fusion_backend": "trtllm"}, "", 8, "FlashInfer"),
        ({"flashinfer_allreduce_fusion_backend": None}, "", 8, None),
        ({"enable_torch_symm_mem": True}, "", 8, "symmetric memory"),
        ({"enable_mscclpp": True}, "", 8, "MSCCL++"),
    ],
)
def test_who_does_the_all_reduce(effective: dict[str, Any], log: str, ranks: int, what: str | None) -> None:
    found = by_arguments(effective, log, ranks)
    assert (found is None) if what is None else (found is not None and what in found[0])


def choice(size: int, protocol: str = "LL", channels: int = 1, **more: Any) -> dict[str, Any]:
    base = {"collective": "AllReduce", "bytes": size, "algorithm": "RING", "protocol": protocol}
    return base | {"channels": channels, "count": 1} | more


def test_nccls_choices_outweigh_the_arguments(tmp_path: Path) -> None:
    live = SimpleNamespace(log=tmp_path / "absent")

    def subject(**effective: Any) -> Any:
        return SimpleNamespace(live=live, effective=effective, plan=SimpleNamespace(ranks=2))

    custom = subject(disable_custom_all_reduce=False)
    assert "custom kernel" in (reason(custom, {"choices": []}, 8192) or "")
    assert reason(custom, {"choices": [choice(6144)]}, 8192) is None
    assert "custom kernel" in (reason(custom, {"choices": [choice(1 << 20)]}, 8192) or "")
    fused = subject(enable_flashinfer_allreduce_fusion=True)
    assert "FlashInfer" in (reason(fused, {"choices": [choice(6144)]}, 8192) or "")
    plain = subject(disable_custom_all_reduce=True)
    assert reason(plain, {"choices": []}, None) is None  # NCCL before 2.20 logs none
    assert "no all-reduce" in (reason(plain, {"choices": [choice(4)]}, None) or "")
    symmetric = {"choices": [choice(6144), choice(512, None, algorithm="SYMMETRIC:AllReduce_AGxLL_R")]}
    assert "symmetric" in (reason(plain, symmetric, None) or "")


def test_the_size_of_decodes_all_reduce(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps({"torch_dtype": "bfloat16", "text_config": {"hidden_size": 256}})
    )
    plan = GatePlan(steps=2, argv=((),), env=({},), draft_tokens=3, concurrency=(1, 4))
    assert decode_bytes({"model_path": str(tmp_path)}, plan) == 256 * 2 * 3 * 4
    assert decode_bytes({"model_path": str(tmp_path), "dtype": "float32"}, plan) == 256 * 4 * 3 * 4
    assert decode_bytes({"model_path": "meta/llama"}, plan) is None


def record(cell: str, choices: list[dict[str, Any]], **evidence: Any) -> dict[str, Any]:
    found = {"profile_verdict": "confirmed", "choices": choices, "decode_bytes": 8192, **evidence}
    return {"cell": cell, "stages": [{"name": "nccl", "evidence": found}]}


CELLS = [
    {"id": f"{steps}-{nccl}", "steps": steps, "nccl": nccl, "axes": {}}
    for steps in (0, 2)
    for nccl in ("default", "ll-ring", "simple")
]


def test_profiles_that_nccl_serves_alike_cannot_differ() -> None:
    prefill = [choice(1 << 22, "SIMPLE", 16), choice(1 << 22, "LL", 16)]
    gates = [
        record("2-default", [choice(512), choice(6144), prefill[0]]),
        record("2-ll-ring", [choice(512), choice(6144), prefill[1]]),
        record("2-simple", [choice(512, "SIMPLE"), choice(6144, "SIMPLE")]),
        record("0-default", [choice(512)]),
        record("0-simple", [], profile_verdict="not_exercised", why="custom kernel"),
    ]
    found = {(e["steps"], e["a"], e["b"]): e for e in compare_profiles(gates, CELLS)}
    assert found[2, "default", "ll-ring"]["same"] is True
    assert "cannot differ on decode" in found[2, "default", "ll-ring"]["statement"]
    assert "RING LL on 1 channel" in found[2, "default", "ll-ring"]["statement"]
    other = found[2, "default", "simple"]
    assert other["same"] is False
    assert other["why"] == ("AllReduce of 512 bytes: RING LL on 1 channel against RING SIMPLE on 1 channel")
    idle = found[0, "default", "simple"]
    assert (idle["same"], idle["why"]) == (None, "simple: custom kernel")
    assert len(found) == 4
    assert any(s.endswith("(steps 2)") for s in sentences(gates, CELLS))


def test_profiles_may_be_alike_with_few_streams_only() -> None:
    few, many = [choice(512), choice(1536)], [choice(4096), choice(6144)]
    gates = [
        record("2-default", [*few, *many], decode_bytes=6144),
        record("2-ll-ring", [*few, choice(4096, channels=4), choice(6144, channels=4)], decode_bytes=6144),
    ]
    (found,) = compare_profiles(gates, CELLS, [8, 1, 2])
    assert (found["same"], found["alike_at"]) == (False, [1, 2])
    assert "cannot differ on decode at 2 streams" in found["statement"]
    assert "AllReduce of 4096 bytes" in found["statement"]
    (found,) = compare_profiles(gates, CELLS, [8])
    assert "differ on decode: AllReduce of 4096 bytes" in found["statement"]


def test_a_difference_is_told_of_the_layers_own_messages() -> None:
    counts = {4: 1, 512: 9, 1536: 60, 6144: 60}
    gates = [
        record("2-default", [choice(size, count=n) for size, n in counts.items()]),
        record("2-simple", [choice(size, "SIMPLE", count=n) for size, n in counts.items()]),
    ]
    (found,) = compare_profiles(gates, CELLS)
    assert found["why"] == "AllReduce of 1536 bytes: RING LL on 1 channel against RING SIMPLE on 1 channel"
    for one in gates:  # without the model's size the frequent ones may be prefill's
        one["stages"][0]["evidence"]["decode_bytes"] = None
    assert "AllReduce of 4 bytes" in compare_profiles(gates, CELLS)[0]["why"]


def test_another_transport_is_another_profile_however_alike_the_choices() -> None:
    gates = [
        record("2-default", [choice(512)], transports={"P2P/CUMEM": 48}),
        record("2-ll-ring", [choice(512)], transports={"SHM/direct/direct": 16}),
    ]
    (found,) = compare_profiles(gates, CELLS, [1])
    assert found["same"] is False
    assert found["why"] == "by P2P/CUMEM against SHM/direct/direct"
    gates[1] = record("2-ll-ring", [choice(512)], transports={"P2P/CUMEM": 32})
    assert compare_profiles(gates, CELLS, [1])[0]["same"] is True


def test_unknown_sizes_ask_for_all_to_be_alike() -> None:
    gates = [
        record("2-default", [choice(512), choice(1 << 22, "SIMPLE")], decode_bytes=None),
        record("2-ll-ring", [choice(512), choice(1 << 22, "LL")], decode_bytes=None),
    ]
    (found,) = compare_profiles(gates, CELLS)
    assert found["same"] is None  # the large one may be a prefill's
    assert "4194304 bytes" in found["why"]
    assert "on decode:" not in found["statement"]
    alike = [record(c, [choice(512), choice(1 << 22)], decode_bytes=None) for c in ("2-default", "2-ll-ring")]
    assert compare_profiles(alike, CELLS)[0]["same"] is True
    none = [record("2-default", []), record("2-ll-ring", [choice(512)])]
    assert compare_profiles(none, CELLS)[0]["same"] is None


PROFILE = {
    "NCCL_PROTO": "LL",
    "NCCL_ALGO": "Ring",
    "NCCL_MAX_NCHANNELS": "16",
    "NCCL_P2P_LEVEL": "4",
    "NCCL_CUMEM_ENABLE": "1",
}


def nccl_stage(stages: list[dict[str, Any]]) -> dict[str, Any]:
    return next(s for s in stages if s["name"] == "nccl")


@pytest.mark.process
def test_two_ranks_confirm_their_profile(gated: Callable[..., Any]) -> None:
    live, plan = gated(
        2,
        flags="--tp-size 2 --fake-nccl --disable-custom-all-reduce",
        env=PROFILE,
        ranks=2,
        profile="ll-ring",
        profile_set=PROFILE,
    )
    stages, _ = gate.run(live, plan)
    assert [s["name"] for s in stages if s["verdict"] == "failed"] == []
    found = nccl_stage(stages)["evidence"]
    assert found["profile_verdict"] == "confirmed"
    assert len(found["ranks"]) == 2
    assert {v["name"] for v in found["variables"]} == set(PROFILE)
    assert found["choices"]
    assert found["versions"] == ["2.30.7+cuda13.0"]
    assert found["transports"] == {"P2P/CUMEM": 32}
    assert found["enabled"]["AllReduce"] == {"protocols": ["LL"], "algorithms": ["Ring"]}
    assert found["init_complete_count"] == 2
    assert nccl_stage(stages)["why"] is None
    environment = stages[4]["evidence"]["ranks"]
    assert [r["place"] for r in environment] == [{"TP": 0}, {"TP": 1}]
    assert environment[0]["added_by_sglang"]["NCCL_NVLS_ENABLE"] == "0"
    assert "NCCL_CUMEM_ENABLE" not in environment[0]["added_by_sglang"]
    graphs = next(s for s in stages if s["name"] == "cuda_graphs")["evidence"]
    assert (graphs["draft_graph"], graphs["without_graph"]) == ("captured", 0)
    assert "target verify" in graphs["captured"]


@pytest.mark.process
def test_an_algorithm_for_all_reduce_alone_is_confirmed(gated: Callable[..., Any]) -> None:
    tree = {"NCCL_ALGO": "ring,tree;allreduce:tree", "NCCL_CUMEM_ENABLE": "1"}
    flags = "--tp-size 2 --fake-nccl --disable-custom-all-reduce"
    live, plan = gated(0, flags=flags, env=tree, ranks=2, profile="tree", profile_set=tree)
    stages, _ = gate.run(live, plan)
    assert [s["name"] for s in stages if s["verdict"] == "failed"] == []
    assert {r["variables"]["NCCL_ALGO"] for r in stages[4]["evidence"]["ranks"]} == {tree["NCCL_ALGO"]}
    found = nccl_stage(stages)["evidence"]
    assert {v["name"]: v["verdict"] for v in found["variables"]} == dict.fromkeys(tree, "confirmed")
    assert found["enabled"]["AllReduce"]["algorithms"] == ["Tree"]
    assert found["enabled"]["AllGather"]["algorithms"] == ["Tree", "Ring"]
    chosen = {(c["collective"], c["algorithm"]) for c in found["choices"]}
    assert chosen == {("AllReduce", "TREE"), ("AllGather", "RING")}


@pytest.mark.process
def test_two_ranks_that_write_to_one_log_are_told_apart(gated: Callable[..., Any]) -> None:
    live, plan = gated(0, flags="--tp-size 2", ranks=2, env=PROFILE, profile_set=PROFILE)
    lines = [
        f"h:{rank}:{rank} [{rank}] NCCL INFO {text}\n"
        for rank, proto in ((0, "LL"), (1, "Simple"))
        for text in (
            f"ncclCommInitRank comm 0x1 rank {rank} nranks 2 cudaDev {rank} - Init START",
            f"NCCL_PROTO set by environment to {proto}",
            f"ncclCommInitRank comm 0x1 rank {rank} nranks 2 cudaDev {rank} - Init COMPLETE",
        )
    ]
    (live.instance_dir / "nccl.h.1.log").write_text("".join(lines))
    found = nccl_stage(gate.run(live, plan)[0])
    assert found["evidence"]["failure_class"] == "nccl_profile"
    assert "asked for LL, some rank's NCCL says Simple" in found["why"]


@pytest.mark.process
def test_a_rank_without_a_log_is_no_confirmation_by_every_rank(gated: Callable[..., Any]) -> None:
    flags = "--tp-size 2 --disable-custom-all-reduce"
    wanted = {"NCCL_PROTO": "LL"}
    live, plan = gated(0, flags=flags, ranks=2, env=wanted, profile_set=wanted)
    (live.instance_dir / "nccl.h.1.log").write_text(
        "h:1:1 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 - Init START\n"
        "h:1:1 [0] NCCL INFO NCCL_PROTO set by environment to LL\n"
        "h:1:1 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 - Init COMPLETE\n"
    )
    found = nccl_stage(gate.run(live, plan)[0])
    assert found["evidence"]["profile_verdict"] == "confirmed"
    assert found["why"] == "only 1 of 2 ranks left an NCCL log"


@pytest.mark.process
def test_a_tuned_profile_that_nccl_serves_as_its_default(gated: Callable[..., Any], tmp_path: Path) -> None:
    # Two ranks on NVLink: NCCL's own choice for decode is RING LL on one channel, tuned or not.
    (tmp_path / "config.json").write_text('{"hidden_size": 7168, "torch_dtype": "bfloat16"}')
    gates = []
    for name, profile in (("default", {"NCCL_CUMEM_ENABLE": "1"}), ("ll-ring", PROFILE)):
        live, plan = gated(
            2,
            flags=f"--tp-size 2 --fake-nccl --disable-custom-all-reduce --model-path {tmp_path}",
            env=profile,
            ranks=2,
            profile=name,
            profile_set=profile,
            draft_tokens=3,
        )
        stages, _ = gate.run(live, plan)
        assert nccl_stage(stages)["evidence"]["decode_bytes"] == 43008
        gates.append({"cell": f"2-{name}", "stages": stages})
        for log in live.instance_dir.glob("nccl.*.log"):
            log.unlink()
    (found,) = compare_profiles(gates, CELLS)
    assert found["same"] is True  # the prefill's larger message, which they serve differently, apart
    assert "cannot differ on decode: NCCL serves every collective" in found["statement"]


@pytest.mark.process
def test_the_custom_kernel_leaves_a_profile_unexercised(gated: Callable[..., Any]) -> None:
    live, plan = gated(0, flags="--tp-size 2", ranks=2, env=PROFILE, profile_set=PROFILE)
    (live.instance_dir / "nccl.host.1.log").write_text(
        "h:1:1 [0] NCCL INFO NCCL version 2.28.9+cuda13.0\n"
        "h:1:1 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 - Init START\n"
        "h:1:1 [0] NCCL INFO NCCL_PROTO set by environment to LL\n"
        "h:1:1 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 - Init COMPLETE\n"
    )
    stages, _ = gate.run(live, plan)
    found = nccl_stage(stages)
    assert found["verdict"] == "passed"
    assert profile_verdict({"stages": stages}) == "not_exercised"
    assert "custom kernel" in found["why"]


@pytest.mark.process
def test_one_rank_exercises_nothing(gated: Callable[..., Any]) -> None:
    live, plan = gated(0, env=PROFILE, profile_set=PROFILE)
    found = nccl_stage(gate.run(live, plan)[0])
    assert (found["verdict"], found["evidence"]["profile_verdict"]) == (
        "not_applicable",
        "not_exercised",
    )


@pytest.mark.process
def test_nccl_contradicts_what_the_environment_says(gated: Callable[..., Any]) -> None:
    live, plan = gated(0, flags="--tp-size 2", ranks=2, env=PROFILE, profile_set=PROFILE)
    (live.instance_dir / "nccl.host.1.log").write_text(
        "h:1:1 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 - Init START\n"
        "h:1:1 [0] NCCL INFO NCCL_PROTO set by environment to Simple\n"
        "h:1:1 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 - Init COMPLETE\n"
    )
    found = nccl_stage(gate.run(live, plan)[0])
    assert found["evidence"]["failure_class"] == "nccl_profile"
    assert "asked for LL, NCCL says Simple" in found["why"]
