"""What a study names and this machine lacks.

Not part of the config's own check, since a plan may be made on another machine than the run: `plan` warns,
a run refuses.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from quietgate.study.nccl_variables import missing_file
from quietgate.study.study import Study


def missing(study: Study) -> list[str]:
    """One line for each program, folder or file that the study needs and this machine does not have."""
    return [f"{study.source}: {line}" for line in dict.fromkeys(_lines(study))]


def _lines(study: Study) -> Iterator[str]:
    server = study.config["server"]
    python, entry, cwd = server["python"], server["entry"], server["cwd"]
    if python and not _program(python):
        yield f"server.python: no program {python} here; name the interpreter that has SGLang"
    if python is None and entry and not _program(entry[0]):
        yield f"server.entry: no program {entry[0]} here; name it by its path"
    check = study.config["all_reduce"]
    if check["enabled"] and check["python"] and not _program(check["python"]):
        yield f"all_reduce.python: no program {check['python']} here; name an interpreter that has PyTorch"
    if cwd and not Path(cwd).expanduser().is_dir():
        yield f"server.cwd: no folder {cwd} here"
    if not study.prompts_path.is_file():
        yield f"benchmark.prompts: no file {study.prompts_path} here"
    for cell in study.launched:
        for process in study.resolved(cell)["processes"]:
            for name, value in process["env"].items():
                problem = missing_file(name, value)
                if problem:
                    yield f"{name} (profile {cell.nccl}): {problem}"


def _program(name: str) -> bool:
    return shutil.which(Path(name).expanduser()) is not None
