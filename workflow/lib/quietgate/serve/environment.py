"""The exact command and environment of a server process, from its template."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from quietgate.serve.processes import MARKER

# Ours, and of no concern to a server.
_PRIVATE = ("QUIETGATE_OWNER",)


def fill(text: str, values: Mapping[str, str]) -> str:
    """`text` with each `{name}` of `values` replaced; every other brace stays (values hold JSON)."""
    for name, value in values.items():
        text = text.replace("{" + name + "}", value)
    return text


def command(argv: Iterable[str], values: Mapping[str, str]) -> list[str]:
    """The argument list: placeholders filled, a leading `~/` expanded as a shell would."""
    program, *words = (fill(token, values) for token in argv)
    words = [os.path.expanduser(word) if word.startswith("~/") else word for word in words]  # noqa: PTH111
    return [os.path.expanduser(program), *words]  # noqa: PTH111 - keeps a bare name bare


def dropped(inherited: Iterable[str], drop: Iterable[str], keep: Iterable[str]) -> list[str]:
    """The inherited variables that match a pattern of `drop` and none of `keep`, sorted."""
    drop, keep = tuple(drop), tuple(keep)
    return sorted(
        name
        for name in inherited
        if any(fnmatchcase(name, pattern) for pattern in drop)
        and not any(fnmatchcase(name, pattern) for pattern in keep)
    )


def environment(
    inherited: Mapping[str, str],
    *,
    drop: Iterable[str],
    keep: Iterable[str],
    unset: Iterable[str],
    env: Mapping[str, str],
    slot_env: Mapping[str, str],
    values: Mapping[str, str],
    instance: str,
) -> dict[str, str]:
    """Inherited variables less the dropped and unset ones, then the study's, the slot's, ours.

    In a value, `{inherited}` is what that variable was before, for lists such as PYTHONPATH.
    """
    absent = {*dropped(inherited, drop, keep), *unset, *_PRIVATE}
    found = {name: value for name, value in inherited.items() if name not in absent}
    found |= {
        name: fill(str(value), {**values, "inherited": found.get(name, "")}).strip(":")
        if "{inherited}" in str(value)
        else fill(str(value), values)
        for name, value in env.items()
    }
    return found | dict(slot_env) | {MARKER: instance}


def placeholders(port: int, node_port: int, dist_port: int, instance_dir: Path, slot: str) -> dict[str, str]:
    """The values of the placeholders in one process's arguments and variables."""
    return {
        "port": str(port),
        "node_port": str(node_port),
        "dist_port": str(dist_port),
        "instance_dir": str(instance_dir),
        "slot": slot,
    }
