"""What stands before the server's own command: env, nohup, numactl, docker run, srun, a shell in a string."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from quietgate.study.importing import elsewhere, shell_script
from quietgate.study.importing.elsewhere import CONTAINERS, IMAGE_RUNNERS, RANK_STARTERS
from quietgate.study.importing.launches import Launch, is_python, server_at, starts_cli
from quietgate.study.importing.shell_variables import is_expansion

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
_TALK = {"echo", "printf", "alias", "trap", "which", "type", "man", "ps", "grep", "pgrep", "pkill", "killall"}


def server_launches(command: shell_script.Command) -> list[Launch]:
    """The SGLang servers that a command starts; none for any other command."""
    launch = Launch(
        command.line,
        environment={**command.environment, **command.assignments},
        unset=list(command.unset),
        folder=command.folder,
        unknown=dict(command.unknown),
        conditions=dict(command.conditions),
    )
    return _unwrap(list(command.words), launch)


def _unwrap(words: list[str], launch: Launch) -> list[Launch]:
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
            words = elsewhere.in_container(words, launch)
        elif name in IMAGE_RUNNERS:
            words = elsewhere.in_image(words, launch)
        elif name in RANK_STARTERS:
            launch.notes.append(f"{name} and its options are left out: the workflow starts the server itself")
            at = _next_program(words)
            elsewhere.to_ranks(words[1:at], launch)
            words = words[at:]
        elif name in ("kubectl", "oc") and "--" in words:
            launch.notes.append(f"`{name}` is left out: run the workflow where the server ran")
            words = words[words.index("--") + 1 :]
        elif name in _MULTIPLEXERS:
            started = [i for i, w in enumerate(words) if i and (_is_code(w) or _starts(words[i:]))]
            words = words[started[0] :] if started else []
            if words and " " in words[0]:
                return _inner(words[0], launch)
        elif name in _SHELLS and (code := _code_of(words)):
            return _inner(code, launch)
        elif name == "ssh":
            rest = _after_options(words[1:], {"-p", "-i", "-o", "-l", "-J", "-F"})
            launch.notes.append(
                f"`ssh {' '.join(rest[:1])}` is left out: the workflow starts the server on its own machine"
            )
            return _inner(" ".join(rest[1:]), launch)
        elif name in _KEPT and (at := _next_program(words)) < len(words):
            found_inside = _unwrap(words[at:], launch)
            for inside in found_inside:
                inside.program = [*words[:at], *inside.program]
            return found_inside
        elif name in _KEPT or is_python(name) or name in ("sglang", "launch_server.py"):
            break
        elif name in _TALK:
            return []
        elif server_at(words) is not None:
            if not any(_starts(words[i:]) or words[i].endswith(".py") for i in range(len(words))):
                break  # another program that runs the module: accelerate launch -m
            left_out.append(words[0])
            words = words[1:]
        elif "sglang" in (code := _code_of(words)):
            launch.notes.append(_left_out(launch, words[: words.index(code) - 1]))
            return _inner(code, launch)
        else:
            return []
    if left_out:
        launch.notes.append(_left_out(launch, left_out))
    at_flags = server_at(words)
    if at_flags is None:
        return []
    launch.program, launch.flags = words[: at_flags + 1], words[at_flags + 1 :]
    # Without any, a sentence that names the program.
    return [launch] if any(w.startswith("--") or "/" in w or is_expansion(w) for w in launch.flags) else []


def _left_out(launch: Launch, words: list[str]) -> str:
    return f"line {launch.line}: `{' '.join(words)}` before the server's program is left out"


def _starts(words: list[str]) -> bool:
    """Can a command that is not yet unwrapped begin here, behind a wrapper's options?"""
    name = PurePosixPath(words[0]).name
    known = {"env", *_SHELLS, *_KEPT, *IMAGE_RUNNERS, *CONTAINERS}
    return is_python(name) or name in known or starts_cli(words)


def _next_program(words: list[str]) -> int:
    """Index of the program behind a wrapper and its options, or the number of words."""
    rest = range(1, len(words))
    return next((i for i in rest if _starts(words[i:]) and not words[i].startswith("-")), len(words))


def _is_code(word: str) -> bool:
    return " " in word and "sglang" in word


def _code_of(words: list[str]) -> str:
    """The code that -c gives to a shell, or ""."""
    behind = [words[i + 1] for i, w in enumerate(words[:-1]) if i and re.fullmatch(r"-\w*c", w)]
    return behind[0] if behind else ""


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


def _inner(text: str, launch: Launch) -> list[Launch]:
    """bash -c "...": the commands of the string, with the variables around it."""
    script = shell_script.read(text, launch.line, launch.environment)
    found: list[Launch] = []
    for command in script.commands:
        command.environment = {**launch.environment, **command.environment}
        command.unset = [*launch.unset, *command.unset]
        command.folder = command.folder or launch.folder
        command.unknown = {**launch.unknown, **command.unknown}
        command.conditions = {**launch.conditions, **command.conditions}
        for inner in server_launches(command):
            inner.notes = [*launch.notes, *script.notes, *inner.notes]
            found.append(inner)
    return found
