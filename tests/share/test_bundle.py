"""The archive: complete, the same every time, verified, redrawn to the same bytes."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import tarfile
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from quietgate.errors import BadInput
from quietgate.files import sha256
from quietgate.share import bundle, checksums, cost, redraw, verify
from quietgate.share.archive import files, opened
from quietgate.share.pack import pack
from quietgate.study import Study
from share import studies


def test_same_results_give_the_same_bytes(
    study: Path, shared: tuple[Path, list[str]], tmp_path: Path
) -> None:
    elsewhere = studies.copy(study, tmp_path)
    for path in elsewhere.rglob("*"):
        if path.is_file():
            path.touch()
    again = bundle.bundle(elsewhere, tmp_path / "out", lambda line: None)
    assert again.name == shared[0].name == "invented-2026-11-29.zip"
    assert again.read_bytes() == shared[0].read_bytes()


def test_holds_what_a_reviewer_needs(shared: tuple[Path, list[str]]) -> None:
    with zipfile.ZipFile(shared[0]) as archive:
        names = set(archive.namelist())
        page = archive.read("REVIEWERS.md").decode()
    assert {
        "REVIEWERS.md", "study.json", "config.yaml", "archive.json", "replacements.csv", "SHA256SUMS",
        "ro-crate-metadata.json", "report.html", "code/Snakefile", "schemas/launch.schema.json",
        "tables/cells.csv", "tables/statistics.json", "figures/speed_up.pdf", "figures/speed_up.csv",
        "cells/steps-2_nccl-tuned/l1/requests.jsonl", "cells/steps-2_nccl-tuned/l1/server.log",
        "cells/steps-2_nccl-tuned/l1/nccl.host1.4711.log",
    } <= names  # fmt: skip
    assert "| claim | figure | command | GPU-hours | tolerance |" in page
    assert "make figures RESULTS=invented-2026-11-29.zip" in page
    assert "`/home/user1`" in page


def test_the_servers_ran_where_their_launches_say(study: Path, tmp_path: Path) -> None:
    finished_on_a_laptop = studies.copy(study, tmp_path)
    record = json.loads((finished_on_a_laptop / "study.json").read_text())
    record |= {"gpus": [], "host": record["host"] | {"processor": "a laptop's"}}
    names = ("NVIDIA H200", "NVIDIA H200", "NVIDIA B200")
    for path in finished_on_a_laptop.glob("cells/*/l*/launch.json"):
        launch = json.loads(path.read_text())
        launch |= {"gpus": [{"name": name} for name in names], "host": {"processor": "a server's"}}
        path.write_text(json.dumps(launch))
    assert cost.machine(finished_on_a_laptop, record) == (["NVIDIA B200", "NVIDIA H200"], "a server's")
    for path in finished_on_a_laptop.glob("cells/*/l*/launch.json"):
        path.unlink()
    assert cost.machine(finished_on_a_laptop, record) == ([], "a laptop's")


# What says how it is packed, and what has digests of that.
OF_THE_FORM = {"archive.json", "REVIEWERS.md", "ro-crate-metadata.json", "SHA256SUMS"}


def test_a_tight_archive_holds_the_same_in_less(
    shared: tuple[Path, list[str]], tight: Path, tmp_path: Path
) -> None:
    assert tight.name == "invented-2026-11-29.tar.xz"
    assert tight.stat().st_size < 0.9 * shared[0].stat().st_size
    with opened(shared[0]) as a, opened(tight) as b:
        assert verify.check(b).problems == []
        assert {v.verdict for v in redraw.redraw(b, tmp_path / "scratch")[0]} == {redraw.IDENTICAL}
        here, there = ({n: (r / n).read_bytes() for n in files(r)} for r in (a, b))
    assert {n for n in here.keys() | there.keys() if here.get(n) != there.get(n)} == OF_THE_FORM
    page = there["REVIEWERS.md"].decode()
    assert "make figures RESULTS=invented-2026-11-29.tar.xz" in page
    assert "quietgate compare invented-2026-11-29.tar.xz results/invented" in page


def test_a_tight_archive_is_a_plain_tar_with_the_same_bytes_every_time(
    study: Path, tight: Path, tmp_path: Path
) -> None:
    elsewhere = studies.copy(study, tmp_path)
    for path in elsewhere.rglob("*"):
        path.chmod(0o700)
        os.utime(path, (1_000_000_000,) * 2)
    again = bundle.bundle(elsewhere, tmp_path / "out", lambda line: None, tight=True)
    assert again.read_bytes() == tight.read_bytes()
    with tarfile.open(tight) as tar:
        entries = tar.getmembers()
    assert [e.name for e in entries[:3]] == ["REVIEWERS.md", "study.json", "report.html"]
    day = datetime(2026, 11, 29, tzinfo=UTC).timestamp()
    assert {(e.mode, e.mtime, e.uid, e.gid, e.uname, e.gname) for e in entries} == {
        (0o644, day, 0, 0, "", "")
    }
    assert all(e.isreg() and not e.pax_headers for e in entries)


def test_names_of_any_length_are_packed_and_read(tmp_path: Path) -> None:
    root = tmp_path / "root"
    names = [
        "study.json",
        "a" * 90 + "/" + "b" * 90 + ".json",
        "c" * 150 + ".json",
        "/".join("d" * 9) + ".md",
    ]
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    for form in (False, True):
        pack(root, tmp_path / "x", "2026-11-29", form)
        with opened(tmp_path / "x") as there:
            assert {n: (there / n).read_text() for n in files(there)} == {n: n for n in names}
    with tarfile.open(tmp_path / "x") as tar:
        assert [e.name for e in tar.getmembers() if e.pax_headers] == ["c" * 150 + ".json"]


@pytest.mark.parametrize("form", ["zip", "tar.xz"])
def test_what_nobody_could_read_is_not_packed(form: str, tmp_path: Path) -> None:
    root, path = tmp_path / "root", tmp_path / f"x.{form}"
    root.mkdir()
    (root / "study.json").write_text("{}")
    (root / "server.log").write_text("the same line\n" * 1_000_000)
    with pytest.raises(BadInput) as caught:
        pack(root, path, "2026-11-29", form == "tar.xz")
    said = str(caught.value)
    assert said.startswith(f"{path}: ")
    assert "grows more than 250-fold when unpacked; refused by whoever reads it (--small" in said
    assert [p.name for p in tmp_path.iterdir()] == ["root"]


def test_small_leaves_out_traces_and_logs_and_says_so(study: Path, tmp_path: Path) -> None:
    mine = studies.copy(study, tmp_path)
    launch = mine / "cells/steps-2_nccl-tuned/l1"
    trace = launch / "trace" / "t.json.gz"
    trace.parent.mkdir()
    trace.write_bytes(gzip.compress(b'{"traceEvents": []}'))
    listed = {"name": trace.name, "sha256": sha256(trace), "bytes": trace.stat().st_size}
    studies.edit(launch / "capture.json", trace_files=[listed])
    (launch / "nccl.gpubox7.4712.log").write_text("gpubox7:4712:4712 [0] NCCL INFO Bootstrap\n")
    said: list[str] = []
    path = bundle.bundle(mine, tmp_path / "out", said.append, small=True)
    assert path.name == "invented-2026-11-29-small.zip"
    with opened(path) as root:
        left = {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()}
        assert not [name for name in left if "/trace/" in name or name.endswith(".log")]
        out = json.loads((root / "archive.json").read_text())["left_out"]
        assert "cells/steps-2_nccl-tuned/l1/trace/t.json.gz" in out
        assert "cells/steps-2_nccl-tuned/l1/server.log" in out
        assert [name for name in out if "4712" in name]
        assert not [name for name in out if "gpubox7" in name], "a host that only a left-out log names"
        assert "traces and logs were left out" in (root / "REVIEWERS.md").read_text()
        found = verify.check(root)
        assert found.problems == []
        assert "1 profile not extracted again: their traces were left out of the archive" in found.notes
        verdicts, _ = redraw.redraw(root, tmp_path / "scratch")
        assert {v.verdict for v in verdicts} == {redraw.IDENTICAL}
        archive = json.loads((root / "archive.json").read_text())
        forged = archive | {"left_out": [*out, "cells/steps-2_nccl-tuned/l1/profile.json"]}
        (root / "archive.json").write_text(json.dumps(forged))
        assert any("left_out names" in line and "is here" in line for line in verify.check(root).problems)
        (root / "archive.json").write_text(json.dumps(archive | {"left_out": []}))
        assert any("missing, but capture.json lists it" in line for line in verify.check(root).problems)
    assert f"left out: {out[0]}" in said


def test_config_runs_as_it_is(shared: tuple[Path, list[str]]) -> None:
    with zipfile.ZipFile(shared[0]) as archive:
        config = yaml.safe_load(archive.read("config.yaml"))
        study = json.loads(archive.read("study.json"))
    again = Study.from_config(config)
    assert again.config == study["config"]
    assert [c.id for c in again.cells] == [c["id"] for c in study["cells"]]


def test_verifies_and_redraws_to_the_same_bytes(shared: tuple[Path, list[str]], tmp_path: Path) -> None:
    with opened(shared[0]) as root:
        assert verify.check(root).problems == []
        verdicts, notes = redraw.redraw(root, tmp_path / "scratch")
    assert {v.verdict for v in verdicts} == {redraw.IDENTICAL}
    assert {"tables/cells.csv", "figures/speed_up.pdf", "report.html"} <= {v.file for v in verdicts}
    assert notes == []


def test_results_are_only_read(study: Path, tmp_path: Path) -> None:
    mine = studies.copy(study, tmp_path)
    before = {p: sha256(p) for p in mine.rglob("*") if p.is_file()}
    bundle.stage(mine, tmp_path / "staged", lambda line: None)
    assert {p: sha256(p) for p in mine.rglob("*") if p.is_file()} == before


def test_what_scrubbing_changes_is_sealed_anew_and_what_was_broken_stays_broken(
    study: Path, tmp_path: Path
) -> None:
    mine = studies.copy(study, tmp_path)
    good, bad = (mine / f"cells/steps-2_nccl-tuned/{launch}" for launch in ("l1", "l2"))
    for folder in (good, bad):
        path = folder / "requests.jsonl"
        lines = [json.loads(line) | {"error_note": studies.HOME} for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    studies.edit(good / "benchmark.json", requests_sha256=sha256(good / "requests.jsonl"))
    with pytest.raises(BadInput, match=r"l2/benchmark\.json: requests\.jsonl is not the file that"):
        bundle.stage(mine, tmp_path / "staged", lambda line: None)
    benchmark = json.loads((tmp_path / "staged/cells/steps-2_nccl-tuned/l1/benchmark.json").read_text())
    requests = tmp_path / "staged/cells/steps-2_nccl-tuned/l1/requests.jsonl"
    assert studies.HOME not in requests.read_text()
    assert benchmark["requests_sha256"] == sha256(requests)


def test_failed_cells_are_shared_as_failures(tmp_path: Path) -> None:
    folder = studies.write(
        tmp_path, draw=False, profiles=("tuned",), options={"failed": {(2, "tuned"): "out_of_memory"}}
    )
    archive = bundle.stage(folder, tmp_path / "staged", lambda line: None)
    assert archive["problems"] == []
    assert "out_of_memory" in (tmp_path / "staged/tables/failures.csv").read_text()
    scratch = tmp_path / "scratch"
    assert not redraw.failed(redraw.redraw(tmp_path / "staged", scratch)[0])


def test_unfinished_studies_can_be_shared_and_say_so(tmp_path: Path) -> None:
    folder = studies.write(tmp_path, draw=False, profiles=("tuned",))
    shutil.rmtree(folder / "cells/steps-2_nccl-tuned/l2")
    archive = bundle.stage(folder, tmp_path / "staged", lambda line: None)
    assert "cells/steps-2_nccl-tuned/l2/benchmark.json: missing" in archive["problems"]
    assert "## Known problems" in (tmp_path / "staged/REVIEWERS.md").read_text()


@pytest.mark.parametrize("change", [{"digest": "0" * 16}, {"seconds": 10**30}])
def test_records_that_cannot_be_shared_are_named_where_they_lie(
    change: dict[str, Any], study: Path, tmp_path: Path
) -> None:
    mine = studies.copy(study, tmp_path)
    record = "cells/steps-2_nccl-tuned/l1/benchmark.json"
    studies.edit(mine / record, **change)
    with pytest.raises(BadInput) as caught:
        bundle.bundle(mine, tmp_path, print)
    assert str(caught.value).startswith(f"{mine}/{record}: ")


def test_private_files_and_logs_of_jobs_stay_here(study: Path, tmp_path: Path) -> None:
    mine = studies.copy(study, tmp_path)
    private = (
        ".live/x/lease.json",
        ".set-aside/1/study.json",
        "log/share.log",
        "notes.txt",
        "cells/steps-2_nccl-tuned/l1/log/gate.log",
        "cells/steps-9_nccl-old/l1/launch.json",
    )
    for name in private:
        (mine / name).parent.mkdir(parents=True, exist_ok=True)
        (mine / name).write_text("{}")
    (mine / "cells/steps-2_nccl-tuned/l1/core.dump").write_text("x")
    archive = bundle.stage(mine, tmp_path / "staged", lambda line: None)
    assert archive["left_out"] == ["cells/steps-2_nccl-tuned/l1/core.dump"]
    listed = checksums.read(tmp_path / "staged") or {}
    assert not [n for n in listed if "log/" in n or n.startswith(".") or "steps-9" in n or n == "notes.txt"]


def test_script_in_a_title_is_text_in_the_page(study: Path, tmp_path: Path) -> None:
    mine = studies.copy(study, tmp_path)
    studies.edit(mine / "study.json", config__title="<script>alert(1)</script> | x")
    bundle.stage(mine, tmp_path / "staged", lambda line: None)
    assert "<script>alert(1)" not in (tmp_path / "staged/report.html").read_text()
    assert "<script>" not in (tmp_path / "staged/REVIEWERS.md").read_text()
