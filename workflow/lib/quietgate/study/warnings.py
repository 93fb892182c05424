"""What in a launch is inert or dangerous, each with the reason: shown by `plan`, before anything runs.

A warning is no error: a study may want the inert flag, to rerun literally what somebody else ran. Read
in SGLang 0.4.6 to 0.5.23 and NCCL 2.18 to 2.30.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from quietgate.study.flags import Flags, parse
from quietgate.study.nccl_variables import (
    FOREIGN,
    GATHERING,
    allowed_choices,
    is_nccl,
    missing_file,
    read_integer,
    speaks_of,
)

# Models (a part of their name) for which SGLang fuses all-reduces with FlashInfer by itself on SM90
# and SM100; the list grew from 0.5.9 to 0.5.23.
_FUSED = (
    *("deepseek-r1", "deepseek-v3", "deepseek-v4", "glm-4", "glm-5", "gpt-oss", "interns2", "kimi-k2"),
    *("mistral-large-3", "nemotron-h", "qwen3-next", "qwen3-vl", "qwen3.5", "qwen4"),
)
# Protocols that do not exist for an algorithm.
_WITHOUT_LL = frozenset({"NVLS", "NVLSTree", "PAT", "CollNetDirect", "CollNetChain"})


@dataclass(frozen=True)
class _Launch:
    flags: Flags
    env: Mapping[str, str]
    steps: tuple[int, ...]
    device: str
    where: str
    nvlink: bool | None
    unset: tuple[str, ...]
    workflow_env: Mapping[str, str]

    @property
    def ranks(self) -> int:
        return self.flags.integer("tp_size", 1) * self.flags.integer("pp_size", 1)


def warnings(facts: Mapping[str, Any]) -> list[str]:
    """What is inert or dangerous in one cell's launch, one sentence or two each.

    Args:
        facts: `argv` (tokens), `env`, `device` ("cpu" or "cuda"), `steps` (of the whole grid), and where
            known `profile` (name of the NCCL profile), `nvlink` (whether the GPUs have it), `unset` (names
            of variables) and `workflow_env` (what the workflow sets over `env` and `unset`).
    """
    name = facts.get("profile")
    launch = _Launch(
        flags=parse(facts["argv"]),
        env={key: str(value) for key, value in facts.get("env", {}).items()},
        steps=tuple(facts.get("steps", ())),
        device=str(facts.get("device", "cuda")),
        where=f"profile {name}: " if name else "",
        nvlink=facts.get("nvlink"),
        unset=tuple(facts.get("unset", ())),
        workflow_env=facts.get("workflow_env", {}),
    )
    return [note for rule in _RULES for note in rule(launch)]


def _unknown_variables(launch: _Launch) -> Iterator[str]:
    for name in launch.env:
        if name.startswith("NCCL_") and not is_nccl(name) and not name.startswith(FOREIGN):
            yield f"{launch.where}{name} is no variable of NCCL 2.18 to 2.30: nothing reads it"
        if note := missing_file(name, launch.env[name]):
            yield f"{launch.where}{name}: {note}"


def _no_nccl(launch: _Launch) -> Iterator[str]:
    given = sorted(name for name in launch.env if _is_tuning(name))
    if not given:
        return
    if launch.device == "cpu":
        yield f"{launch.where}{', '.join(given)}: on a CPU there is no NCCL, the profile does nothing"
    elif launch.ranks == 1:
        yield (
            f"{launch.where}{', '.join(given)}: one rank has nobody to talk to, the profile does "
            "nothing; --tp-size above 1 would exercise it"
        )


def _is_tuning(name: str) -> bool:
    return is_nccl(name) and not name.startswith("NCCL_DEBUG")


def _defaults_inside_sglang(launch: _Launch) -> Iterator[str]:
    if launch.device == "cpu" or launch.ranks == 1:
        return
    missing = [n for n in ("NCCL_CUMEM_ENABLE", "NCCL_NVLS_ENABLE") if n not in launch.env]
    if missing:
        zero = " and ".join(f"{name}=0" for name in missing)
        yield (
            f"{launch.where}SGLang sets {zero} where the profile says nothing, so this is not NCCL's own "
            "default; without cuMem NCCL uses P2P/IPC, which hangs before ready on some virtual machines"
        )
    for name, since in (("NCCL_CUMEM_ENABLE", "0.5.6"), ("NCCL_NVLS_ENABLE", "0.5.2")):
        if name in launch.env and name not in missing:
            yield f"{launch.where}{name} is overwritten by SGLang before {since}; the gate checks it"


def _protocol(launch: _Launch) -> Iterator[str]:
    proto = launch.env.get("NCCL_PROTO", "")
    if not proto or launch.device == "cpu" or launch.ranks == 1:
        return
    choices = allowed_choices("NCCL_PROTO", proto)
    named = not proto.startswith("^") and "ll128" in proto.lower()
    if named and launch.nvlink is not True:
        place = "here, without NVLink," if launch.nvlink is False else "on GPUs without NVLink"
        yield (
            f"{launch.where}NCCL_PROTO={proto} names LL128 and so forces it: {place} it can corrupt data "
            "(NCCL leaves it out by itself there); leave it out of the list"
        )
    if "Simple" not in choices and "NCCL_BUFFSIZE" in launch.env:
        size, _ = read_integer(launch.env["NCCL_BUFFSIZE"])
        yield (
            f"{launch.where}NCCL_BUFFSIZE is the buffer of protocol Simple, which NCCL_PROTO={proto} "
            f"excludes: no effect but {size / 2**20:.0f} MiB per channel, peer and communicator"
        )
    algo = launch.env.get("NCCL_ALGO", "")
    algorithms = allowed_choices("NCCL_ALGO", algo) if algo else frozenset()
    if algorithms and algorithms <= _WITHOUT_LL and choices == {"LL"}:
        yield (
            f"{launch.where}NCCL_ALGO={algo} has no protocol LL: nothing is left for all-reduce and NCCL "
            "stops at the first collective"
        )
    if choices == {"LL"}:
        yield (
            f"{launch.where}NCCL_PROTO={proto} also serves the large all-reduces of prefill, where LL "
            "moves at most half the bytes per second of Simple: look at the time to first token too"
        )


def _gather(launch: _Launch) -> Iterator[str]:
    algo, proto = (launch.env.get(name, "") for name in ("NCCL_ALGO", "NCCL_PROTO"))
    flags = launch.flags
    # SGLang gathers within a tensor-parallel group; where it is deterministic it sets the variable itself.
    alone = launch.device == "cpu" or flags.integer("tp_size", 1) == 1
    if not algo or alone or flags.given("enable_deterministic_inference"):
        return
    if not allowed_choices("NCCL_ALGO", algo, "AllGather") & GATHERING:
        mine = "tree" if set(algo) & set(";:^") else algo.lower()
        yield (
            f"{launch.where}NCCL_ALGO={algo} leaves AllGather nothing of {', '.join(sorted(GATHERING))}: "
            "SGLang's ranks need one for the logits, where NCCL 2.28 stops (2.21 took Ring without a word); "
            f'give all-reduce its own, NCCL_ALGO: "ring,{mine};allreduce:{mine}" (NCCL 2.24.3 or later)'
        )
    elif proto and speaks_of(proto, "AllGather") and not speaks_of(algo, "AllGather"):
        yield (
            f"{launch.where}NCCL_ALGO={algo} does not name AllGather: with NCCL_PROTO set as well, NCCL 2.31 "
            f'then has no algorithm for it; put one for all collectives first: NCCL_ALGO: "ring,tree;{algo}"'
        )


def _inert_nccl(launch: _Launch) -> Iterator[str]:
    env = launch.env
    if launch.device == "cpu" or launch.ranks == 1:
        return
    if env.get("NCCL_NTHREADS") == "512":
        yield (
            f"{launch.where}NCCL_NTHREADS=512 is NCCL's default (but for protocol Simple over PCIe, "
            "where it is 256)"
        )
    if env.get("NCCL_P2P_LEVEL") in ("SYS", "4", "5"):
        yield (
            f"{launch.where}NCCL_P2P_LEVEL={env['NCCL_P2P_LEVEL']} changes nothing where NVLink or an "
            "NVSwitch joins all GPUs; across PCIe root complexes it forces P2P and hangs some machines"
        )
    if "NCCL_MAX_NCHANNELS" in env:
        yield (
            f"{launch.where}NCCL_MAX_NCHANNELS={env['NCCL_MAX_NCHANNELS']} can only lower the number that "
            "NCCL finds; decode's small messages use few channels anyway"
        )
    network = sorted(n for n in env if n.startswith(("NCCL_IB_", "NCCL_NET_", "NCCL_CROSS_NIC")))
    if network and not launch.flags.given("dist_init_addr"):
        yield f"{launch.where}{', '.join(network)}: no network is used within one node"
    if "NCCL_LAUNCH_MODE" in env:
        yield f"{launch.where}NCCL_LAUNCH_MODE matters only for one process with several GPUs"


def _nccl_log(launch: _Launch) -> Iterator[str]:
    level = launch.env.get("NCCL_DEBUG", "INFO").upper()
    if level in ("VERSION", "WARN", "ABORT"):
        yield f"NCCL_DEBUG={level}: NCCL logs nothing that proves its settings; the gate needs INFO"
    subsystems = launch.env.get("NCCL_DEBUG_SUBSYS", "").upper()
    if subsystems and not subsystems.startswith("^"):
        absent = [s for s in ("INIT", "ENV") if s not in subsystems and "ALL" not in subsystems]
        if absent:
            yield f"NCCL_DEBUG_SUBSYS lacks {', '.join(absent)}: the gate cannot read what NCCL was given"


def _overridden(launch: _Launch) -> Iterator[str]:
    for name, ours in launch.workflow_env.items():
        value = launch.env.get(name, ours)
        # A path is prolonged, not replaced.
        if name not in launch.unset and (value == ours or ours.endswith(f":{value}")):
            continue
        asked = f"{name}={value}" if name in launch.env else f"unset {name}"
        log = "NCCL's own log of each rank is the gate's proof that the profile was taken"
        why = log if name.startswith("NCCL_DEBUG") else "measuring and proving need it"
        yield f"{launch.where}{asked} does not hold: the workflow sets {name}={ours} in its place; {why}"


def _all_reduce(launch: _Launch) -> Iterator[str]:
    if launch.device == "cpu" or launch.ranks == 1:
        return
    flags = launch.flags
    if not flags.given("disable_custom_all_reduce"):
        yield (
            "small all-reduces go to SGLang's custom kernel where the GPUs can reach each other, not to "
            "NCCL, and no profile can change decode there; --disable-custom-all-reduce leaves them to NCCL"
        )
    for flag in ("enable_mscclpp", "enable_torch_symm_mem", "enable_pcie_oneshot_allreduce"):
        if flags.given(flag):
            yield f"--{flag.replace('_', '-')} takes small all-reduces away from NCCL"
    model = (flags.text("model_path") or "").lower()
    off = flags.given("enforce_disable_flashinfer_allreduce_fusion")
    if not off and any(part in model.replace("_", "-") for part in _FUSED):
        yield (
            "SGLang fuses this model's all-reduces with FlashInfer by itself on SM90 and SM100, whatever "
            "--disable-custom-all-reduce says: then decode does not use NCCL; from 0.5.10 "
            "--enforce-disable-flashinfer-allreduce-fusion turns it off, the gate looks"
        )
    for flag, name in (("enable_nccl_nvls", "NCCL_NVLS_ENABLE"), ("enable_symm_mem", "NCCL_CUMEM_ENABLE")):
        if flags.given(flag) and launch.env.get(name, "1") != "1":
            yield f"--{flag.replace('_', '-')} makes SGLang set {name}=1 over {launch.env[name]}"
    if flags.given("enable_deterministic_inference"):
        yield (
            "--enable-deterministic-inference makes SGLang set NCCL_ALGO=allreduce:tree and the channels "
            "to 8, over any profile"
        )


def _inert_sglang(launch: _Launch) -> Iterator[str]:
    flags, env = launch.flags, launch.env
    if flags.given("num_continuous_decode_steps"):
        yield "--num-continuous-decode-steps is read nowhere in SGLang 0.4.0 to 0.5.23: no effect"
    if env.get("EAGLE3_PROFILE", "0") not in ("", "0"):
        yield (
            "EAGLE3_PROFILE is unknown to every SGLang release and does nothing by itself: here the "
            "workflow's per-cycle timer takes it (from 0.5.3 on), whose events are part of what is timed"
        )
    if "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN" in env and not flags.given("context_length"):
        yield (
            "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN matters only with a --context-length above the "
            "model's own, and none is given"
        )
    if "SGLANG_ENABLE_SPEC_V2" in env:
        yield "SGLANG_ENABLE_SPEC_V2 is gone from 0.5.14 on; before, it chooses the speculative worker"
    if env.get("CUDA_DEVICE_MAX_CONNECTIONS", "8") != "8":
        yield "CUDA_DEVICE_MAX_CONNECTIONS is always overwritten by SGLang with 8"
    for name, value in flags.repeated.items():
        if len({str(v) for v in value}) > 1:
            yield f"--{name.replace('_', '-')} is given {len(value)} times; the last, {value[-1]}, counts"


def _dangerous_sglang(launch: _Launch) -> Iterator[str]:
    env = launch.env
    for name in env:
        if name.startswith("SGLANG_SIMULATE_ACC"):
            yield (
                f"{name}={env[name]} makes SGLang pretend that drafts are accepted: tok/s of a model "
                "that does not exist, and text that is wrong"
            )
        elif name.startswith("SGLANG_TEST_"):
            yield f"{name} is a fault that SGLang plants in itself for its own tests"
    if env.get("SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION", "1").lower() in ("0", "false"):
        yield (
            "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION=0 makes /health a constant 200; the gate decodes "
            "for itself"
        )
    if env.get("CUDA_LAUNCH_BLOCKING", "0") != "0":
        yield "CUDA_LAUNCH_BLOCKING serialises every kernel: times of a debugging run"


def _speculation(launch: _Launch) -> Iterator[str]:
    flags = launch.flags
    if not any(launch.steps):
        return
    if not flags.given("max_running_requests"):
        yield (
            "with speculation SGLang sets max_running_requests to 48, without it leaves it open: the "
            "workflow gives every cell the same number"
        )
    algorithm = (flags.text("speculative_algorithm") or "").upper()
    if algorithm in ("EAGLE", "NEXTN") and not flags.given("speculative_draft_model_path"):
        yield (
            f"{algorithm} without a draft model: SGLang takes the target as its own draft, right where "
            "the target has prediction layers (MTP); else name server.speculative.draft_model_path"
        )
    if flags.given("enable_mixed_chunk"):
        yield "--enable-mixed-chunk is turned off by SGLang where speculation is on: cells would differ"
    if not flags.given("mem_fraction_static") and launch.device != "cpu" and 0 in launch.steps:
        yield (
            "--mem-fraction-static is not given: SGLang derives it, and a draft model changes what is "
            "left, so that the cells' KV pools differ"
        )


_RULES: tuple[Callable[[_Launch], Iterator[str]], ...] = (
    _dangerous_sglang,
    _protocol,
    _gather,
    _unknown_variables,
    _no_nccl,
    _defaults_inside_sglang,
    _all_reduce,
    _inert_nccl,
    _inert_sglang,
    _speculation,
    _nccl_log,
    _overridden,
)
