"""Rules of a study's config that need more than one key."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterator
from typing import Any

from quietgate.study.command import EMBEDDED_NAMES, device, interpreter, tiny_models
from quietgate.study.flags import canonical
from quietgate.study.nccl_variables import problems as variable_problems

Config = dict[str, Any]

# Arguments that the grid or the speculative section decides: a second opinion elsewhere would win silently.
_DECIDED = {
    "speculative_num_steps": "grid.steps",
    "speculative_num_draft_tokens": "server.speculative.draft_tokens",
    "speculative_eagle_topk": "server.speculative.topk",
    "speculative_algorithm": "server.speculative.algorithm",
    "speculative_draft_model_path": "server.speculative.draft_model_path",
}
# Algorithms that draft without a model of their own.
_NO_DRAFT_MODEL = {"NGRAM", "LOOKAHEAD", "NEXTN", "EAGLE"}
# What names the captured batches: sizes one by one, and where none are listed, a limit.
_GRAPH_SIZES = (("cuda_graph_bs", "cuda_graph_bs_decode"), ("cuda_graph_max_bs", "cuda_graph_max_bs_decode"))


def cross_field_problems(config: Config) -> list[str]:
    """Rules that need more than one key, as "key: what is wrong; what to do" lines."""
    return [
        *_flags(config),
        *_speculation(config),
        *_profiles(config),
        *_axes(config),
        *_entry(config),
        *_embedded(config),
        *_all_reduce(config),
        *_reference(config),
        *_in_grid(config, "timer_cost"),
        *_lengths(config),
        *_graphs(config),
    ]


def _flags(config: Config) -> Iterator[str]:
    """A flag is written once and in one place: given twice, the last one wins, which may be in no cell
    what was meant."""
    written: dict[str, tuple[str, str]] = {}
    for section, args in _arguments(config):
        for flag in args:
            name, place = canonical(flag), f"{section}.{flag}"
            if name in _DECIDED:
                yield f"{place}: decided by {_DECIDED[name]}; write it there"
            elif name in written and written[name][1] != flag:
                yield f"{place}: the same flag as {written[name][0]}, in another spelling; use one spelling"
            written.setdefault(name, (place, flag))
    axes: dict[str, str] = {}
    for axis, described in config["grid"]["axes"].items():
        target = described.get("variable") or canonical(described["flag"])
        place = f"grid.axes.{axis}"
        if target in axes:
            yield f"{place}: {described.get('flag') or target} is already the axis {axes[target]!r}"
        axes.setdefault(target, axis)
        if target == "speculative_num_steps":
            yield f"{place}: steps are the axis grid.steps"
        # The axis takes the place of a flag in its own section; elsewhere that flag would win in every cell.
        own = "server.speculative.args" if target.startswith("speculative") else "server.args"
        for section, args in _arguments(config) if "flag" in described else ():
            twin = next((flag for flag in args if canonical(flag) == target), None)
            if twin is not None and section != own:
                yield f"{place}: {section}.{twin} sets the same flag in every cell; take one of them away"


def _arguments(config: Config) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every section of server flags, by its place."""
    server = config["server"]
    yield "server.args", server["args"]
    for i, node in enumerate(server["nodes"]):
        yield f"server.nodes.{i}.args", node["args"]
    yield "server.speculative.args", server["speculative"]["args"]


def _speculation(config: Config) -> Iterator[str]:
    spec, steps = config["server"]["speculative"], config["grid"]["steps"]
    drafting = [s for s in steps if s > 0]
    if not drafting:
        return
    if spec["draft_model_path"] is None and spec["algorithm"].upper() not in _NO_DRAFT_MODEL:
        yield (
            f"server.speculative.draft_model_path: missing, but grid.steps has {drafting}; "
            f"{spec['algorithm']} needs a draft model (SGLang would load the target as its own draft)"
        )
    topk_axis, topks = _axis_of(config, "speculative_eagle_topk")
    tokens_axis, numbers = _axis_of(config, "speculative_num_draft_tokens")
    bad = [
        f"grid.axes.{axis}.values: {value!r} is no {what}; a whole number of {least} or more"
        for axis, values, least, what in (
            (topk_axis, topks, 1, "number of branches for speculative-eagle-topk"),
            (tokens_axis, numbers, 2, "number of tokens for speculative-num-draft-tokens"),
        )
        for value in values
        if isinstance(value, bool) or not isinstance(value, int) or value < least
    ]
    if bad:
        yield from bad
        return
    place = f"grid.axes.{tokens_axis}" if tokens_axis else "server.speculative.draft_tokens"
    for topk, tokens, step in itertools.product(
        topks or [spec["topk"]], numbers if tokens_axis else [spec["draft_tokens"]], drafting
    ):
        problem = _draft_tokens_problem(tokens, step, topk, tokens_axis is not None)
        if problem:
            yield f"{place}: {problem}"


def _axis_of(config: Config, argument: str) -> tuple[str | None, list[Any]]:
    """The axis over a server argument and its values; None where there is none."""
    for name, axis in config["grid"]["axes"].items():
        if canonical(axis.get("flag", "")) == argument:
            return name, axis["values"]
    return None, []


