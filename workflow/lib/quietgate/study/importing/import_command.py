"""A shell command that started SGLang by hand, as a study's config: what to run, and what is not known."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from quietgate.errors import BadInput
from quietgate.inspect.lines import read_text
from quietgate.study.importing import imported_flags, texts
from quietgate.study.importing.imported_flags import typed
from quietgate.study.importing.launches import Launch, is_python

Config = dict[str, Any]

_PROFILE = "imported"
# Characters: no launch script is longer, and what is read as one takes ever longer.
_LONGEST_TEXT = 1_000_000
# Why a text may have no launch that can be read, and what to do.
_INSTEAD = (
    (
        r"sglang_router\.launch_server",
        "sglang_router.launch_server starts servers behind a router: write the command of one of them, "
        "python -m sglang.launch_server without the router's flags",
    ),
    (r"\{\{|\{%", "it is a template: import what it becomes (helm template, jinja)"),
    (r"(?m)^\s*--[a-z]", "flags stand in it without a program: begin with python -m sglang.launch_server"),
    (r"\.sh\b", "it calls other scripts: import the one that starts the server"),
)
# A place that a person or a program fills in: <model>, {{ model }}, {}.
_PLACE = re.compile(
    r"<[A-Za-z_][^<>]*>|(?<!\$)\{\{[^{}]*\}\}|(?<![:\s,\[])\{\}|(?<![\w$\"{])\{(?!inherited\})[A-Za-z_]\w*\}"
)


def import_command(path: Path) -> tuple[Config, list[str]]:
    """The config that reruns the server of a launch script, and notes on what it cannot know.

    Args:
        path: a shell script, or a text with the command in it.

    Returns:
        config: study, server, grid (the command's steps, profile `imported`), nccl_profiles.
        notes: one line each.

    Raises:
        BadInput: there is no SGLang launch in the file, or the file is far too long for one.
    """
    path = Path(path)
    text = read_text(path, "launch script")
    if len(text) > _LONGEST_TEXT:
        raise BadInput(
            f"{path}: {len(text) / 1e6:.1f} million characters, too long for a launch script; copy the "
            "command into a file of its own"
        )
    launches, notes = texts.launches(text)
    if not launches:
        hints = [hint for pattern, hint in _INSTEAD if re.search(pattern, text)]
        raise BadInput(
            f"{path}: no SGLang launch in it (python -m sglang.launch_server ..., or sglang serve ...)"
            + "".join(f"; {hint}" for hint in hints[:1])
        )
    nodes = _nodes_of(launches, notes)
    config = _config(path, nodes, notes)
    notes += _unknown(nodes, config)
    return config, list(dict.fromkeys(notes))


def _nodes_of(launches: list[Launch], notes: list[str]) -> list[Launch]:
    """The launches of the first server: itself, and its other nodes where the script starts them too."""
    first = launches[0]
    nodes = {_node_rank(first): first}
    others = []
    for launch in launches[1:]:
        rank = _node_rank(launch)
        if rank is not None and rank not in nodes and _model(launch) == _model(first):
            nodes[rank] = launch
        else:
            others.append(launch.line)
    if others:
        lines = ", ".join(map(str, dict.fromkeys(others)))
        what = "another server" if len(others) == 1 else f"{len(others)} other servers"
        notes.append(f"line {lines}: {what}; only the first one (line {first.line}) is imported")
    for launch in nodes.values():
        notes.extend(launch.notes)
    return [nodes[rank] for rank in sorted(nodes, key=lambda rank: rank or 0)]


def _unknown(nodes: list[Launch], config: Config) -> list[str]:
    """One line for each thing that a shell would know and that stands in the config as it is written."""
    texts = list(_texts(config))
    lines = [
        note
        for launch in nodes
        for written, note in launch.unknown.items()
        if any(written in text for text in texts)
    ]
    places = [place for text in texts for place in _PLACE.findall(text)]
    lines += [f"{place} is a place to fill in: put a value there" for place in dict.fromkeys(places)]
    conditions = {line: word for launch in nodes for line, word in launch.conditions.items()}
    if conditions:
        where, words = ", ".join(map(str, conditions)), ", ".join(dict.fromkeys(conditions.values()))
        where = f"lines {where}" if len(conditions) > 1 else f"line {where}"
        lines.append(
            f"{where}: conditions ({words}) are not followed: every branch is read, and "
            "what stands last counts"
        )
    return lines


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
    elif isinstance(value, str):
        yield value


def _node_rank(launch: Launch) -> int | None:
    flags = imported_flags.read(launch.flags, [])
    value = flags.get("node-rank", flags.get("node_rank"))
    return int(value) if isinstance(value, str | int) and str(value).isdigit() else None


def _model(launch: Launch) -> Any:
    flags = imported_flags.read(launch.flags, [])
    return flags.get("model-path", flags.get("model"))


def _config(path: Path, nodes: list[Launch], notes: list[str]) -> Config:
    first = nodes[0]
    server: Config = _program(first.program)
    flags = [imported_flags.read(n.flags, notes if n is first else []) for n in nodes]
    args, speculation = imported_flags.split(flags[0])
    notes += speculation.notes
    server["args"] = args
    plain = {n: typed(v) for n, v in first.environment.items() if not n.startswith("NCCL_")}
    nccl = {n: typed(v) for n, v in first.environment.items() if n.startswith("NCCL_")}
    if plain:
        server["env"] = plain
    if unset := [n for n in dict.fromkeys(first.unset) if not n.startswith("NCCL_")]:
        server["unset_env"] = unset
    if first.folder:
        server["cwd"] = first.folder
    if len(nodes) > 1:
        _several_nodes(server, nodes, flags, notes)
    elif str(args.get("nnodes", "1")) not in ("1", "None"):
        notes.append(
            f"one of {args['nnodes']} nodes: the commands of the others are not in the file; "
            "add them as server.nodes"
        )
    if speculation.section:
        server["speculative"] = speculation.section
    profile: Config = {"set": nccl, "note": f"as in {path.name}"}
    if removed := [n for n in dict.fromkeys(first.unset) if n.startswith("NCCL_")]:
        profile["unset"] = removed
    _pitfalls(args, notes)
    return {
        "study": _study_name(path),
        "server": server,
        "grid": {"steps": [speculation.steps], "nccl": [_PROFILE]},
        "nccl_profiles": {_PROFILE: profile},
    }


def _program(program: list[str]) -> Config:
    """Interpreter and entry; anything else in front (numactl, uv run) makes the whole the program."""
    if program and is_python(program[0]):
        return {"python": program[0], "entry": program[1:]}
    return {"python": None, "entry": program}


def _several_nodes(
    server: Config, nodes: list[Launch], flags: list[dict[str, Any]], notes: list[str]
) -> None:
    """What differs from node to node goes to server.nodes, what is the same stays in server.args."""
    differing = [f for f in flags[0] if any(other.get(f) != flags[0][f] for other in flags[1:])]
    differing += [f for other in flags[1:] for f in other if f not in flags[0] and f not in differing]
    entries = []
    for launch, theirs in zip(nodes, flags, strict=True):
        entry: Config = {"args": {f: theirs[f] for f in differing if f in theirs}}
        env = {n: typed(v) for n, v in launch.environment.items() if nodes[0].environment.get(n) != v}
        if env:
            entry["env"] = env
        entries.append(entry)
    for flag in differing:
        server["args"].pop(flag, None)
    server["nodes"] = entries
    notes.append(f"{len(nodes)} nodes: the workflow starts all of them on the machine it runs on")


def _pitfalls(args: Config, notes: list[str]) -> None:
    if "config" in args:
        notes.append(
            f"--config {args['config']}: what that file sets is not read here; write it in server.args, and "
            "what it says of speculation in server.speculative and grid.steps"
        )
    limit = args.get("cuda-graph-max-bs", args.get("cuda_graph_max_bs"))
    if isinstance(limit, int) and limit < 8:
        notes.append(
            f"--cuda-graph-max-bs {limit}: with more than {limit} requests at once decode runs without "
            "CUDA graphs, much slower"
        )


def _study_name(path: Path) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.name.split(".")[0] if path.suffix else path.name)
    return name.strip("-._")[:80] or "imported"
