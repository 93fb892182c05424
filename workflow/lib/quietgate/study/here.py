"""What a study names and this machine lacks."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from quietgate.files import at_home
from quietgate.study.flags import canonical
from quietgate.study.importing.elsewhere import ELSEWHERE
from quietgate.study.nccl_variables import missing_file
from quietgate.study.study import Study

# Arguments that name a model by a path or by its name on a hub.
_MODELS = ("model_path", "tokenizer_path", "speculative_draft_model_path")
# Options of Python whose value is the next word.
_WITH_VALUE = ("-W", "-X")


def missing(study: Study) -> list[str]:
    """One line for each program, folder or file that the study needs and this machine does not have."""
    return [f"{study.source}: {line}" for line in dict.fromkeys(_lines(study))]


def _lines(study: Study) -> Iterator[str]:
    server = study.config["server"]
    python, entry, cwd = server["python"], server["entry"], server["cwd"]
    folder = study.server_folder.absolute()
    if python and not _program(python, folder):
        yield f"server.python: no program {python} here; name the interpreter that has SGLang"
    script = _script(entry or []) if python else None
    if script and not _exists(folder / at_home(script)):
        yield f"server.entry: no file {script} here; name the script by its path"
    if python is None and entry and not _program(entry[0], folder):
        yield f"server.entry: no program {entry[0]} here; name it by its path"
    check = study.config["all_reduce"]
    if check["enabled"] and check["python"] and not _program(check["python"], folder):
        yield f"all_reduce.python: no program {check['python']} here; name an interpreter that has PyTorch"
    if cwd and not os.path.isdir(folder):  # noqa: PTH112
        yield f"server.cwd: no folder {cwd} here"
    if python or not entry or PurePosixPath(entry[0]).name not in ELSEWHERE:
        for place, model in _models(study.config):
            if _is_path(model) and not _exists(folder / at_home(model)):
                yield f"{place}: no model {model} here; name its folder, or the model as org/name on its hub"
    if not os.path.isfile(study.prompts_path):  # noqa: PTH113
        yield f"benchmark.prompts: no file {study.prompts_path} here"
    for cell in study.launched:
        for process in study.resolved(cell)["processes"]:
            for name, value in process["env"].items():
                problem = missing_file(name, value)
                if problem:
                    yield f"{name} (profile {cell.nccl}): {problem}"


def _exists(path: Path) -> bool:
    # Path.exists() raises where a folder above may not be entered, or a name is too long.
    return os.path.exists(path)  # noqa: PTH110


def _program(name: str, folder: Path) -> bool:
    path = at_home(name)
    return shutil.which(folder / path if "/" in name else path) is not None


def _script(entry: list[str]) -> str | None:
    """The script that Python is given, or None where it is given a module, code, or nothing known."""
    words = iter(entry)
    for word in words:
        if not word.startswith("-"):
            return word
        if word in _WITH_VALUE:
            next(words, None)
        elif word.startswith(_WITH_VALUE):
            continue
        elif word.startswith("--") or "m" in word or "c" in word:
            return None
    return None


def _models(config: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Every model that a server of the study is given, by its place in the config."""
    server, axes = config["server"], config["grid"]["axes"]
    flags = [(f"server.args.{flag}", flag, [value]) for flag, value in server["args"].items()]
    for i, node in enumerate(server["nodes"]):
        flags += [(f"server.nodes.{i}.args.{flag}", flag, [value]) for flag, value in node["args"].items()]
    if any(config["grid"]["steps"]):
        draft = server["speculative"]["draft_model_path"]
        flags.append(("server.speculative.draft_model_path", _MODELS[-1], [draft]))
    varied = {canonical(axis["flag"]) for axis in axes.values() if "flag" in axis}
    flags = [one for one in flags if canonical(one[1]) not in varied]
    flags += [
        (f"grid.axes.{name}.values", axis.get("flag", ""), axis["values"]) for name, axis in axes.items()
    ]
    for place, flag, values in flags:
        if canonical(flag) in _MODELS:
            yield from ((place, value) for value in values if isinstance(value, str))


def _is_path(model: str) -> bool:
    """Whether it can only be a path of this machine: a hub's names are `name` or `org/name`, a store's have
    a scheme, and `embedded:NAME` is made by the workflow."""
    if "://" in model:
        return False
    return model.startswith(("/", "./", "../", "~", "resources/")) or model.count("/") > 1
