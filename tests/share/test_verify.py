"""Every change is found: single bytes in an archive, and edits that keep their checksums in step."""

from __future__ import annotations

import json
import random
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from draw import synthetic

from quietgate import __main__, records
from quietgate.errors import BadInput
from quietgate.files import read_json, sha256, write_json
from quietgate.share import bundle, checksums, grid, migrate, seal, verify
from quietgate.share.archive import files, opened
from quietgate.share.remake import remake
from quietgate.share.study_record import MAX_LAUNCHES
from quietgate.steps import reviewer
from quietgate.steps.study import study_record
from quietgate.study import Study
from quietgate.study.epochs import Asked
from share import studies

L1 = "cells/steps-2_nccl-tuned/l1"


@pytest.fixture(scope="session")
def plain(study: Path) -> Path:
    """The study as its owner has it, not an archive; read only."""
    return study


@pytest.fixture
def mine(plain: Path, tmp_path: Path) -> Path:
    """A copy to break."""
    return studies.copy(plain, tmp_path)


def flip(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def found_in(results: Path) -> list[str]:
    """What a verification says, also where it refuses to read on."""
    try:
        with opened(results) as root:
            return verify.check(root).problems
    except BadInput as e:
        return [str(e)]


@pytest.mark.parametrize("seed", range(40))
def test_every_flipped_bit_in_an_archive_is_found(
    seed: int, shared: tuple[Path, list[str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    rng = random.Random(seed)
    folder = tmp_path_factory.mktemp("flip")
    with zipfile.ZipFile(shared[0]) as archive:
        archive.extractall(folder)
    groups = ("cells/", "tables/", "figures/", "")
    chosen = [n for n in files(folder) if n.startswith(groups[seed % 4]) and (folder / n).stat().st_size]
    name = rng.choice(chosen)
    flip(folder / name, rng)
    found = found_in(folder)
    assert found, name
    assert all("\n" not in line and line.isprintable() for line in found)
    shutil.rmtree(folder)


@pytest.mark.parametrize("form", ["zip", "tar.xz"])
def test_a_flipped_bit_anywhere_in_an_archive_changes_no_verdict_silently(
    form: str, shared: tuple[Path, list[str]], tight: Path, tmp_path: Path
) -> None:
    """What an archive itself holds besides the files (times, modes) is not the study's; the files are."""
    archive = shared[0] if form == "zip" else tight
    with opened(archive) as root:
        good = {n: sha256(root / n) for n in files(root)}
    path = tmp_path / "flipped"
    for seed in range(25):
        shutil.copy(archive, path)
        flip(path, random.Random(seed))
        found = found_in(path)
        assert all("\n" not in line for line in found)
        if not found:
            with opened(path) as root:
                assert {n: sha256(root / n) for n in files(root)} == good


def test_every_flipped_bit_in_sealed_results_is_found(mine: Path) -> None:
    seal.seal(mine)
    listed = checksums.read(mine) or {}
    assert f"{L1}/requests.jsonl" in listed
    rng = random.Random(7)
    for name in rng.sample(sorted(listed), 25):
        before = (mine / name).read_bytes()
        if not before:
            continue
        flip(mine / name, rng)
        assert found_in(mine), name
        (mine / name).write_bytes(before)


def test_added_and_removed_files_are_found(shared: tuple[Path, list[str]], tmp_path: Path) -> None:
    with zipfile.ZipFile(shared[0]) as archive:
        archive.extractall(tmp_path)
    (tmp_path / "tables/extra.csv").write_text("x\n")
    (tmp_path / "figures/speed_up.pdf").unlink()
    found = verify.check(tmp_path).problems
    assert "tables/extra.csv: not listed in SHA256SUMS" in found
    assert "figures/speed_up.pdf: missing, but listed in SHA256SUMS" in found
    (tmp_path / "SHA256SUMS").unlink()
    assert "SHA256SUMS: missing; an archive has one" in verify.check(tmp_path).problems


def reseal_requests(folder: Path, change: Callable[[list[dict[str, Any]]], None]) -> None:
    """Change requests as somebody would who knows of the digest in benchmark.json."""
    path = folder / "requests.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    change(lines)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    studies.edit(folder / "benchmark.json", requests_sha256=sha256(path))


def faster(lines: list[dict[str, Any]]) -> None:
    for line in lines:
        line["decode_tokens_per_s"] *= 1.1


def consistently_faster(lines: list[dict[str, Any]]) -> None:
    """All that one request says of itself fits, but no longer the pass."""
    for line in lines:
        line["decode_s"] /= 1.1
        line["decode_tokens_per_s"] *= 1.1
        line["cycle_ms"] /= 1.1


def fewer(lines: list[dict[str, Any]]) -> None:
    lines.pop()


def another_text(lines: list[dict[str, Any]]) -> None:
    lines[0] |= {"text": "another", "text_sha256": "0" * 64}


def no_verify(lines: list[dict[str, Any]]) -> None:
    lines[0]["spec_verify_ct"] = None


def nccl_said(gate: Path, **forged: Any) -> None:
    """Put this into what the gate found of NCCL."""
    record = read_json(gate)
    for stage in record["stages"]:
        if stage["name"] == "nccl":
            stage["evidence"] |= forged
    write_json(gate, record)


def surrounded(
    path: Path, gpu_power_w: float | None = 200.0, gpu_energy_j: float | None = 4000.0, **forged: Any
) -> None:
    """Give each pass surroundings, 20 seconds with one GPU, and what is forged of them."""
    record = read_json(path)
    gpu = {
        "uuid": "GPU-a",
        "energy_j": gpu_energy_j,
        "power_w": gpu_power_w,
        "held_back_s": {"power": 0.0, "heat": None},
    }
    gpu |= dict.fromkeys(("power_limit_w", "sm_clock_mhz", "sm_clock_most_mhz", "temperature_c"))
    for one in record["passes"]:
        one["surroundings"] = {
            "window_s": 20.0, "cores": 8, "server_cores": 1.0, "client_cores": one["client_cpu_s"] / 20.0,
            "other_cores": 0.0, "stolen_cores": 0.0, "gpus": [gpu], "why": None,
        } | forged  # fmt: skip
    write_json(path, record)


FORGED: dict[str, tuple[Callable[[Path], object], str]] = {
    "a number of a request": (lambda r: reseal_requests(r / L1, faster), "its own counts and times give"),
    "all of a request": (lambda r: reseal_requests(r / L1, consistently_faster), "the raw requests give"),
    "a request left out": (lambda r: reseal_requests(r / L1, fewer), "the raw requests give"),
    "an answer": (lambda r: reseal_requests(r / L1, another_text), "text_sha256"),
    "no speculation": (lambda r: reseal_requests(r / L1, no_verify), "no verify pass in a cell of 2 steps"),
    "raw requests": (
        lambda r: (r / L1 / "requests.jsonl").write_text("{}\n"),
        "not the file that was measured",
    ),
    "garbled requests": (
        lambda r: ((r / L1 / "requests.jsonl").write_text("{\n"),
                   studies.edit(r / L1 / "benchmark.json",
                                requests_sha256=sha256(r / L1 / "requests.jsonl"))),
        "not a request line",
    ),
    "a pass": (
        lambda r: studies.edit(r / L1 / "benchmark.json", passes__0__decode_tokens_per_s=99.0),
        "decode_tokens_per_s is 99.0, the raw requests give",
    ),
    "a pass left out": (
        lambda r: studies.edit(r / L1 / "benchmark.json", passes=[]),
        "no pass at concurrency 1, repeat 1",
    ),
    "a profile": (
        lambda r: studies.edit(r / L1 / "profile.json", tokens_per_cycle=2.9),
        "tokens_per_cycle is 2.9, its sources give",
    ),
    "cores while timed": (
        lambda r: surrounded(r / L1 / "benchmark.json", client_cores=0.0),
        "surroundings: client_cores is 0.0, over window_s it was",
    ),
    "power while timed": (
        lambda r: surrounded(r / L1 / "benchmark.json", gpu_power_w=300.0),
        "surroundings: power_w of GPU-a is 300.0, over window_s it was 4000.0",
    ),
    "power of no energy": (
        lambda r: surrounded(r / L1 / "benchmark.json", gpu_energy_j=None),
        "surroundings: power_w of GPU-a is 200.0, over window_s it was None",
    ),
    "a window within the pass": (
        lambda r: surrounded(r / L1 / "benchmark.json", window_s=1e-3),
        "surroundings: window_s is 0.001, the pass alone took",
    ),
    "what NCCL used": (
        lambda r: nccl_said(r / L1 / "gate.json", transports=["P2P/IPC"]),
        "transports: ['P2P/IPC'] is not of type 'object'",
    ),
    "NCCL's version": (
        lambda r: nccl_said(r / L1 / "gate.json", versions=[2]),
        "versions/0: 2 is not of type 'string'",
    ),
    "a variable without a verdict": (
        lambda r: nccl_said(r / L1 / "gate.json", variables=[{"name": "NCCL_PROTO"}]),
        "is a required property",
    ),
    "schema": (lambda r: studies.edit(r / L1 / "gate.json", ready_after_s="soon"), "breaks schema"),
    "a failed gate": (
        lambda r: shutil.rmtree(r / L1 / "instances"),
        "which has no gate",
    ),
    "another cell's record": (
        lambda r: shutil.copy(r / "cells/steps-0_nccl-tuned/l1/benchmark.json", r / L1 / "benchmark.json"),
        "it is of cell 'steps-0_nccl-tuned'",
    ),
    "another config": (
        lambda r: studies.edit(r / L1 / "benchmark.json", digest="0" * 16),
        "made under another configuration",
    ),
    "a launch missing": (lambda r: shutil.rmtree(r / L1), "launch.json: missing"),
    "a record missing": (lambda r: (r / L1 / "stages.json").unlink(), "stages.json: missing"),
    "a cell missing": (
        lambda r: studies.edit(
            r / "study.json",
            cells=[c for c in json.loads((r / "study.json").read_text())["cells"]
                   if c["id"] != "steps-2_nccl-tuned"],
            launches=[x for x in json.loads((r / "study.json").read_text())["launches"]
                      if x["cell"] != "steps-2_nccl-tuned"],
        ),
        "cell steps-2_nccl-tuned of the config's grid is missing",
    ),
    "a launch not listed": (
        lambda r: studies.edit(
            r / "study.json", launches=json.loads((r / "study.json").read_text())["launches"][1:]
        ),
        "the config asks for 2",
    ),
    "the reference": (
        lambda r: studies.edit(r / "study.json", reference="steps-2_nccl-tuned"),
        "the config's is steps-0_nccl-tuned",
    ),
    "a library version": (
        lambda r: studies.edit(r / L1 / "launch.json", versions={"sglang": "0.5.9"}),
        "different versions in one table: sglang: 0.5.23",
    ),
    "a driver": (
        lambda r: studies.edit(r / L1 / "launch.json", driver="999.1"),
        "different versions in one table: driver",
    ),
    "readers": (
        lambda r: studies.edit(r / L1 / "profile.json", digest="1" * 16),
        "extracted by other readers than the rest",
    ),
    "a table": (
        lambda r: (r / "tables/cells.csv").write_text("x\n"),
        "tables/cells.csv: not the file that was made",
    ),
    "a figure": (
        lambda r: (r / "figures/speed_up.svg").write_text("<svg/>"),
        "figures/speed_up.svg: not the file that was made",
    ),
    "a table missing": (lambda r: (r / "tables/cells.csv").unlink(), "tables/cells.csv: missing"),
    "no tables": (lambda r: shutil.rmtree(r / "tables"), "tables/tables.json: no such record"),
    "a life missing": (
        lambda r: studies.edit(r / L1 / "exit.json", instances=["0" * 12]),
        "server life 000000000000 has no folder",
    ),
    "a trace missing": (
        lambda r: studies.edit(
            r / L1 / "capture.json", trace_files=[{"name": "t.json.gz", "sha256": "0" * 64, "bytes": 1}]
        ),
        "trace/t.json.gz: missing",
    ),
}  # fmt: skip


def test_surroundings_that_follow_from_the_pass_are_no_problem(mine: Path) -> None:
    surrounded(mine / L1 / "benchmark.json")
    assert not [p for p in verify.check(mine).problems if "surroundings" in p]


@pytest.mark.parametrize("name", FORGED)
def test_forged_results_are_found(name: str, mine: Path) -> None:
    assert verify.check(mine).problems == []
    forge, words = FORGED[name]
    forge(mine)
    found = verify.check(mine).problems
    assert any(words in line for line in found), found


UNSAFE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a cell that is a path": (
        lambda r: studies.edit(r / "study.json", cells__0__id="../../../etc"),
        "is no name of a cell",
    ),
    "a launch that is a path": (
        lambda r: studies.edit(r / "study.json", launches__0__launch="l1/../.."),
        "launches/0/launch: 'l1/../..' does not match",
    ),
    "a study that is a path": (
        lambda r: studies.edit(r / "study.json", study="../x"),
        "is no name of a study",
    ),
    "too many steps": (lambda r: studies.edit(r / "study.json", cells__0__steps=10**9), "1000000000 steps"),
    "no cells": (lambda r: studies.edit(r / "study.json", cells=[]), "0 cells"),
    "no launches": (lambda r: studies.edit(r / "study.json", launches=[]), "launches: none is listed"),
    "a launch listed and left out": (
        lambda r: studies.edit(r / "study.json", left_out=read_json(r / "study.json")["launches"][:1]),
        "one is listed twice",
    ),
    "a left out launch of no cell": (
        lambda r: studies.edit(r / "study.json", left_out=[{"cell": "..", "launch": "l1", "block": 1}]),
        "is no launch of a cell",
    ),
    "too many left out": (
        lambda r: studies.edit(
            r / "study.json",
            left_out=[{"cell": "c", "launch": f"l{i}", "block": i} for i in range(1, MAX_LAUNCHES + 1)],
        ),
        "so many",
    ),
    "a launch that is not its block": (
        lambda r: studies.edit(r / "study.json", launches__0__block=7),
        "is said to be of block 7",
    ),
    "no benchmark": (
        lambda r: studies.edit(r / "study.json", config__benchmark={"concurrency": [1]}),
        "config/benchmark: 'prompt_count' is a required property",
    ),
    "a capture that is a list": (
        lambda r: studies.edit(r / "study.json", config__capture=[]),
        "config/capture: [] is not of type 'object'",
    ),
    "a reference that is a name": (
        lambda r: studies.edit(r / "study.json", config__reference="steps-0"),
        "config/reference: 'steps-0' is not of type 'object'",
    ),
    "not a record": (lambda r: write_json(r / "study.json", [1]), "not a quietgate record"),
    "another record": (
        lambda r: shutil.copy(r / L1 / "launch.json", r / "study.json"),
        "a launch record where a study record belongs",
    ),
    "not JSON": (lambda r: (r / "study.json").write_text("{"), "not readable as JSON"),
    "a newer record": (
        lambda r: studies.edit(r / "study.json", schema="quietgate/study/9"),
        "written by a newer quietgate",
    ),
}


def test_launches_that_were_not_measured_are_no_problem_and_are_said(mine: Path, tmp_path: Path) -> None:
    study = read_json(mine / "study.json")
    gone = study["launches"].pop()
    write_json(mine / "study.json", study | {"left_out": [gone]})
    shutil.rmtree(mine / "cells" / gone["cell"] / gone["launch"])
    remake(mine, mine)
    found = verify.check(mine)
    assert found.problems == []
    asked = len(study["launches"]) + 1
    assert any(f"not measured: 1 launch of {asked} asked for" in note for note in found.notes)
    bundle.stage(mine, tmp_path / "shared", lambda line: None)
    assert f" of a server of {asked} asked for" in (tmp_path / "shared/REVIEWERS.md").read_text()


@pytest.mark.parametrize("name", UNSAFE)
def test_a_study_that_cannot_be_trusted_is_refused(name: str, mine: Path) -> None:
    forge, words = UNSAFE[name]
    forge(mine)
    with pytest.raises(BadInput) as caught:
        verify.check(mine)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"trace_files": [{"name": "../../../secret", "sha256": "0" * 64, "bytes": 1}]}, "is no file name"),
        ({"profiler_s": 1e300}, "larger than anything measured"),
        ({"schema": "quietgate/capture/2"}, "written by a newer quietgate"),
    ],
)
def test_records_that_are_not_safe_to_read_on(change: dict[str, Any], words: str, mine: Path) -> None:
    studies.edit(mine / L1 / "capture.json", **change)
    found = verify.check(mine)
    assert not found.readable
    assert any(words in line for line in found.problems)


