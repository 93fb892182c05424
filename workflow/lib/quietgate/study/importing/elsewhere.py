"""Commands that run a server elsewhere (docker run, apptainer exec, srun, mpirun): what reaches it there."""

from __future__ import annotations

from quietgate.study.importing.launches import Launch
from quietgate.study.importing.shell_variables import is_expansion

CONTAINERS = frozenset({"docker", "podman", "nerdctl"})
IMAGE_RUNNERS = frozenset({"apptainer", "singularity", "enroot"})
RANK_STARTERS = frozenset({"srun", "mpirun", "mpiexec"})
# Behind these a path may be one of another file system.
ELSEWHERE = CONTAINERS | IMAGE_RUNNERS | {"srun", "ssh"}
# Docker's options without a value; every other one takes the next word.
_BARE = {
    "detach", "interactive", "tty", "rm", "privileged", "init", "publish-all", "read-only", "no-healthcheck",
    "oom-kill-disable", "sig-proxy", "nv", "rocm", "cleanenv", "containall", "contain", "fakeroot", "no-home",
    "writable", "writable-tmpfs", "rw", "root",
}  # fmt: skip
_BARE_SHORT = set("ditP")
# Options of mpirun and mpiexec that hand one variable on.
_RANK_VARIABLE = {"-x", "-genv", "-env"}


def in_container(words: list[str], launch: Launch) -> list[str]:
    """docker run|exec: the words inside; -e goes to `launch`, the image is named, the rest is dropped."""
    tool = words[0]
    at = next((i for i, w in enumerate(words) if w in ("run", "exec")), None)
    if at is None:
        return []
    # Variables before `docker` are those of the docker client; only -e reaches the server.
    outside = launch.environment
    launch.environment = {}
    rest = words[at + 1 :]
    entrypoint = None
    while rest and (rest[0].startswith("-") or _are_options(rest, entrypoint)):
        if not rest[0].startswith("-"):
            launch.notes.append(
                f"{rest[0]} among the options of {tool} is not known here: add the variables that it hands "
                "on to server.env"
            )
            rest = rest[1:]
            continue
        if rest[0].startswith("--"):
            name, equals, attached = rest[0][2:].partition("=")
            bare = name in _BARE
        else:
            name, attached = _short(rest[0])
            equals, bare = attached, not name
        value = attached if equals else "" if bare else (rest[1] if len(rest) > 1 else "")
        rest = rest[1:] if equals or bare else rest[2:]
        if name in ("e", "env"):
            _hand_on(value, outside, launch)
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
    return [entrypoint, *rest] if entrypoint else rest


def in_image(words: list[str], launch: Launch) -> list[str]:
    """apptainer exec IMAGE command: the words inside. --env goes to `launch`, the image is named."""
    rest = words[2:]
    while rest and rest[0].startswith("-"):
        option, equals, attached = rest[0].partition("=")
        bare = option.lstrip("-") in _BARE
        value = attached if equals else "" if bare else (rest[1] if len(rest) > 1 else "")
        rest = rest[1:] if equals or bare else rest[2:]
        if option == "--env-file":
            launch.notes.append(f"--env-file {value}: its variables are not read; add them to server.env")
        if option == "--env":
            for pair in value.split(","):
                _hand_on(pair, launch.environment, launch)
    if rest:
        launch.notes.append(
            f"{words[0]} {rest[0]}: the server ran inside that image; run the workflow inside it too"
        )
    return rest[1:]


def to_ranks(options: list[str], launch: Launch) -> None:
    """Variables that srun or mpirun hands on: --export=ALL,A=b, -x A=b, -genv A b."""
    for i, option in enumerate(options):
        following = options[i + 1] if i + 1 < len(options) else ""
        if option.startswith("--export"):
            listed = option.partition("=")[2] if "=" in option else following
            for pair in listed.split(","):
                if pair not in ("ALL", "NONE", "NIL"):
                    _hand_on(pair, launch.environment, launch)
        elif option.startswith("--container-image"):
            image = option.partition("=")[2] or following
            launch.notes.append(
                f"the server ran in the image {image}: run the workflow inside it too (paths are the image's)"
            )
        elif option in _RANK_VARIABLE:
            if option != "-x" and "=" not in following and i + 2 < len(options):
                following = f"{following}={options[i + 2]}"
            _hand_on(following, launch.environment, launch)


def _are_options(rest: list[str], entrypoint: str | None) -> bool:
    """Does an expansion that is not known stand for options, and not for the image?"""
    if not is_expansion(rest[0]) or len(rest) < 2:
        return False
    if rest[0].endswith(("[@]}", "[*]}")) or is_expansion(rest[1]):
        return True
    return rest[1].startswith("-") and entrypoint is None


def _short(options: str) -> tuple[str, str]:
    """Of short options in one word the one that takes a value, "" if none does, and the value in the word."""
    for i, letter in enumerate(options):
        if i and letter not in _BARE_SHORT:
            return letter, options[i + 1 :].removeprefix("=")
    return "", ""


def _hand_on(variable: str, outside: dict[str, str], launch: Launch) -> None:
    """NAME=value, or NAME with the value that it has `outside`."""
    name, equals, text = variable.partition("=")
    if equals:
        launch.environment[name] = text
    elif name in outside:
        launch.environment[name] = outside[name]
    else:
        launch.notes.append(
            f"{name} was handed on from the shell, and its value is not known; write it in server.env"
        )
