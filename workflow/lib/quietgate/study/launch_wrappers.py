"""What stands before the server's own command: env, nohup, numactl, docker run, srun, a shell in a string."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from quietgate.study import launch_elsewhere, shell_words
from quietgate.study.launch_elsewhere import CONTAINERS, IMAGE_RUNNERS, RANK_STARTERS
from quietgate.study.launches import Launch, is_server, server_at

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.S)
# Wrappers that change nothing the server's command line shows.
_TRANSPARENT = {"nohup", "exec", "setsid", "time", "stdbuf", "unbuffer", "command"}
_WITH_VALUE = {"exec": {"-a"}, "time": {"-f", "-o"}, "stdbuf": {"-i", "-o", "-e"}}
# Wrappers that are part of how the server runs: they stay in front of it.
_KEPT = {
    "numactl",
    "taskset",
    "nice",
    "ionice",
    "chrt",
    "uv",
    "conda",
    "poetry",
    "pixi",
    "rye",
    "nsys",
    "torchrun",
}
_SHELLS = {"bash", "sh", "zsh", "dash"}
_MULTIPLEXERS = {"tmux", "screen"}
# They name a server, and start none.
_TALK = {"echo", "printf", "alias", "trap", "which", "type", "man"}


def server_launches(command: shell_words.Command) -> list[Launch]:
    """The SGLang servers that a command starts; none for any other command."""
    launch = Launch(
        command.line,
        list(command.words),
        {**command.environment, **command.assignments},
        list(command.unset),
        command.folder,
    )
    return _unwrap(launch)


def _unwrap(launch: Launch) -> list[Launch]:
    words = launch.words
    left_out: list[str] = []
    while words:
        name = PurePosixPath(words[0]).name
        if found := _ASSIGNMENT.fullmatch(words[0]):
            launch.environment[found[1]] = found[2]
            words = words[1:]
        elif name == "env":
            words = _env(words[1:], launch)
        elif name == "sudo":
            launch.notes.append("sudo is left out: the server runs as the user who starts the workflow")
            words = _after_options(words[1:], {"-u", "-g", "-h", "-p"})
        elif name == "timeout":
            launch.notes.append(
                f"`timeout {words[1] if len(words) > 1 else ''}` is left out: the workflow ends the server"
            )
            words = _after_options(words[1:], {"-k", "-s"})[1:]
        elif name in _TRANSPARENT:
            words = _after_options(words[1:], _WITH_VALUE.get(name, set()))
        elif name in CONTAINERS:
            words = launch_elsewhere.in_container(words, launch)
        elif name in IMAGE_RUNNERS:
            words = launch_elsewhere.in_image(words, launch)
        elif name in RANK_STARTERS:
            launch.notes.append(f"{name} and its options are left out: the workflow starts the server itself")
            at = next(
                (i for i, w in enumerate(words) if i and _starts(words[i:]) and not w.startswith("-")),
                len(words),
            )
            launch_elsewhere.to_ranks(words[1:at], launch)
            words = words[at:]
        elif name in ("kubectl", "oc") and "--" in words:
            launch.notes.append(f"`{name}` is left out: run the workflow where the server ran")
            words = words[words.index("--") + 1 :]
        elif name in _MULTIPLEXERS:
            started = [i for i, w in enumerate(words) if i and ("sglang" in w or _starts(words[i:]))]
            words = words[started[0] :] if started else []
            if words and " " in words[0]:
                return _inner(["sh", "-c", words[0]], launch)
        elif name in _SHELLS and any(re.fullmatch(r"-\w*c", w) for w in words[1:3]):
            return _inner(words, launch)
        elif name == "ssh":
            rest = _after_options(words[1:], {"-p", "-i", "-o", "-l", "-J", "-F"})
            launch.notes.append(
                f"`ssh {' '.join(rest[:1])}` is left out: the workflow starts the server on its own machine"
            )
            return _inner(["sh", "-c", " ".join(rest[1:])], launch)
        elif name in _KEPT or name in ("sglang", "launch_server.py") or name.startswith("python"):
            break
        elif name in _TALK or server_at(words) is None:
            return []
        else:
            left_out.append(words[0])
            words = words[1:]
    if left_out:
        launch.notes.append(
            f"line {launch.line}: `{' '.join(left_out)}` before the server's program is left out"
        )
    launch.words = words
    if words and PurePosixPath(words[0]).name in _KEPT and is_server(_past_kept(words)):
        return [launch]
    return [launch] if is_server(words) else []


def _starts(words: list[str]) -> bool:
    name = PurePosixPath(words[0]).name
    return name.startswith("python") or name in {"sglang", "env", *_SHELLS, *IMAGE_RUNNERS, *CONTAINERS}


def _past_kept(words: list[str]) -> list[str]:
    for i, word in enumerate(words):
        if i and (PurePosixPath(word).name.startswith("python") or PurePosixPath(word).name == "sglang"):
            return words[i:]
    return words


def _env(words: list[str], launch: Launch) -> list[str]:
    while words:
        if words[0] in ("-u", "--unset") and len(words) > 1:
            launch.unset.append(words[1])
            launch.environment.pop(words[1], None)
            words = words[2:]
        elif words[0].startswith("--unset="):
            launch.unset.append(words[0].partition("=")[2])
            words = words[1:]
        elif words[0] in ("-i", "-", "--ignore-environment"):
            launch.notes.append("`env -i`: the workflow keeps the rest of the environment it was started in")
            words = words[1:]
        elif found := _ASSIGNMENT.fullmatch(words[0]):
            launch.environment[found[1]] = found[2]
            words = words[1:]
        else:
            break
    return words


def _after_options(words: list[str], with_value: set[str]) -> list[str]:
    while words and words[0].startswith("-"):
        words = words[2:] if words[0] in with_value else words[1:]
    return words


def _inner(words: list[str], launch: Launch) -> list[Launch]:
    """bash -c "...": the commands of the string, with the variables around it."""
    at = next(i for i, w in enumerate(words) if i and re.fullmatch(r"-\w*c", w))
    text = words[at + 1] if len(words) > at + 1 else ""
    script = shell_words.read(text, launch.line, launch.environment)
    found: list[Launch] = []
    for command in script.commands:
        command.environment = {**launch.environment, **command.environment}
        command.unset = [*launch.unset, *command.unset]
        command.folder = command.folder or launch.folder
        for inner in server_launches(command):
            inner.notes = [*launch.notes, *script.notes, *inner.notes]
            found.append(inner)
    return found
