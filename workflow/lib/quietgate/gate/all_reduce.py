"""The all-reduce check: do a cell's ranks add up and gather right, by themselves, before any server of it?

The check runs under the lease exactly as the server would: the same supervisor and GPU slot, a session of
its own, the same environment function fed the same variables, and the same certain end of everything it
started. Only the command differs: `workflow/all_reduce/check.py` in the server's own Python. So a profile
that hangs, adds up wrongly or cannot gather (what SGLang's ranks do with the logits) is known in seconds,
with the message size and the stage at which it happened, instead of after a server's whole time to get ready.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quietgate.errors import BadInput, CellFailed
from quietgate.files import at_home, digest, read_json
from quietgate.gate.bypass import decode_bytes
from quietgate.gate.plan import plan_for
from quietgate.inspect import nccl
from quietgate.inspect.failure_classes import ADVICE
from quietgate.serve import lease
from quietgate.serve.lease import LaunchSpec, Live
from quietgate.study import Cell, Study, command
from quietgate.study.flags import Flags, parse

SCRIPT = "workflow/all_reduce/check.py"
ANSWER = "answer.json"
_RANK_DOES = re.compile(r"rank (\d+): (.+)")
_OF_NCCL = ("versions", "set_by_environment", "transports", "choices", "warnings")
# Known to `as_sglang` of the script.
_CHANGE_ENVIRONMENT = {
    "disable_cuda_graph",
    "enable_deterministic_inference",
    "enable_nccl_nvls",
    "enable_symm_mem",
}
_POLL_S = 0.05
_GRACE_S = 5.0
# What ending it may take beyond the time-out, before its supervisor does so unasked.
_MARGIN_S = 60.0


@dataclass(frozen=True)
class Check:
    """What a cell's ranks are asked to reduce.

    Attributes:
        ranks: of one tensor-parallel group, which is what decode's all-reduces span.
        sizes: bytes of each message, ascending.
        script: the check, and python: the interpreter that has PyTorch.
    """

    python: str
    script: Path
    device: str
    ranks: int
    sizes: tuple[int, ...]
    timeout_s: float


def check_of(study: Study, cell: Cell) -> Check:
    """The check that the study's config asks for; BadInput when the message sizes cannot be known."""
    device, ranks = _group(study, cell)
    # Those of every cell: one check then does for all cells of a profile.
    sizes = {size for each in study.cells for size in sizes_of(study, each)} if ranks > 1 else set()
    script, timeout_s = Path(study.basedir) / SCRIPT, study.config["all_reduce"]["timeout_s"]
    return Check(_python(study), script, device, ranks, tuple(sorted(sizes)), timeout_s)


def _group(study: Study, cell: Cell) -> tuple[str, int]:
    """The device of a cell's ranks and how many there are."""
    plan = plan_for(study, cell, ())
    ranks = parse(plan.argv[0]).integer("tp_size", 1)
    if ranks % len(plan.argv):
        raise BadInput(f"all_reduce: {ranks} ranks do not divide into {len(plan.argv)} server processes")
    return plan.device, ranks


def _python(study: Study) -> str:
    python = study.config["all_reduce"]["python"] or command.interpreter(study.config)
    assert python is not None, "the config was checked"
    return str(python)


def problems(study: Study) -> list[str]:
    """What keeps the config's checks from being made: found before anything is started."""
    if not study.config["all_reduce"]["enabled"]:
        return []
    try:
        ranks = [_group(study, cell)[1] for cell in study.cells]
        for cell in study.cells if max(ranks) > 1 else ():
            sizes_of(study, cell)
    except BadInput as e:
        return [f"{study.source}: {e}"]
    return []


def sizes_of(study: Study, cell: Cell) -> set[int]:
    """Bytes of the cell's all-reduces in decode: verify and draft passes at each concurrency; or as asked."""
    asked = study.config["all_reduce"]["bytes"]
    if asked != "auto":
        return set(asked)
    plan = plan_for(study, cell, ())
    model = str(study.server_folder / at_home(study.target_model or ""))
    effective = {"model_path": model, "dtype": parse(plan.argv[0]).text("dtype")}
    found = {
        decode_bytes(effective, replace(plan, concurrency=(batch,), draft_tokens=tokens))
        for batch in plan.concurrency
        for tokens in {plan.draft_tokens or 1, plan.topk or 1}
    }
    known = {size for size in found if size is not None}
    if not known:
        raise BadInput(f"all_reduce.bytes: auto needs hidden_size from {model}/config.json; list the sizes")
    return known


