"""Servers that a compose file or a Kubernetes manifest starts, as commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from quietgate.study.launch_wrappers import server_launches
from quietgate.study.launches import Launch
from quietgate.study.shell_variables import expanded
from quietgate.study.shell_words import Command

# In this order they make the command line; compose has the first two, Kubernetes the last two.
_WORDS = ("entrypoint", "command", "args")
_FILES = ("env_file", "envFrom")


def launches(text: str) -> list[Launch]:
    """The SGLang servers of the containers in a YAML text; none where it is no such text."""
    try:
        documents = list(yaml.safe_load_all(text))
    except yaml.YAMLError:
        return []
    return [launch for document in documents for spec in _containers(document) for launch in _of(spec, text)]


def _containers(value: Any) -> Iterator[dict[str, Any]]:
    """Every mapping that has a command."""
    if isinstance(value, dict):
        if any(isinstance(value.get(name), str | list) for name in _WORDS):
            yield value
        for inner in value.values():
            yield from _containers(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _containers(inner)


def _of(spec: Mapping[str, Any], text: str) -> list[Launch]:
    notes: list[str] = []
    environment = _environment(spec, notes)
    words = [word for name in _WORDS for word in _split(spec.get(name))]
    words = [_referred(word, environment, notes) for word in words]
    folder = spec.get("working_dir", spec.get("workingDir"))
    line = text[: text.find("sglang")].count("\n") + 1
    found = server_launches(Command(line, {}, words, environment, [], folder))
    notes += [
        f"{name}: {spec[name]}: its variables are not read; add them to server.env"
        for name in _FILES
        if name in spec
    ]
    notes.append(
        f"the server ran in a container ({spec.get('image', 'its image is not named')}): run the workflow "
        "inside it too, or name an interpreter with the same SGLang in server.python (paths are the "
        "container's)"
    )
    for launch in found:
        launch.notes = [*notes, *launch.notes]
    return found


def _split(words: Any) -> list[str]:
    if isinstance(words, list):
        return [str(word) for word in words]
    if not isinstance(words, str):
        return []
    try:
        return shlex.split(words)
    except ValueError:
        return words.split()


def _environment(spec: Mapping[str, Any], notes: list[str]) -> dict[str, str]:
    """`environment` of compose (a mapping, or NAME=value), `env` of Kubernetes (name and value)."""
    given = spec.get("environment", spec.get("env"))
    pairs: list[tuple[str, Any]] = []
    if isinstance(given, dict):
        pairs = list(given.items())
    for entry in given if isinstance(given, list) else ():
        if isinstance(entry, dict):
            pairs.append((str(entry.get("name")), entry.get("value")))
        else:
            name, equals, value = str(entry).partition("=")
            pairs.append((name, value if equals else None))
    found: dict[str, str] = {}
    for name, value in pairs:
        if value is None:
            notes.append(f"{name}: its value is not in the file; write it in server.env")
        else:
            found[name] = _interpolated(_text(value), notes)
    return found


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _referred(word: str, environment: Mapping[str, str], notes: list[str]) -> str:
    """A word with Kubernetes' $(NAME) and compose's ${NAME} replaced."""
    return _interpolated(
        re.sub(r"\$\((\w+)\)", lambda found: environment.get(found[1], found[0]), word), notes
    )


def _interpolated(text: str, notes: list[str]) -> str:
    # A shell script in a word is left to the shell's own reading.
    if "\n" in text or " " in text.strip():
        return text
    return expanded(text.replace("$$", "\\$"), {}, notes.append)
