"""What stands before the server's own command: env, nohup, numactl, docker run, srun, a shell in a string."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from quietgate.study import shell_words

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
_CONTAINERS = {"docker", "podman", "nerdctl"}
_IMAGE_RUNNERS = {"apptainer", "singularity", "enroot"}
# Behind these a path may be one of another file system.
ELSEWHERE = frozenset({*_CONTAINERS, *_IMAGE_RUNNERS, "srun", "ssh"})
_SHELLS = {"bash", "sh", "zsh", "dash"}
# Docker's options without a value; every other one takes the next word.
_BARE = {
    "detach", "interactive", "tty", "rm", "privileged", "init", "publish-all", "read-only", "no-healthcheck",
    "oom-kill-disable", "sig-proxy", "nv", "rocm", "cleanenv", "containall", "contain", "fakeroot", "no-home",
    "writable", "writable-tmpfs",
}  # fmt: skip
_BARE_SHORT = set("ditP")
# Options of srun, mpirun and mpiexec that take the next word.
_MPI_ENVIRONMENT = {"-x", "-genv", "-env"}
_MULTIPLEXERS = {"tmux", "screen"}
# They name a server, and start none.
_TALK = {"echo", "printf", "alias", "trap", "which", "type", "man"}


@dataclass
class Launch:
    """A server's command, freed of what stands around it.

    Attributes:
        line: where it starts in the file.
        words: the command: interpreter, entry, flags.
        environment: variables set for it.
        unset: variables removed for it.
        folder: its working folder, or None.
        notes: what was dropped or cannot be known.
    """

    line: int
    words: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    unset: list[str] = field(default_factory=list)
    folder: str | None = None
    notes: list[str] = field(default_factory=list)


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


def is_server(words: list[str]) -> bool:
    """Is this (the rest of) a command line that starts an SGLang server?"""
    return server_at(words) is not None and not {"-h", "--help"} & set(words)


def server_at(words: list[str]) -> int | None:
    """Index of the word behind which the server's flags begin (launch_server, or serve), or None."""
    python = False
    for i, word in enumerate(words):
        name = PurePosixPath(word).name
        if name == "launch_server.py" and (python or i == 0):
            return i
        if word == "sglang.launch_server" and python and words[i - 1] == "-m":
            return i
        if name == "sglang" and words[i + 1 : i + 2] == ["serve"]:
            return i + 1
        if word.startswith("--") and i:
            break
        python |= name.startswith("python")
    return None


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
        elif name in _CONTAINERS:
            return _container(words, launch)
        elif name in _IMAGE_RUNNERS:
            words = _image(words, launch)
        elif name in ("srun", "mpirun", "mpiexec"):
            launch.notes.append(f"{name} and its options are left out: the workflow starts the server itself")
            at = next(
                (i for i, w in enumerate(words) if i and _starts(words[i:]) and not w.startswith("-")),
                len(words),
            )
            _mpi_environment(words[1:at], launch)
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
    return name.startswith("python") or name in {"sglang", "env", *_SHELLS, *_IMAGE_RUNNERS, *_CONTAINERS}


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


def _container(words: list[str], launch: Launch) -> list[Launch]:
    """docker run|exec: -e inside, image or container named, the rest of its options dropped."""
    tool = words[0]
    at = next((i for i, w in enumerate(words) if w in ("run", "exec")), None)
    if at is None:
        return []
    # Variables before `docker` are those of the docker client; only -e reaches the server.
    outside = launch.environment
    launch.environment = {}
    rest = words[at + 1 :]
    entrypoint = None
    while rest and rest[0].startswith("-"):
        if rest[0].startswith("--"):
            name, equals, attached = rest[0][2:].partition("=")
            bare = name in _BARE
        else:
            name, attached = _short(rest[0])
            equals, bare = attached, not name
        value = attached if equals else "" if bare else (rest[1] if len(rest) > 1 else "")
        rest = rest[1:] if equals or bare else rest[2:]
        if name in ("e", "env"):
            _container_variable(value, outside, launch)
        elif name == "env-file":
            launch.notes.append(f"--env-file {value}: its variables are not read; add them to server.env")
        elif name in ("w", "workdir"):
            launch.folder = value
        elif name == "entrypoint":
            entrypoint = value
    image, rest = (rest[0], rest[1:]) if rest else ("", [])
    launch.notes.append(
        f"{tool} {words[at]} {image}: the server ran inside that container; run the workflow inside it "
        "too, or name an interpreter with the same SGLang in server.python (paths are the container's)"
    )
    launch.words = [entrypoint, *rest] if entrypoint else rest
    return _unwrap(launch)


def _short(options: str) -> tuple[str, str]:
    """Of short options in one word the one that takes a value, "" if none does, and the value in the word."""
    for i, letter in enumerate(options):
        if i and letter not in _BARE_SHORT:
            return letter, options[i + 1 :].removeprefix("=")
    return "", ""


def _mpi_environment(options: list[str], launch: Launch) -> None:
    """Variables that srun or mpirun hands on: --export=ALL,A=b, -x A=b, -genv A b."""
    for i, option in enumerate(options):
        following = options[i + 1] if i + 1 < len(options) else ""
        if option.startswith("--export"):
            listed = option.partition("=")[2] if "=" in option else following
            for pair in listed.split(","):
                if pair not in ("ALL", "NONE", "NIL"):
                    _container_variable(pair, launch.environment, launch)
        elif option in _MPI_ENVIRONMENT:
            if option != "-x" and "=" not in following and i + 2 < len(options):
                following = f"{following}={options[i + 2]}"
            _container_variable(following, launch.environment, launch)


def _container_variable(value: str, outside: dict[str, str], launch: Launch) -> None:
    name, equals, text = value.partition("=")
    if equals:
        launch.environment[name] = text
    elif name in outside:
        launch.environment[name] = outside[name]
    else:
        launch.notes.append(
            f"{name} was handed on from the shell, and its value is not known; write it in server.env"
        )


def _image(words: list[str], launch: Launch) -> list[str]:
    """apptainer exec IMAGE command: variables by --env, the image named."""
    rest = words[2:]
    while rest and rest[0].startswith("-"):
        option, equals, attached = rest[0].partition("=")
        bare = option.lstrip("-") in _BARE
        value = attached if equals else "" if bare else (rest[1] if len(rest) > 1 else "")
        rest = rest[1:] if equals or bare else rest[2:]
        if option == "--env":
            for pair in value.split(","):
                _container_variable(pair, launch.environment, launch)
    if rest:
        launch.notes.append(
            f"{words[0]} {rest[0]}: the server ran inside that image; run the workflow inside it too"
        )
    return rest[1:]


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
