"""From a cell to the exact command and environment of its server, in two layers.

The first layer is the study's own: what the person would type. The second is what the workflow
adds to measure and prove (own address, metrics, NCCL's log, readable environments); it comes last
on the command line, where argparse lets it win, and is shown apart everywhere.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from quietgate.study.flags import canonical

# Where the embedded server and its models live, relative to the run's working folder.
EMBEDDED_ENV = "resources/sglang-cpu"
EMBEDDED_MODELS = "resources/tiny-models"
EMBEDDED_NAMES = ("target", "eagle3")
# The per-cycle timer, an SGLang plugin that is found through PYTHONPATH.
TIMER = "workflow/timer"
EMBEDDED_REQUIREMENTS = "envs/sglang-cpu.txt"
EMBEDDED_LAUNCHER = "workflow/embedded/serve_cpu.py"

# What switches the timers of the server on: SGLang's stage timer and the per-cycle timer.
STAGE_TIMER_SWITCH = "SGLANG_ENABLE_METRICS_DEVICE_TIMER"
CYCLE_TIMER_SWITCH = "EAGLE3_PROFILE"
TIMER_SWITCHES = (STAGE_TIMER_SWITCH, CYCLE_TIMER_SWITCH)

# Inherited variables that change what a server does. They are dropped so that a profile means the same
# from every shell; `server.keep_env` names exceptions.
DROPPED = (
    "NCCL_*",
    "SGLANG_*",
    "SGL_*",
    "TORCH_NCCL_*",
    "EAGLE3_*",
    "PYTORCH_*",
    "CUDA_LAUNCH_BLOCKING",
)

# SGLang sets max_running_requests to 48 as soon as speculation is on, and leaves it alone otherwise
# (arg_groups/speculative_hook.py): every cell gets the same number, or cells would differ unasked.
MAX_RUNNING_WITH_SPECULATION = 48


def tokens(args: dict[str, Any]) -> list[str]:
    """Command-line tokens of a mapping flag -> value; see the config schema for the forms of values."""
    out: list[str] = []
    for flag, value in args.items():
        out += _flag(f"--{flag}", value)
    return out


def _flag(flag: str, value: Any) -> list[str]:
    if value is None or value is False:
        return []
    if value is True:
        return [flag]
    if isinstance(value, list):
        return [flag, *map(_text, value)]
    text = _text(value)
    # argparse takes a value that looks like an option for one, unless it is a number.
    if text.startswith("-") and not _is_number(text):
        return [f"{flag}={text}"]
    return [flag, text]


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return json.dumps(value, separators=(",", ":"))
    return str(value)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def is_embedded(config: dict[str, Any]) -> bool:
    """Whether the study is served by the embedded CPU build of SGLang."""
    return config["server"]["python"] is None and config["server"]["entry"] is None


def uses_tiny_models(config: dict[str, Any]) -> bool:
    """Whether a model of the study is one of the tiny ones trained on the spot (`embedded:NAME`)."""
    return bool(tiny_models(config))


def tiny_models(config: dict[str, Any]) -> dict[str, str]:
    """The NAME of every `embedded:NAME` of the study, by its place in the config."""
    server = config["server"]
    named = {f"server.args.{flag}": value for flag, value in server["args"].items()}
    named["server.speculative.draft_model_path"] = server["speculative"]["draft_model_path"]
    return {
        place: value.removeprefix("embedded:")
        for place, value in named.items()
        if isinstance(value, str) and value.startswith("embedded:")
    }


def _program(config: dict[str, Any], basedir: str) -> list[str]:
    server = config["server"]
    if is_embedded(config):
        return [interpreter(config) or "", str(Path(basedir) / EMBEDDED_LAUNCHER)]
    entry = server["entry"] or ["-m", "sglang.launch_server"]
    return entry if server["python"] is None else [server["python"], *entry]


def interpreter(config: dict[str, Any]) -> str | None:
    """The server's Python, or None where the config names a whole program instead."""
    return f"{EMBEDDED_ENV}/bin/python" if is_embedded(config) else config["server"]["python"]


def model_path(value: Any) -> Any:
    """A model as the server is given it: `embedded:NAME` is one of the tiny models, the rest stands."""
    if isinstance(value, str) and value.startswith("embedded:"):
        return f"{EMBEDDED_MODELS}/{value.removeprefix('embedded:')}"
    return value


def device(config: dict[str, Any]) -> str:
    """ "cpu" or "cuda": what the server runs on."""
    asked = config["server"]["device"]
    if asked != "auto":
        return str(asked)
    return "cpu" if config["server"]["args"].get("device") == "cpu" else "cuda"


def draft_tokens(config: dict[str, Any], steps: int) -> int:
    """--speculative-num-draft-tokens of a cell with `steps` > 0."""
    value = config["server"]["speculative"]["draft_tokens"]
    if value == "auto":
        return steps + 1
    return int(value[str(steps)] if isinstance(value, dict) else value)


def speculative_flags(config: dict[str, Any], steps: int) -> dict[str, Any]:
    """The speculative flags of a cell, in the order of SGLang's documentation; none at 0 steps."""
    if steps == 0:
        return {}
    spec = config["server"]["speculative"]
    return {
        "speculative-algorithm": spec["algorithm"],
        "speculative-draft-model-path": model_path(spec["draft_model_path"]),
        "speculative-eagle-topk": spec["topk"],
        "speculative-num-draft-tokens": draft_tokens(config, steps),
        "speculative-num-steps": steps,
        **spec["args"],
    }