def zipped(folder: Path, path: Path) -> Path:
    """The folder as an archive, whatever is in it."""
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                archive.write(file, Path("a-study") / file.relative_to(folder))
    return path


DAMAGED: dict[str, Callable[[Path], object]] = {
    "sums": lambda r: (r / "SHA256SUMS").write_text("x"),
    "sums twice": lambda r: (r / "SHA256SUMS").write_text(f"{'0' * 64}  a\n" * 2),
    "a huge number": lambda r: studies.edit(r / L1 / "exit.json", seconds=10**30),
    "requests": lambda r: reseal_requests(r / L1, lambda lines: lines[0].update(ok="?")),
    "a life's end": lambda r: write_json(next((r / L1).glob("instances/*")) / "exit.json",
                                         {"schema": "quietgate/exit/1"}),
    "a trace": lambda r: ((r / L1 / "trace").mkdir(exist_ok=True),
                          (r / L1 / "trace/t.json.gz").write_bytes(b"x")),
    "statistics": lambda r: (r / "tables/statistics.json").write_text("[]"),
    "a figure's data": lambda r: (r / "figures/speed_up.csv").write_text("\"\n"),
    "an older record": lambda r: studies.edit(r / L1 / "exit.json", schema="quietgate/exit/0"),
}  # fmt: skip