def likeness(study: Study, cell: Cell) -> str:
    """What the outcome depends on besides the message sizes: cells alike in it need one check."""
    resolved = study.resolved(cell)
    given = [[p["env"], p["unset"], *_of_flags(parse(p["argv"]))] for p in resolved["processes"]]
    return digest(given, _python(study), *_group(study, cell))


def _known(flags: Flags) -> list[str]:
    """The flags for which SGLang changes its ranks' environment, of those given."""
    return sorted(_CHANGE_ENVIRONMENT & set(flags.values))


def _of_flags(flags: Flags) -> list[Any]:
    """What the server's flags change in the check: its environment and its GPUs."""
    return [_known(flags), flags.integer("base_gpu_id", 0), flags.integer("gpu_id_step", 1)]


def spec_of(server: LaunchSpec, check: Check, name: str, lives: Path) -> LaunchSpec:
    """The lease's order: the server's in everything but its commands, its digest and its folder."""
    processes = []
    for number, process in enumerate(server.processes):
        flags = parse(process.argv)
        argv = (
            *(check.python, str(check.script), "--ranks", str(check.ranks)),
            *("--process", str(number), "--processes", str(len(server.processes))),
            *("--port", "{dist_port}", "--device", check.device),
            *("--first-gpu", str(flags.integer("base_gpu_id", 0))),
            *("--gpu-step", str(flags.integer("gpu_id_step", 1))),
            *("--bytes", ",".join(map(str, check.sizes)), "--flags", ",".join(_known(flags))),
            *("--out", "{instance_dir}/" + ANSWER, "--stay"),
        )
        processes.append(replace(process, argv=argv))
    return replace(
        server,
        digest=name,
        processes=tuple(processes),
        instances_dir=lives,
        port=None,
        grace_s=min(server.grace_s, _GRACE_S),
        max_life_s=check.timeout_s + _MARGIN_S,
    )


def run(spec: LaunchSpec, check: Check, say: Callable[[str], None]) -> tuple[str, dict[str, Any]]:
    """Run the check to its end; its instance and what it found.

    Raises CellFailed when it hangs (class `hang`), dies (the class its logs tell; `nccl_init` where the
    profile leaves a collective no algorithm) or adds up or gathers wrongly (class `wrong_sums`). Nothing of
    it is alive afterwards.
    """
    live = lease.start(spec, say)
    with lease.hold(live, "all-reduce check") as held:
        while (answer := read_json(live.instance_dir / ANSWER)) is None:
            held.check()
            if time.time() - live.started_at > check.timeout_s:
                raise CellFailed("hang", *_hang(live, check))
            time.sleep(_POLL_S)
    lease.release(spec.live_dir, spec.instances_dir, "the all-reduce check is done")
    answer |= {"nccl_log": _nccl_log(live.instance_dir)}
    wrong = [line for size in answer["sizes"] for line in size["wrong"]]
    # Of a check that passed, records keep times alone.
    astray = answer.pop("gathered", [])
    if wrong:
        raise CellFailed("wrong_sums", f"all-reduce added up wrongly: {wrong[0]}", [*wrong, *astray])
    if astray:
        raise CellFailed("wrong_sums", f"all-gather brought wrong numbers: {astray[0]}", astray)
    return live.instance, answer


def _hang(live: Live, check: Check) -> tuple[str, list[str]]:
    """Where it hangs, and the lines that tell: each rank's last word, what NCCL said, what to try."""
    stages = last_words(live.instance_dir)
    where = "; ".join(f"rank {rank} at {stage!r}" for rank, stage in sorted(stages.items()))
    reason = (
        f"the all-reduce check did not end within {check.timeout_s:g} s: {where or 'no rank said a word'}"
    )
    lines = [f"rank {rank}: {stage}" for rank, stage in sorted(stages.items())]
    said = _nccl_log(live.instance_dir)
    if said:
        transports = ", ".join(said["transports"]) or "none yet"
        lines.append(f"NCCL {', '.join(said['versions'])}, transports: {transports}")
        lines += [f"{name}={value}" for name, value in said["set_by_environment"].items()]
        reason += f" (transports: {transports}); {ADVICE['hang']}"
    return reason, lines


def last_words(folder: Path) -> dict[int, str]:
    """What each rank said last that it was about to do, in the logs of a check."""
    said = (log.read_text(errors="replace") for log in sorted(folder.glob("server*.log")))
    return {int(rank): stage for text in said for rank, stage in _RANK_DOES.findall(text)}


def _nccl_log(folder: Path) -> dict[str, Any] | None:
    """What NCCL's own logs of the check say, or None where there are none."""
    logs = [p for p in sorted(folder.glob("nccl.*.log")) if p.stat().st_size]
    try:
        said = nccl.read(logs) if logs else None
    except BadInput:
        return None
    return {key: said[key] for key in _OF_NCCL} if said else None
