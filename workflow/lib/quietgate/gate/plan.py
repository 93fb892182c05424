"""What the gate must find: the launch as asked for, and how long each proof may take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from quietgate.study import Cell, Study, command
from quietgate.study.flags import parse

if TYPE_CHECKING:
    from quietgate.measure.prompts import Prompt

# Algorithms that draft from the text itself: a cycle may give as many tokens as are drafted.
_DRAFT_BY_LOOKUP = frozenset({"NGRAM", "LOOKAHEAD"})


@dataclass(frozen=True)
class GatePlan:
    """One cell's launch as asked for.

    Attributes:
        steps: speculative steps; 0 is no speculation.
        argv: command-line tokens of each process, the workflow's last, as they go to SGLang.
        env: what each process was given; `{instance_dir}` and `{port}` stand for what the launch
            filled in.
        unset: variables that must be absent in every rank; not those that the workflow itself sets, as `plan`
            has said.
        profile: name of the NCCL profile; `profile_set` and `profile_unset` are its variables.
        ranks: scheduler processes expected.
        axis_flags: flags (dashes as underscores) and `axis_variables` that the grid varies: for them
            SGLang's own rewriting is no excuse.
        prompts: those of the benchmark; the first `decode_prompts` are used for the decode proof.
        sampling: SGLang's sampling parameters of the benchmark.
        ready_s: deadline from the launch to an answering server.
        stall_s: silence of log, files and memory that counts as a hang.
    """

    steps: int
    argv: tuple[tuple[str, ...], ...]
    env: tuple[dict[str, str], ...]
    unset: tuple[str, ...] = ()
    profile: str = "default"
    profile_set: dict[str, str] = field(default_factory=dict)
    profile_unset: tuple[str, ...] = ()
    device: str = "cuda"
    ranks: int = 1
    algorithm: str | None = None
    topk: int | None = None
    draft_tokens: int | None = None
    axis_flags: frozenset[str] = frozenset()
    axis_variables: frozenset[str] = frozenset()
    prompts: Sequence[Prompt] = ()
    decode_prompts: int = 3
    decode_tokens: int = 48
    sampling: dict[str, Any] = field(default_factory=dict)
    concurrency: tuple[int, ...] = (1,)
    ready_s: float = 1800.0
    stall_s: float = 600.0
    answer_s: float = 60.0
    decode_s: float = 300.0
    warm_up_s: float = 300.0
    warm_up_passes: int = 5
    warm_up_tolerance: float = 0.03
    request_timeout_s: float = 600.0
    request_stall_s: float = 120.0

    @property
    def most_tokens_per_cycle(self) -> int:
        """The most tokens that one cycle can give: the accepted drafts and the bonus token."""
        if self.steps == 0:
            return 1
        if self.algorithm in _DRAFT_BY_LOOKUP and self.draft_tokens:
            return max(self.steps + 1, self.draft_tokens)
        return self.steps + 1


def plan_for(study: Study, cell: Cell, prompts: Sequence[Prompt]) -> GatePlan:
    """The plan of a cell, from the study that asked for it."""
    config = study.config
    resolved = study.resolved(cell)
    gate, bench, spec = config["gate"], config["benchmark"], config["server"]["speculative"]
    profile = config["nccl_profiles"][cell.nccl]
    axes = config["grid"]["axes"].values()
    argv = tuple((*p["argv"], *resolved["workflow_argv"]) for p in resolved["processes"])
    unset = dict.fromkeys(u for p in resolved["processes"] for u in p["unset"])
    ours = resolved["workflow_env"]
    flags = parse(argv[0])
    return GatePlan(
        steps=cell.steps,
        argv=argv,
        env=tuple({**p["env"], **ours} for p in resolved["processes"]),
        unset=tuple(u for u in unset if u not in ours),
        profile=cell.nccl,
        profile_set={name: str(value) for name, value in profile["set"].items()},
        profile_unset=tuple(u for u in profile["unset"] if u not in ours),
        device=command.device(config),
        ranks=expected_ranks(argv[0]),
        algorithm=str(spec["algorithm"]).upper() if cell.steps else None,
        topk=flags.integer("speculative_eagle_topk", 1) if cell.steps else None,
        draft_tokens=flags.integer("speculative_num_draft_tokens", 0) or None,
        axis_flags=frozenset(a["flag"].replace("-", "_") for a in axes if "flag" in a)
        | {"speculative_num_steps"},
        axis_variables=frozenset(a["variable"] for a in axes if "variable" in a),
        prompts=prompts,
        decode_prompts=gate["prompts"],
        decode_tokens=gate["max_new_tokens"],
        sampling=study.sampling(),
        concurrency=tuple(sorted(bench["concurrency"])),
        ready_s=gate["ready_s"],
        stall_s=gate["stall_s"],
        decode_s=gate["decode_s"],
        warm_up_s=gate["warm_up_s"],
        warm_up_passes=gate["warm_up_passes"],
        warm_up_tolerance=gate["warm_up_tolerance"],
        request_timeout_s=bench["request_timeout_s"],
        request_stall_s=bench["stall_timeout_s"],
    )


def expected_ranks(argv: Sequence[str]) -> int:
    """Scheduler processes of a command line: tensor x pipeline x data parallel ranks.

    With data-parallel attention the data-parallel ranks are tensor-parallel ranks already.
    """
    flags = parse(argv)
    ranks = flags.integer("tp_size", 1) * flags.integer("pp_size", 1)
    if not flags.given("enable_dp_attention"):
        ranks *= flags.integer("dp_size", 1)
    return ranks