REDRAWN = ("requests", "statistics", "a figure's data", "a failed gate", "another config")


@pytest.mark.parametrize("name", [*DAMAGED, *FORGED, *UNSAFE])
def test_what_is_wrong_in_an_archive_is_not_named_by_where_it_was_unpacked(
    name: str,
    mine: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    change = DAMAGED[name] if name in DAMAGED else (FORGED | UNSAFE)[name][0]
    monkeypatch.setitem(migrate.CURRENT, "exit", 1)
    change(mine)
    archive = zipped(mine, tmp_path / "sent.zip")
    (tmp_path / "unpacked-here").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "unpacked-here"))
    status = __main__.main(["verify", str(archive)])
    said = capsys.readouterr()
    assert status or name in REDRAWN
    if status == 2:
        assert said.err.startswith(f"{archive}/a-study/")
    elif name in REDRAWN:
        assert not reviewer.review(archive, tmp_path / "scratch", print)
    assert "unpacked-here" not in said.out + said.err + capsys.readouterr().out


def test_command_line(mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seal.seal(mine)
    assert __main__.main(["verify", str(mine)]) == 0
    assert capsys.readouterr().out == "complete and unchanged\n"
    (mine / "figures/speed_up.svg").write_text("<svg/>")
    assert __main__.main(["verify", str(mine)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "2 problems"
    assert __main__.main(["verify", str(tmp_path / "none")]) == 2
    assert "name a results folder, or a .zip or .tar.xz of one" in capsys.readouterr().err


def test_share_from_the_command_line(mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["share", str(mine), "--as-folder", str(tmp_path / "example")]) == 0
    assert "-> /home/user1" in capsys.readouterr().out
    assert verify.verify(tmp_path / "example") == []
    assert __main__.main(["share", str(mine), "--as-folder", str(tmp_path / "example")]) == 2
    assert "is there already" in capsys.readouterr().err


def test_earlier_schema_is_refused_with_the_command_and_then_migrated(
    mine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As if `launch` were at its second version, and all there is of the first."""
    monkeypatch.setitem(migrate.CURRENT, "exit", 2)
    monkeypatch.setitem(migrate.STEPS, ("exit", 1), lambda r: r | {"reason": f"was: {r['reason']}"})
    found = verify.check(mine)
    assert "run `python -m quietgate migrate FOLDER`" in found.problems[0]
    assert not found.readable
    assert __main__.main(["migrate", str(mine)]) == 0
    assert f"{L1}/exit.json: exit 1 -> 2" in capsys.readouterr().out
    record = records.read(mine / L1 / "exit.json")
    assert (record["schema"], record["reason"]) == ("quietgate/exit/2", "was: released")
    assert verify.check(mine).readable
    monkeypatch.setitem(migrate.CURRENT, "exit", 4)
    with pytest.raises(BadInput, match="too old to be read"):
        list(migrate.migrate(mine))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({}, None),  # the study as it is
        ({"untimed__twin": "steps-2_nccl-untuned"}, "untimed: its twin: steps-2_nccl-untuned"),
        ({"untimed__timers": []}, "untimed: its timers: []"),
        ({"untimed": None}, "no launch of a cell"),
        ({"config__timer_cost": {"enabled": True}}, "config: does not make a grid"),
    ],
)
def test_what_is_said_of_the_cell_without_timers_is_the_configs(
    change: dict[str, Any], says: str | None, tmp_path: Path
) -> None:
    folder = studies.write(tmp_path, draw=False, timer_cost=True)
    studies.edit(folder / "study.json", **change)
    found = found_in(folder)
    if says is None:
        assert not any("untimed" in line for line in found), found
    else:
        assert any(says in line for line in found), found


def test_the_cell_without_timers_of_an_earlier_epoch_is_right_in_a_grown_study() -> None:
    settings = synthetic.config([0, 7], launches=2, timer_cost=True)
    first = Study.from_config(settings)
    assert first.about_untimed
    finished = tuple(Asked(x.cell.id, x.block, x.epoch) for x in first.launches)
    settings["grid"]["steps"] = [0, 2, 7]
    record = study_record(Study(Study.from_config(settings).config, history=finished))
    assert record["untimed"]["twin"] == first.about_untimed["twin"]
    assert list(grid.problems(record)) == []
    record["untimed"]["twin"] = "steps-2_nccl-tuned"
    assert any("its twin" in line for line in grid.problems(record))
