"""A shell command that started SGLang by hand, as a study's config: what to run, and what is not known."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any

from quietgate.errors import BadInput
from quietgate.inspect.lines import read_text
from quietgate.study import container_specs, shell_words
from quietgate.study.launch_wrappers import server_launches
from quietgate.study.launches import Launch, server_at

Config = dict[str, Any]

# Flags that the grid and the speculative section decide, by the word argparse knows them by.
_SPECULATIVE = {
    "speculative-algorithm": "algorithm",
    "speculative-draft-model-path": "draft_model_path",
    "speculative-draft-model": "draft_model_path",
    "speculative-num-steps": "steps",
    "speculative-eagle-topk": "topk",
    "speculative-num-draft-tokens": "draft_tokens",
}
_PROFILE = "imported"


def import_command(path: Path) -> tuple[Config, list[str]]:
    """The config that reruns the server of a launch script, and notes on what it cannot know.

    Args:
        path: a shell script, or a text with the command in it.

    Returns:
        config: study, server, grid (the command's steps, profile `imported`), nccl_profiles.
        notes: one line each.

    Raises:
        BadInput: there is no SGLang launch in the file.
    """
    path = Path(path)
    launches, notes = _launches(read_text(path, "launch script"))
    if not launches:
        raise BadInput(
            f"{path}: no SGLang launch in it (python -m sglang.launch_server ..., or sglang serve ...)"
        )
    nodes = _nodes_of(launches, notes)
    config = _config(path, nodes, notes)
    return config, list(dict.fromkeys(notes))


def _launches(text: str) -> tuple[list[Launch], list[str]]:
    """The servers that a text starts, and what could not be known in it."""
    if found := container_specs.launches(text):
        return found, []
    script = shell_words.read(text)
    found = [launch for command in script.commands for launch in server_launches(command)]
    # A script that only writes another one.
    for line, body in script.heredocs if not found else ():
        inner = shell_words.read(body, line)
        found += [launch for command in inner.commands for launch in server_launches(command)]
        script.notes += inner.notes
    return found, script.notes


def _nodes_of(launches: list[Launch], notes: list[str]) -> list[Launch]:
    """The launches of the first server: itself, and its other nodes where the script starts them too."""
    first = launches[0]
    flags = _flags(first, [])
    nodes = [first]
    for other in launches[1:]:
        theirs = _flags(other, [])
        rank, known = _node_rank(theirs), {_node_rank(_flags(n, [])) for n in nodes}
        if rank is not None and rank not in known and _model(theirs) == _model(flags):
            nodes.append(other)
        else:
            notes.append(
                f"line {other.line}: another server; only the first one (line {first.line}) is imported"
            )
    for launch in nodes:
        notes.extend(launch.notes)
    return sorted(nodes, key=lambda n: _node_rank(_flags(n, [])) or 0)


def _node_rank(flags: dict[str, Any]) -> int | None:
    value = flags.get("node-rank", flags.get("node_rank"))
    return int(value) if isinstance(value, str | int) and str(value).isdigit() else None


def _model(flags: dict[str, Any]) -> Any:
    return flags.get("model-path", flags.get("model"))


def _config(path: Path, nodes: list[Launch], notes: list[str]) -> Config:
    first = nodes[0]
    program = first.words[: _flags_at(first.words)]
    server: Config = _program(program)
    flags = [_flags(n, notes if n is first else []) for n in nodes]
    args, speculative, steps = _split(flags[0], notes)
    server["args"] = args
    plain = {n: _typed(v) for n, v in first.environment.items() if not n.startswith("NCCL_")}
    nccl = {n: _typed(v) for n, v in first.environment.items() if n.startswith("NCCL_")}
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
    if speculative:
        server["speculative"] = speculative
    profile: Config = {"set": nccl, "note": f"as in {path.name}"}
    if removed := [n for n in dict.fromkeys(first.unset) if n.startswith("NCCL_")]:
        profile["unset"] = removed
    _pitfalls(args, notes)
    return {
        "study": _study_name(path),
        "server": server,
        "grid": {"steps": [steps], "nccl": [_PROFILE]},
        "nccl_profiles": {_PROFILE: profile},
    }


def _program(program: list[str]) -> Config:
    """Interpreter and entry; anything else in front (numactl, uv run) makes the whole the program."""
    if program and PurePosixPath(program[0]).name.startswith("python"):
        return {"python": program[0], "entry": program[1:]}
    return {"python": None, "entry": program}


def _flags_at(words: list[str]) -> int:
    """Where the server's own flags begin."""
    at = server_at(words[_kept(words) :])
    start = 0 if at is None else at + _kept(words) + 1
    while start < len(words) and not words[start].startswith("--"):
        start += 1
    return start


def _kept(words: list[str]) -> int:
    for i, word in enumerate(words):
        name = PurePosixPath(word).name
        if name.startswith("python") or name == "sglang":
            return i
    return 0


def _flags(launch: Launch, notes: list[str]) -> dict[str, Any]:
    """Flags without dashes, in order; True for a bare one, a list for several values."""
    flags: dict[str, Any] = {}
    name: str | None = None
    for word in launch.words[_flags_at(launch.words) :]:
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            if name in flags:
                notes.append(f"--{name} stands twice; the last one counts, as for SGLang")
                del flags[name]
            flags[name] = _typed(value) if equals else True
        elif name is None:
            notes.append(f"{word!r} stands before any flag and is left out")
        elif flags[name] is True:
            flags[name] = _typed(word)
        else:
            before = flags[name]
            flags[name] = [*(before if isinstance(before, list) else [before]), _typed(word)]
    return flags


def _typed(text: str) -> str | int | float:
    """A number only where it is written back exactly as it was read; else the text."""
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        if str(number) == text:
            return number
    return text


def _split(flags: dict[str, Any], notes: list[str]) -> tuple[Config, Config, int]:
    """Plain flags, the speculative section, and the steps."""
    args: Config = {}
    found: Config = {}
    others: Config = {}
    for flag, value in flags.items():
        key = _speculative_key(flag)
        if key is not None:
            found[key] = value
        elif flag.replace("_", "-").startswith("speculative-"):
            others[flag] = value
        else:
            args[flag] = value
    if not found and not others:
        return args, {}, 0
    return args, *_speculation(found, others, notes)


def _speculative_key(flag: str) -> str | None:
    """Of a flag, spelled or abbreviated as argparse allows: its key in the speculative section."""
    name = flag.replace("_", "-")
    if name in _SPECULATIVE:
        return _SPECULATIVE[name]
    longer = {key for known, key in _SPECULATIVE.items() if known.startswith(name)}
    return longer.pop() if len(name) > len("speculative-") and len(longer) == 1 else None


def _speculation(found: Config, others: Config, notes: list[str]) -> tuple[Config, int]:
    section: Config = {}
    algorithm, steps = found.get("algorithm"), found.get("steps")
    if algorithm is None:
        notes.append(
            "speculative flags without --speculative-algorithm: SGLang runs without speculation, steps 0"
        )
        return ({"args": others} if others else {}), 0
    section["algorithm"] = str(algorithm)
    if found.get("draft_model_path") is not None:
        section["draft_model_path"] = str(found["draft_model_path"])
    if steps is not None and not isinstance(steps, int):
        notes.append(
            f"--speculative-num-steps is {steps}, no number known here; grid.steps [3] is a guess, "
            "write yours"
        )
        steps = 3
    elif steps is None:
        notes.append(
            f"--speculative-algorithm {algorithm} without a number of steps: SGLang would choose steps, "
            "topk and draft tokens itself; grid.steps [3] is a guess, write yours"
        )
        steps = 3
    for key, flag in (
        ("topk", "--speculative-eagle-topk"),
        ("draft_tokens", "--speculative-num-draft-tokens"),
    ):
        value = found.get(key)
        if isinstance(value, int):
            section[key] = value
        else:
            default = "1" if key == "topk" else "steps + 1"
            what = "not in the command" if value is None else f"{value}, no number known here"
            notes.append(f"{flag} is {what}; the config's default ({default}) is put in")
    if others:
        section["args"] = others
    return section, steps


def _several_nodes(
    server: Config, nodes: list[Launch], flags: list[dict[str, Any]], notes: list[str]
) -> None:
    """What differs from node to node goes to server.nodes, what is the same stays in server.args."""
    differing = [f for f in flags[0] if any(other.get(f) != flags[0][f] for other in flags[1:])]
    differing += [f for other in flags[1:] for f in other if f not in flags[0] and f not in differing]
    entries = []
    for launch, theirs in zip(nodes, flags, strict=True):
        entry: Config = {"args": {f: theirs[f] for f in differing if f in theirs}}
        env = {n: _typed(v) for n, v in launch.environment.items() if nodes[0].environment.get(n) != v}
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
