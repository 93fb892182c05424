"""The archive's metadata against the Workflow Run Crate profile, by the profile's own validator."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import pytest

from quietgate.share import bundle, crate
from share import studies


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
def test_is_a_workflow_run_crate(staged: Path) -> None:
    services = pytest.importorskip("rocrate_validator.services", reason="roc-validator is not installed")
    from rdflib.plugins.shared.jsonld import context as jsonld
    from rocrate_validator.models import Severity
    from rocrate_validator.utils import document_loader

    # The context by which the metadata is read is fetched from the network; rocrate brings a later one, in
    # which one vocabulary has moved.
    text = resources.files("rocrate").joinpath("data/ro-crate.jsonld").read_text()
    local = json.loads(text.replace("https://bioschemas.org/terms/", "https://bioschemas.org/"))
    original = document_loader._original_source_to_json

    def read(source: object, *args: object, **kwargs: object) -> object:
        if str(source).startswith("https://w3id.org/ro/crate/"):
            return local, None
        return original(source, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(document_loader, "_original_source_to_json", read)
        patch.setattr(jsonld, "source_to_json", read)
        settings = services.ValidationSettings(
            rocrate_uri=str(staged),
            profile_identifier="workflow-run-crate-0.5",
            requirement_severity=Severity.REQUIRED,
            # These two ask whether the network has the context.
            skip_checks=["ro-crate-1.1_3.1", "ro-crate-1.1_3.2"],
        )
        found = services.validate(settings)
    assert [f"{i.check.identifier}: {i.message}" for i in found.get_issues()] == []
