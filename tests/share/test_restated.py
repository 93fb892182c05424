"""What an archive says besides its records is found out where it says something else, also resealed."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from quietgate import provenance
from quietgate.files import sha256
from quietgate.share import checksums, crate, restated, verify
from quietgate.share.archive import files
from quietgate.share.remake import PROMPTS
from share import studies


@pytest.fixture
def archive(shared: tuple[Path, list[str]], tmp_path: Path) -> Path:
    """The archive as a folder, to forge."""
    with zipfile.ZipFile(shared[0]) as packed:
        packed.extractall(tmp_path / "a")
    return tmp_path / "a"


def reseal(root: Path) -> None:
    """All that somebody can make right who knows of checksums and of the crate."""
    path = root / crate.NAME
    described = json.loads(path.read_text())
    graph = [e for e in described["@graph"] if "sha256" not in e or (root / e["@id"]).is_file()]
    for entity in graph:
        if "sha256" in entity:
            entity["sha256"] = sha256(root / entity["@id"])
    described["@graph"] = graph
    path.write_text(json.dumps(described))
    checksums.write(root, files(root))


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def config(root: Path, change: Callable[[dict[str, Any]], object]) -> None:
    found = yaml.safe_load((root / "config.yaml").read_text())
    change(found)
    (root / "config.yaml").write_text(yaml.safe_dump(found))


FORGED: dict[str, tuple[Callable[[Path], object], str]] = {
    "another profile in the config": (
        lambda r: config(r, lambda c: c["nccl_profiles"]["tuned"]["set"].update(NCCL_PROTO="Simple")),
        "config.yaml: nccl_profiles.tuned.set.NCCL_PROTO is not what study.json says",
    ),
    "a key more in the config": (
        lambda r: config(r, lambda c: c["server"]["env"].update(LD_PRELOAD="/x.so")),
        "config.yaml: server.env.LD_PRELOAD is not what study.json says",
    ),
    "another config": (lambda r: (r / "config.yaml").write_text("- x\n"), "config.yaml: all of it is not"),
    "no config": (lambda r: (r / "config.yaml").unlink(), "config.yaml: cannot be read"),
    "an alias": (
        lambda r: (r / "config.yaml").write_text("a: &a [x]\nb: [*a, *a]\n"),
        "config.yaml: cannot be read (an alias",
    ),
    "a key twice": (
        lambda r: replace(r / "config.yaml", "seed:", "seed: 5\nseed:"),
        "seed stands here a second time",
    ),
    "deep YAML": (lambda r: (r / "config.yaml").write_text("[" * 20000), "config.yaml: cannot be read"),
    "large YAML": (lambda r: (r / "config.yaml").write_text("#" * 2**22), "larger than 2 MiB"),
    "a claim": (
        lambda r: replace(r / "REVIEWERS.md", "| claim |", "Ours is ten times as fast.\n\n| claim |"),
        "REVIEWERS.md: not what the code that made the archive writes",
    ),
    "no page": (lambda r: (r / "REVIEWERS.md").unlink(), "REVIEWERS.md: not what the code"),
    "statistics that make no page": (
        lambda r: (r / "tables/statistics.json").write_text('{"contrasts": [{"claim": 1}]}'),
        "REVIEWERS.md: not what the code",
    ),
    "replacements": (
        lambda r: replace(r / "replacements.csv", "/home/user1,", "/home/user1,9"),
        "replacements.csv: not what archive.json says",
    ),
    "changes of the code": (
        lambda r: ((r / "code/changes.patch").write_text("x\n"),
                   studies.edit(r / "archive.json", code__modified=False)),
        "code/changes.patch: archive.json says",
    ),
    "another study": (
        lambda r: studies.edit(r / "archive.json", study="x"),
        "archive.json: of another study (x)",
    ),
    "no fields": (
        lambda r: (r / "archive.json").write_text('{"schema": "quietgate/archive/1"}'),
        "archive.json: breaks schema archive",
    ),
    "a garbled crate": (lambda r: (r / crate.NAME).write_text('{"@graph": [1]}'), "not a crate of ours"),
    "prompts": (
        lambda r: ((r / "inputs").mkdir(exist_ok=True), (r / PROMPTS).write_text("{}\n"),
                   studies.edit(next(r.glob("cells/*/*/benchmark.json")), prompts_sha256="0" * 64)),
        "inputs/prompts.jsonl: not the prompts of",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_forged_companions_of_the_records_are_found(name: str, archive: Path) -> None:
    forge, words = FORGED[name]
    forge(archive)
    if "crate" not in name:
        reseal(archive)
    found = verify.check(archive).problems
    assert any(words in line for line in found), found


def test_an_archive_as_it_was_made_has_nothing_to_say(archive: Path) -> None:
    found = verify.check(archive)
    assert found.problems == []
    assert not any("another version" in note for note in found.notes)
    reseal(archive)
    assert verify.check(archive).problems == []


def test_a_crate_is_compared_with_the_files_and_with_no_others(archive: Path) -> None:
    path = archive / crate.NAME
    described = json.loads(path.read_text())
    entity = next(e for e in described["@graph"] if e["@id"] == "config.yaml")
    entity["@id"] = "/dev/zero"
    path.write_text(json.dumps(described))
    checksums.write(archive, files(archive))
    assert "ro-crate-metadata.json: describes another /dev/zero" in verify.check(archive).problems
    entity |= {"@id": "config.yaml", "sha256": "0" * 64}
    path.write_text(json.dumps(described))
    checksums.write(archive, files(archive))
    assert "ro-crate-metadata.json: describes another config.yaml" in verify.check(archive).problems


def test_what_only_other_code_could_write_again_is_a_note(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace(archive / "REVIEWERS.md", "# For reviewers", "# For the reviewers")
    replace(archive / "schemas/gate.schema.json", '"title": "', '"title": "Another ')
    (archive / "schemas/of-long-ago.schema.json").write_text("{}")
    code = {"version": "0.0.9", "commit": "1" * 40, "modified": False, "sources": "0" * 16}
    studies.edit(archive / "archive.json", code=code)
    (archive / "code/changes.patch").unlink(missing_ok=True)
    reseal(archive)
    found = verify.check(archive)
    assert found.problems == []
    (note,) = (n for n in found.notes if "another version" in n)
    for name in ("REVIEWERS.md", "schemas/gate.schema.json", "schemas/of-long-ago.schema.json"):
        assert name in note
    # In a checkout of the very commit there is no excuse.
    monkeypatch.setattr(provenance, "git", lambda folder: {"commit": "1" * 40, "modified": False})
    words = "schemas/gate.schema.json: not what the code that made the archive writes"
    assert words in verify.check(archive).problems


def test_a_check_that_every_launch_passed_is_not_believed(study: Path, tmp_path: Path) -> None:
    mine = studies.copy(study, tmp_path)
    record = {"schema": "quietgate/check/1", "study": "invented", "digest": "0" * 16, "launches": 8}
    (mine / restated.CHECK).write_text(json.dumps(record))
    assert verify.check(mine).problems == []
    failure = {"class": "timeout", "reason": "no trace came", "stage": "capture", "evidence": []}
    studies.edit(mine / "cells/steps-2_nccl-tuned/l1/capture.json", status="failed", failure=failure)
    words = "check.json: says that every launch passed, but steps-2_nccl-tuned l1 did not"
    assert words in verify.check(mine).problems
