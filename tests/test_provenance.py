"""Which commit the code says it is of."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from quietgate import provenance

NOTHING = {"commit": None, "modified": None}


def run(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    done = subprocess.run(
        ["git", "-C", str(folder), *identity, *words], text=True, capture_output=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    (tmp_path / "Snakefile").write_text("one")
    run(tmp_path, "init", "-q")
    run(tmp_path, "add", "Snakefile")
    run(tmp_path, "commit", "-q", "-m", "one")
    return tmp_path


def test_a_clone_has_its_commit(clone: Path) -> None:
    commit = run(clone, "rev-parse", "HEAD")
    assert provenance.git.__wrapped__(str(clone)) == {"commit": commit, "modified": False}
    (clone / "Snakefile").write_text("two")
    assert provenance.git.__wrapped__(str(clone)) == {"commit": commit, "modified": True}


def test_a_repository_around_the_folder_is_another_ones(clone: Path) -> None:
    inside = clone / "quietgate"
    inside.mkdir()
    (inside / "Snakefile").write_text("packed")
    assert provenance.git.__wrapped__(str(inside)) == NOTHING
    run(clone, "add", "quietgate")
    assert provenance.git.__wrapped__(str(inside))["commit"] == run(clone, "rev-parse", "HEAD")


def test_a_packed_folder_says_what_it_was_packed_from(clone: Path) -> None:
    inside = clone / "quietgate"
    inside.mkdir()
    (inside / ".packed.json").write_text('{"commit": "abc", "modified": true}')
    assert provenance.git.__wrapped__(str(inside)) == {"commit": "abc", "modified": True}
    (inside / ".packed.json").write_text('{"commit": "abc", "modified": false}')
    assert provenance.git.__wrapped__(str(inside)) == {"commit": "abc", "modified": None}, "it may be edited"
    (inside / ".packed.json").write_text("no JSON")
    assert provenance.git.__wrapped__(str(inside)) == NOTHING


def test_a_folder_without_git_has_none(tmp_path: Path) -> None:
    assert provenance.git.__wrapped__(str(tmp_path)) == NOTHING


def test_a_clone_over_a_packed_folder_is_a_clone(clone: Path) -> None:
    (clone / ".packed.json").write_text('{"commit": "abc", "modified": false}')
    assert provenance.git.__wrapped__(str(clone))["commit"] == run(clone, "rev-parse", "HEAD")
