from __future__ import annotations

from pathlib import Path

import pytest

from quietgate.share import bundle
from quietgate.share.remake import remake
from share import studies


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished study with names and secrets in it; read only."""
    folder = studies.write(tmp_path_factory.mktemp("study"), draw=False)
    studies.personal(folder)
    remake(folder, folder)
    return folder


@pytest.fixture(scope="session")
def shared(study: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The archive of it, and what was said when it was made; read only."""
    lines: list[str] = []
    return bundle.bundle(study, tmp_path_factory.mktemp("shared"), lines.append), lines


@pytest.fixture(scope="session")
def tight(study: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The solid archive of it, a .tar.xz; read only."""
    return bundle.bundle(study, tmp_path_factory.mktemp("tight"), lambda line: None, tight=True)
