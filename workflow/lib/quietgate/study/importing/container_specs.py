"""Servers that a YAML or JSON text starts: compose files, Kubernetes manifests, tasks with a script in it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from quietgate.study.importing import shell_script
from quietgate.study.importing.launches import Launch
from quietgate.study.importing.shell_script import Command
from quietgate.study.importing.shell_variables import expanded
from quietgate.study.importing.wrappers import server_launches

# In this order they make the command line; compose has the first two, Kubernetes the last two.
_WORDS = ("entrypoint", "command", "args")
_FILES = ("env_file", "envFrom")
# Where a mapping has its variables: compose, Kubernetes and workflows, SkyPilot.
_VARIABLES = ("environment", "env", "envs")
_LINE = "the line of this mapping"  # no key of any such file


class _Loader(yaml.SafeLoader):
    """Remembers the line in which each mapping begins."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        return {**super().construct_mapping(node, deep), _LINE: node.start_mark.line + 1}


def launches(text: str) -> list[Launch]:
    """The SGLang servers of the containers in a YAML text; none where it is no such text.

    Without any, those of the scripts that stand in it (`run: |` of a task).
    """
    try:
        # Editors put comments of another language into their JSON.
        documents = list(yaml.load_all(re.sub(r"(?m)^[ \t]*//.*$", "", text), _Loader))
    except (yaml.YAMLError, ValueError, RecursionError):
        return []
    seen: set[int] = set()
    specs = [spec for document in documents for spec in _mappings(document, {}, seen)]
    found = [launch for spec, _ in specs for launch in _of(spec)]
    return found or [launch for spec, around in specs for launch in _of_scripts(spec, around, text)]


def _mappings(
    value: Any, around: dict[str, Any], seen: set[int]
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Every mapping once (an alias is the same one), with the variables of those around it."""
    if id(value) in seen:
        return
    if isinstance(value, dict | list):
        seen.add(id(value))
    if isinstance(value, dict):
        yield value, around
        inside: dict[str, Any] = next(
            (value[name] for name in _VARIABLES if isinstance(value.get(name), dict)), {}
        )
        value, around = list(value.values()), {**around, **inside}
    if isinstance(value, list):
        for inner in value:
            yield from _mappings(inner, around, seen)


def _of(spec: Mapping[str, Any]) -> list[Launch]:
    """The servers of a container: a mapping that has a command."""
    if not any(isinstance(spec.get(name), str | list) for name in _WORDS):
        return []
    notes: list[str] = []
    unknown: dict[str, str] = {}
    environment = _environment(spec, notes, unknown)
    module = [str(spec.get("python", "python")), "-m", str(spec["module"])] if "module" in spec else []
    words = module + [word for name in _WORDS for word in _split(spec.get(name))]
    words = [_referred(word, environment, unknown) for word in words]
    folder = spec.get("working_dir", spec.get("workingDir", spec.get("cwd")))
    found = server_launches(Command(spec[_LINE], {}, words, environment, [], folder, unknown))
    notes += [
        f"{name}: {spec[name]}: its variables are not read; add them to server.env"
        for name in _FILES
        if name in spec
    ]
    if not module:
        notes.append(
            f"the server ran in a container ({spec.get('image', 'its image is not named')}): run the "
            "workflow inside it too, or name an interpreter with the same SGLang in server.python (paths "
            "are the container's)"
        )
    for launch in found:
        launch.notes = [*notes, *launch.notes]
    return found


def _of_scripts(spec: Mapping[str, Any], around: Mapping[str, Any], text: str) -> list[Launch]:
    """The servers of the scripts that stand in a mapping as text."""
    notes: list[str] = []
    unknown: dict[str, str] = {}
    environment = _environment({"env": dict(around)}, notes, unknown) | _environment(spec, notes, unknown)
    found: list[Launch] = []
    for value in spec.values():
        # A notebook has the lines of a cell in a list.
        lines = isinstance(value, list) and all(isinstance(line, str) for line in value)
        apart = "" if lines and any(line.endswith("\n") for line in value) else "\n"
        inside = apart.join(value) if lines else value
        if not isinstance(inside, str) or "sglang" not in inside:
            continue
        script = shell_script.read(inside, _line_of(inside, text, spec[_LINE]), environment)
        for command in script.commands:
            command.environment = {**environment, **command.environment}
            command.unknown = {**unknown, **command.unknown}
            for launch in server_launches(command):
                launch.notes = [*notes, *script.notes, *launch.notes]
                found.append(launch)
    return found


def _line_of(inside: str, text: str, first: int) -> int:
    """The line of a text in which a script begins that stands in it."""
    begins = inside.split("\n", 1)[0]
    lines = text.split("\n")
    return next((i for i in range(first, len(lines) + 1) if begins in lines[i - 1]), first)


def _split(words: Any) -> list[str]:
    if isinstance(words, list):
        return [str(word) for word in words]
    if not isinstance(words, str):
        return []
    try:
        return shlex.split(words)
    except ValueError:
        return words.split()


def _environment(spec: Mapping[str, Any], notes: list[str], unknown: dict[str, str]) -> dict[str, str]:
    """`environment` of compose (a mapping, or NAME=value), `env` of Kubernetes (name and value)."""
    given = next((spec[name] for name in _VARIABLES if name in spec), None)
    pairs: list[tuple[str, Any]] = []
    if isinstance(given, dict):
        pairs = [(name, value) for name, value in given.items() if name != _LINE]
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
            found[name] = _interpolated(_text(value), unknown)
    return found


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _referred(word: str, environment: Mapping[str, str], unknown: dict[str, str]) -> str:
    """A word with Kubernetes' $(NAME) and compose's ${NAME} replaced."""
    return _interpolated(
        re.sub(r"\$\((\w+)\)", lambda found: environment.get(found[1], found[0]), word), unknown
    )


def _interpolated(text: str, unknown: dict[str, str]) -> str:
    # A shell script in a word is left to the shell's own reading.
    if "\n" in text or " " in text.strip():
        return text.replace("$$", "$")

    def note(written: str, about: str) -> None:
        unknown.setdefault(written, about)

    return expanded(text.replace("$$", "\\$"), {}, note)
