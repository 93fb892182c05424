"""The archive's metadata against the Workflow Run Crate profile, by the profile's own validator."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib import resources
from pathlib import Path

import pytest

from quietgate.share import bundle, crate
from share import studies

VALIDATOR = Path(__file__).parents[2] / ".venv-crate" / "bin" / "python"


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = studies.write(tmp_path_factory.mktemp("crate"), draw=False, profiles=("tuned",), launches=1)
    target = folder.parent / "staged"
    bundle.stage(folder, target, lambda line: None)
    return target


def test_describes_files_launches_and_the_run(staged: Path) -> None:
    graph = json.loads((staged / crate.NAME).read_text())["@graph"]
    entities = {e["@id"]: e for e in graph}
    parts = {p["@id"] for p in entities["./"]["hasPart"]}
    assert {"study.json", "config.yaml", "tables/cells.csv", "figures/decode_tokens_per_s.pdf"} <= parts
    assert "cells/steps-0_nccl-tuned/l1/" in parts
    assert entities["./"]["mainEntity"] == {"@id": "code/Snakefile"}
    run = entities["#run"]
    assert run["instrument"] == {"@id": "code/Snakefile"}
    assert run["object"] == {"@id": "config.yaml"}
    assert {"@id": "tables/cells.csv"} in run["result"]
    for entity in graph:
        if "sha256" in entity:
            assert (staged / entity["@id"]).stat().st_size == int(entity["contentSize"])


@pytest.mark.slow
@pytest.mark.skipif(not VALIDATOR.exists(), reason="no .venv-crate (make test builds it)")
@pytest.mark.parametrize("broken", [False, True], ids=["as staged", "without instrument"])
def test_is_a_workflow_run_crate(staged: Path, tmp_path: Path, broken: bool) -> None:
    folder = tmp_path / "crate"
    shutil.copytree(staged, folder)
    if broken:
        document = json.loads((folder / crate.NAME).read_text())
        run = next(e for e in document["@graph"] if e["@id"] == "#run")
        del run["instrument"]
        (folder / crate.NAME).write_text(json.dumps(document))
    context = resources.files("rocrate").joinpath("data/ro-crate.jsonld")
    done = subprocess.run(
        [VALIDATOR, Path(__file__).with_name("validate_crate.py"), folder, str(context)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    *problems, executed = done.stdout.splitlines()
    assert int(executed.split()[0]) > 50
    assert bool(problems) == broken, problems