def resolve(
    config: dict[str, Any],
    steps: int,
    nccl: str,
    axes: dict[str, Any],
    basedir: str,
    timers: bool = True,
) -> dict[str, Any]:
    """The launch of one cell: {"processes": [{argv, env, unset}], "workflow_argv", "workflow_env"}.

    `{port}` and `{instance_dir}` in the workflow's layer are filled in at launch. Without `timers` no timer
    is switched on, whoever asked for it.
    """
    server, profile = config["server"], config["nccl_profiles"][nccl]
    flags = {k: model_path(v) for k, v in server["args"].items()}
    spec = speculative_flags(config, steps)
    env = {**profile["set"], **server["env"]}
    unset = [*profile["unset"], *server["unset_env"]]
    for name, value in axes.items():
        axis = config["grid"]["axes"][name]
        if "variable" in axis:
            env.pop(axis["variable"], None)
            if value is None or value is False:
                unset.append(axis["variable"])
            else:
                env[axis["variable"]] = value
        else:
            _set_flag(spec if axis["flag"].startswith("speculative") else flags, axis["flag"], value)
    nodes = [
        (node["args"], {k: str(v) for k, v in {**env, **node["env"]}.items()})
        for node in server["nodes"] or [{"args": {}, "env": {}}]
    ]
    added = _workflow_env(config, env, basedir)
    if not timers:
        unset += TIMER_SWITCHES
        nodes = [(args, _without_timers(node_env)) for args, node_env in nodes]
        added = _without_timers(_workflow_env(config, _without_timers(env), basedir))
    processes = [
        {
            "argv": [*_program(config, basedir), *tokens({**flags, **args, **spec})],
            "env": node_env,
            "unset": [u for u in dict.fromkeys(unset) if u not in node_env],
        }
        for args, node_env in nodes
    ]
    return {
        "processes": processes,
        "workflow_argv": _workflow_argv(config, flags),
        "workflow_env": added,
    }


def timers_on(resolved: dict[str, Any]) -> list[str]:
    """The switches of the timers that are on in a resolved launch, of `TIMER_SWITCHES`."""
    layers = [resolved["workflow_env"], *(p["env"] for p in resolved["processes"])]
    return [name for name in TIMER_SWITCHES if any(_is_on(env.get(name)) for env in layers)]


def _is_on(value: Any) -> bool:
    return str("0" if value is None else value).lower() not in ("", "0", "false")


def _without_timers(env: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in env.items() if k not in TIMER_SWITCHES}


def _set_flag(flags: dict[str, Any], flag: str, value: Any) -> None:
    """Set an axis's flag in place where the study already has it, under any of its names."""
    for key in flags:
        if canonical(key) == canonical(flag):
            flags[key] = value
            return
    flags[flag] = value


def _has(flags: dict[str, Any], name: str) -> bool:
    return any(canonical(k) == canonical(name) and v not in (None, False) for k, v in flags.items())


def pins(config: dict[str, Any], flags: dict[str, Any]) -> dict[str, tuple[Any, str]]:
    """Flags that every cell gets alike, since SGLang's own default depends on speculation.

    Whatever steps the grid has: a study that grows or shrinks must not launch its other cells anew.
    Returns flag -> (value, why).
    """
    out: dict[str, tuple[Any, str]] = {}
    if not _has(flags, "max-running-requests"):
        value = max(MAX_RUNNING_WITH_SPECULATION, *config["benchmark"]["concurrency"])
        out["max-running-requests"] = (
            value,
            "SGLang sets 48 where speculation is on and leaves it open at 0 steps",
        )
    if device(config) == "cpu" and not _has(flags, "disable-overlap-schedule"):
        out["disable-overlap-schedule"] = (
            True,
            "on a CPU SGLang turns the overlap scheduler off where speculation is on, and only there",
        )
    return out


def _workflow_argv(config: dict[str, Any], flags: dict[str, Any]) -> list[str]:
    added: dict[str, Any] = {k: v for k, (v, _) in pins(config, flags).items()}
    if not _has(flags, "enable-metrics"):
        added["enable-metrics"] = True
    # Every process opens a port; on one machine no two may open the same. The first one's is `{port}`.
    port = "{node_port}" if len(config["server"]["nodes"]) > 1 else "{port}"
    return [*tokens(added), "--host", "127.0.0.1", "--port", port]


def _workflow_env(config: dict[str, Any], study_env: dict[str, Any], basedir: str) -> dict[str, str]:
    added = {
        # setproctitle would wipe /proc/<pid>/environ, the proof that a rank got its variables.
        "SPT_NOENV": "1",
        # A proxy of the user's shell must not catch the server's calls to itself.
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,ENV,TUNING",
        "NCCL_DEBUG_FILE": "{instance_dir}/nccl.%h.%p.log",
    }
    if device(config) == "cuda":
        # CUDA events around draft, verify and extend; there are none on a CPU.
        added[STAGE_TIMER_SWITCH] = "1"
    # The study's own word about NCCL's log level stands; its file must be where the gate reads it.
    added = {k: v for k, v in added.items() if k not in study_env or k == "NCCL_DEBUG_FILE"}
    if _is_on(study_env.get(CYCLE_TIMER_SWITCH)):
        # SGLang knows no such variable: the per-cycle timer takes it, found through the path.
        before = study_env.get("PYTHONPATH", "{inherited}")
        added["PYTHONPATH"] = f"{Path(basedir) / TIMER}:{before}"
        added["QUIETGATE_CYCLES"] = "{instance_dir}/cycles.%p.jsonl"
    return added
