"""Reviewer mode and `share` through the real Snakefile; no server, no GPU, no SGLang."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from snakemake.cli import parse_config

from quietgate.files import sha256
from share import studies

pytestmark = pytest.mark.workflow

ROOT = Path(__file__).parents[2]
SNAKEMAKE = str(Path(sys.executable).with_name("snakemake"))


def review(folder: Path, results: Path, *targets: str) -> subprocess.CompletedProcess[str]:
    command = [
        SNAKEMAKE,
        "-s",
        str(ROOT / "Snakefile"),
        "--cores",
        "1",
        *targets,
        "--config",
        f"results={results}",
    ]
    environ = os.environ | {"XDG_CACHE_HOME": str(folder / "cache")}
    return subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=300, check=False
    )


def test_an_archive_is_verified_and_redrawn(shared: tuple[Path, list[str]], tmp_path: Path) -> None:
    before = sha256(shared[0])
    run = review(tmp_path, shared[0], "figures")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "verified: whole and unchanged" in run.stdout
    assert "identical  figures/speed_up.pdf" in run.stdout
    assert "identical  report.html" in run.stdout
    assert (tmp_path / f"resources/redrawn/{shared[0].stem}/figures/speed_up.pdf").is_file()
    assert {p.name for p in tmp_path.iterdir()} <= {".snakemake", "resources", "cache"}
    assert sha256(shared[0]) == before


def made(folder: Path, snakemake: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`make` in `folder`, as if everything were installed, with this for a snakemake."""
    for name in ("Makefile", "Snakefile", "envs", "profiles", "workflow"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "bin").mkdir()
    (folder / "bin/.workflow").touch()
    (folder / "bin/snakemake").symlink_to(snakemake)
    environ = os.environ | {"XDG_CACHE_HOME": str(folder / "cache")}
    return subprocess.run(
        ["make", "--no-print-directory", "BIN=bin", *arguments],
        cwd=folder, env=environ, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    "path",
    ["a b/x.zip", "it's: #1 {a}=b, 100%.zip", '"q" $HOME `id` \\ x.zip', "12", "null", "~/x", "[a].zip"],
)
def test_make_figures_hands_on_any_path(path: str, tmp_path: Path) -> None:
    stub = tmp_path / "stub"
    stub.write_text(f"#!{sys.executable}\nimport json, sys\njson.dump(sys.argv, open('argv', 'w'))\n")
    stub.chmod(0o755)
    run = made(tmp_path, stub, "figures", "RESULTS=" + path)
    assert run.returncode == 0, run.stderr
    argv = json.loads((tmp_path / "argv").read_text())
    assert parse_config(argv[argv.index("--config") + 1 :]) == {"results": path}


def test_make_figures_redraws_what_lies_under_an_odd_path(
    shared: tuple[Path, list[str]], tmp_path: Path
) -> None:
    odd = tmp_path / "dir with spaces" / "it's: {x} y.zip"
    odd.parent.mkdir()
    shutil.copy(shared[0], odd)
    run = made(tmp_path, Path(SNAKEMAKE), "figures", f"RESULTS={odd.relative_to(tmp_path)}")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "identical  report.html" in run.stdout
    assert (tmp_path / f"resources/redrawn/{odd.stem}/report.html").is_file()


def test_make_help_lists_every_target(tmp_path: Path) -> None:
    text = (ROOT / "Makefile").read_text()
    targets = re.search(r"^\.PHONY: (.*)$", text, re.M)
    assert targets
    run = made(tmp_path, Path(SNAKEMAKE), "help")
    assert [line.split()[1] for line in run.stdout.splitlines()] == targets[1].split()
    assert all(len(line.split()) > 3 for line in run.stdout.splitlines())


@pytest.mark.slow
def test_a_folder_with_any_times_and_no_metadata(study: Path, tmp_path: Path) -> None:
    mine = studies.copy(study, tmp_path)
    for i, path in enumerate(sorted(mine.rglob("*"))):
        os.utime(path, (i * 7919 % 1_000_000_000,) * 2)
    before = {p: (sha256(p), p.stat().st_mtime_ns) for p in mine.rglob("*") if p.is_file()}
    # Twice: the second time with the metadata that the first has left.
    for target in ("all", "figures"):
        run = review(tmp_path, mine, target)
        assert run.returncode == 0, run.stdout + run.stderr
        assert "identical  tables/cells.csv" in run.stdout
    assert {p: (sha256(p), p.stat().st_mtime_ns) for p in mine.rglob("*") if p.is_file()} == before


def test_a_changed_table_fails_the_run(shared: tuple[Path, list[str]], tmp_path: Path) -> None:
    with zipfile.ZipFile(shared[0]) as archive:
        archive.extractall(tmp_path / "x")
    table = tmp_path / "x/tables/cells.csv"
    table.write_text(table.read_text().replace("tuned", "toned", 1))
    run = review(tmp_path, tmp_path / "x", "figures")
    assert run.returncode != 0
    assert "problem: tables/cells.csv: its bytes are not the ones listed in SHA256SUMS" in run.stdout
    assert "differs    tables/cells.csv" in run.stdout


def test_a_hostile_archive_fails_with_one_line(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        archive.writestr("../outside.json", "{}")
    run = review(tmp_path, tmp_path / "bad.zip", "figures")
    assert run.returncode == 2
    assert run.stderr.splitlines()[-1].endswith("a path that leads elsewhere; refused")
    assert "Error" not in run.stdout + run.stderr
    assert not (tmp_path.parent / "outside.json").exists()


def test_a_solid_archive_is_redrawn_into_a_folder_of_its_name(tight: Path, tmp_path: Path) -> None:
    run = review(tmp_path, tight, "figures")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "verified: whole and unchanged" in run.stdout
    assert "identical  report.html" in run.stdout
    assert (tmp_path / "resources/redrawn/invented-2026-11-29/report.html").is_file()
    cut = tmp_path / "cut.tar.xz"
    cut.write_bytes(tight.read_bytes()[:-5000])
    run = review(tmp_path, cut, "figures")
    assert run.returncode == 2
    assert run.stderr.splitlines()[-1].endswith("not a whole .tar.xz file (cut short); fetch it again")
    assert "Error" not in run.stdout + run.stderr


def test_no_rule_of_a_server_is_there(shared: tuple[Path, list[str]], tmp_path: Path) -> None:
    run = review(tmp_path, shared[0], "--list-rules")
    listed = {line.strip() for line in run.stdout.splitlines() if line.strip()}
    assert {"all", "figures"} <= listed
    assert not listed & {"launch", "gate", "benchmark", "capture", "release", "server_env", "tiny_models"}
