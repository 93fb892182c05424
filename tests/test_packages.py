"""Packages that the workflow needs are looked for before anything is imported or started."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from quietgate import packages

ROOT = Path(__file__).parents[1]


def test_every_package_that_the_library_imports_is_looked_for() -> None:
    found: set[str] = set()
    for file in Path(packages.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.split(".")[0])
    assert found - sys.stdlib_module_names - {"quietgate"} == set(packages.PACKAGES)


def test_nothing_is_lacking_here() -> None:
    assert packages.lacking() == []


# The first is imported while the Snakefile is read, the second by a job only.
@pytest.mark.parametrize("name", ["aiohttp", "rocrate"])
@pytest.mark.parametrize("conda", [False, True], ids=["alone", "conda"])
def test_a_run_without_a_package_is_refused_in_one_line(tmp_path: Path, name: str, conda: bool) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.machinery as m, sys\n"
        "find = m.PathFinder.find_spec\n"
        f"hide = lambda name, *rest: None if name == {name!r} else find(name, *rest)\n"
        "m.PathFinder.find_spec = hide\n"
    )
    command = [sys.executable, "-m", "snakemake", "--cores", "1", "-n", "all", "-d", str(tmp_path)]
    if conda:
        command += ["--software-deployment-method", "conda"]
    done = subprocess.run(
        [*command, "-s", str(ROOT / "Snakefile")],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": str(tmp_path)},
        text=True,
        capture_output=True,
    )
    said = f"{sys.executable} has no package {name}; install the pins of envs/workflow.txt for it"
    if conda:  # the jobs have an environment of their own
        assert said not in done.stderr
        return
    assert done.returncode == 2
    assert said in done.stderr.splitlines()
    assert "Traceback" not in done.stderr