def _draft_tokens_problem(draft_tokens: Any, steps: int, topk: int, by_axis: bool) -> str | None:
    tokens = draft_tokens
    if isinstance(draft_tokens, dict):
        tokens = draft_tokens.get(str(steps))
        if tokens is None:
            return f"no number for steps {steps}; add `{steps}: n`"
    if tokens == "auto":
        if topk > 1:
            return (
                f"auto is steps + 1 and holds for topk 1; with topk {topk} give a number (or one per steps)"
            )
        return None
    if topk == 1 and tokens != steps + 1:
        cure = "leave the axis out (draft_tokens: auto)" if by_axis else f"write {steps + 1} or auto"
        return (
            f"{tokens} at steps {steps}: with topk 1 SGLang silently makes it {steps + 1}, "
            f"no other is allowed; {cure}"
        )
    tree = 1 + topk + (steps - 1) * topk * topk
    if tokens > tree:
        return f"{tokens} at steps {steps}, topk {topk}: the draft tree has only {tree} tokens"
    return None


def _profiles(config: Config) -> Iterator[str]:
    known = config["nccl_profiles"]
    for name in config["grid"]["nccl"]:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            yield f"grid.nccl: no profile {name!r} in nccl_profiles{hint}; there are: {', '.join(known)}"
    for name, profile in known.items():
        for variable in profile["unset"]:
            if variable in profile["set"]:
                yield f"nccl_profiles.{name}: {variable} is both set and unset"
    places = [(f"nccl_profiles.{n}.set", p["set"]) for n, p in known.items()]
    places.append(("server.env", config["server"]["env"]))
    places += [(f"server.nodes.{i}.env", n["env"]) for i, n in enumerate(config["server"]["nodes"])]
    for name, axis in config["grid"]["axes"].items():
        values = axis["values"] if "variable" in axis else []
        places += [(f"grid.axes.{name}", {axis["variable"]: v}) for v in values if v not in (None, False)]
    for place, variables in places:
        for variable, value in variables.items():
            for problem in variable_problems(variable, str(value)):
                yield f"{place}.{variable}: {problem}"


def _axes(config: Config) -> Iterator[str]:
    for name, axis in config["grid"]["axes"].items():
        if len({repr(v) for v in axis["values"]}) < len(axis["values"]):
            yield f"grid.axes.{name}.values: a value stands twice"


def _entry(config: Config) -> Iterator[str]:
    server = config["server"]
    entry = server["entry"]
    if server["python"] is None and entry is not None and entry[0].startswith("-"):
        yield "server.entry: starts with an option, but server.python is null; name the interpreter"


def _embedded(config: Config) -> Iterator[str]:
    for place, name in tiny_models(config).items():
        if name not in EMBEDDED_NAMES:
            known = ", ".join(f"embedded:{n}" for n in EMBEDDED_NAMES)
            yield f"{place}: the workflow makes no model embedded:{name}; there are: {known}"


def _all_reduce(config: Config) -> Iterator[str]:
    check = config["all_reduce"]
    if check["enabled"] and check["python"] is None and interpreter(config) is None:
        yield "all_reduce.python: missing, and server.entry names no interpreter; name one that has PyTorch"


def _in_grid(config: Config, section: str) -> Iterator[str]:
    """The steps and the profile that a section names are the grid's."""
    named, grid = config[section], config["grid"]
    if named.get("steps") is not None and named["steps"] not in grid["steps"]:
        yield f"{section}.steps: {named['steps']} is not in grid.steps {grid['steps']}"
    if named.get("nccl") is not None and named["nccl"] not in grid["nccl"]:
        yield f"{section}.nccl: {named['nccl']!r} is not in grid.nccl {grid['nccl']}"


def _reference(config: Config) -> Iterator[str]:
    reference, grid = config["reference"], config["grid"]
    yield from _in_grid(config, "reference")
    for name, value in reference.get("axes", {}).items():
        if name not in grid["axes"]:
            yield f"reference.axes.{name}: no such axis; there are: {', '.join(grid['axes']) or 'none'}"
        elif value not in grid["axes"][name]["values"]:
            yield f"reference.axes.{name}: {value!r} is not among its values {grid['axes'][name]['values']}"


def _lengths(config: Config) -> Iterator[str]:
    limit = _number(config["server"]["args"], "max_running_requests")
    top = max(config["benchmark"]["concurrency"])
    if limit is not None and top > limit:
        yield (
            f"benchmark.concurrency: {top} is more than server.args.max-running-requests {limit:g}; "
            "requests would queue and the numbers be those of the queue"
        )


def _graphs(config: Config) -> Iterator[str]:
    """A batch larger than any captured one is decoded without a CUDA graph: the gate would refuse it."""
    args = {canonical(key): value for key, value in config["server"]["args"].items()}
    if device(config) == "cpu" or args.get("disable_cuda_graph") or args.get("disable_decode_cuda_graph"):
        return
    top = max(config["benchmark"]["concurrency"])
    # As the gate reads them: listed sizes hold, whatever the limit beside them says.
    for names in _GRAPH_SIZES:
        sizes = [
            (size, name)
            for name in names
            for size in (args[name] if isinstance(args.get(name), list) else [args.get(name)])
            if isinstance(size, int)
        ]
        if any(_axis_of(config, name)[0] for name in names):
            return
        if not sizes:
            continue
        largest, name = max(sizes)
        if top > largest:
            flag = name.replace("_", "-")
            yield (
                f"benchmark.concurrency: {top} is more than server.args.{flag} {largest}; "
                "larger batches are decoded without CUDA graphs, several times slower: raise that flag"
            )
        return


def _number(args: dict[str, Any], argument: str) -> float | None:
    for key, value in args.items():
        if canonical(key) == argument:
            try:
                return float(value)
            except (TypeError, ValueError):
                return None
    return None
