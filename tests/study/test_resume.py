"""What a new run keeps: exactly the records whose digest is the config's, up to the first that failed."""

import hashlib
import json
import shutil

import pytest
import yaml

from quietgate.__main__ import main
from quietgate.errors import BadInput
from quietgate.steps.study import study_record
from quietgate.study import Study
from quietgate.study.earlier import history_of, launches_of, was_left_out
from quietgate.study.left_out import unmeasured
from quietgate.study.plan import lines
from quietgate.study.resume import CHANGED, all_measured, plan_redo, set_aside, takes_server
from quietgate.study.stages import (
    BENCHMARK,
    EXTRACT,
    GATE,
    LAUNCH,
    RELEASE,
    chain,
    figures_digest,
    launch_folder,
    stage_digest,
    tables_digest,
)


def finish(study, results, launch, status="passed", upto=None):
    """Leave the records of a finished launch (only what resume reads)."""
    folder = launch_folder(results, launch)
    folder.mkdir(parents=True, exist_ok=True)
    for stage in chain(study):
        record = {
            "digest": stage_digest(study, launch.cell, stage),
            "status": "passed",
            "failure": None,
            "seconds": 1.0,
            "instance": "life",
        }
        if stage.name == upto:
            record |= {"status": status, "failure": {"reason": "it broke"}}
        (folder / stage.record).write_text(json.dumps(record))
        for name in stage.files:
            (folder / name).write_text("x")
    (folder / "instances" / "life").mkdir(parents=True, exist_ok=True)
    (folder / "instances" / "life" / "gate.json").write_text("{}")


@pytest.fixture
def done(base, tmp_path):
    study = Study.from_config(base)
    for launch in study.launches:
        finish(study, tmp_path, launch)
    return study


def test_nothing_to_redo(done, tmp_path):
    assert plan_redo(done, tmp_path) == []
    assert set_aside([], tmp_path) is None


def test_server_change_of_one_profile(done, base, tmp_path):
    base["nccl_profiles"]["ll-ring"]["set"]["NCCL_PROTO"] = "Simple"
    redo = plan_redo(Study.from_config(base), tmp_path)
    assert {r.launch.cell.nccl for r in redo} == {"ll-ring"}
    assert all(r.stage == "launch" for r in redo)
    target = set_aside(redo, tmp_path)
    folder = launch_folder(tmp_path, redo[0].launch)
    assert {p.name for p in folder.iterdir()} == {"instances"}, "server lives stay"
    assert (target / "cells" / redo[0].launch.cell.id / "l1" / "benchmark.json").exists()
    assert plan_redo(Study.from_config(base), tmp_path) == []


def test_benchmark_change_keeps_launch_and_gate(done, base, tmp_path):
    base["benchmark"] = {"repeats": 5}
    changed = Study.from_config(base)
    redo = plan_redo(changed, tmp_path)
    assert {r.stage for r in redo} == {"benchmark"}
    set_aside(redo, tmp_path)
    left = {p.name for p in launch_folder(tmp_path, changed.launches[0]).iterdir()}
    assert left == {"launch.json", "gate.json", "instances"}


def test_why_names_the_changed_keys(done, base, tmp_path):
    (tmp_path / "study.json").write_text(json.dumps({"config": done.config}))
    base["benchmark"] = {"repeats": 5}
    redo = [r for r in plan_redo(Study.from_config(base), tmp_path) if r.launch]
    assert redo[0].why == "changed: benchmark.repeats"


def test_failed_launch_is_retried_or_kept(done, base, tmp_path):
    broken = done.launches[1]
    finish(done, tmp_path, broken, "failed", BENCHMARK.name)
    redo = plan_redo(done, tmp_path)
    assert [(r.launch, r.stage) for r in redo] == [(broken, "benchmark")]
    assert "it broke" in redo[0].why
    base["retry_failed"] = False
    assert plan_redo(Study.from_config(base), tmp_path) == []
    assert plan_redo(done, tmp_path, reach={}) == []


def test_a_failure_stays_where_the_run_would_not_repeat_it(done, base, tmp_path):
    broken, other = done.launches[1:3]
    finish(done, tmp_path, broken, "failed", BENCHMARK.name)
    for reach in ({}, {other: EXTRACT}, {broken: LAUNCH}, {broken: GATE}):
        assert plan_redo(done, tmp_path, reach=reach) == []
    for reach in ({broken: BENCHMARK}, {broken: RELEASE, other: GATE}):
        [redo] = plan_redo(done, tmp_path, reach=reach)
        assert (redo.launch, redo.stage) == (broken, "benchmark")
        assert {f.name for f in redo.files} >= {"benchmark.json", "exit.json", "profile.json"}
    base["retry_failed"] = False
    assert plan_redo(Study.from_config(base), tmp_path, reach={broken: EXTRACT}) == []


def test_what_is_stale_is_set_aside_whatever_is_asked_for(done, base, tmp_path):
    base["benchmark"] = {"repeats": 5}
    redo = plan_redo(Study.from_config(base), tmp_path, reach={})
    assert [r.stage for r in redo] == ["benchmark"] * len(done.launches)


def test_of_a_failed_launch_nothing_after_its_failure_needs_to_be_measured(done, tmp_path):
    broken = done.launches[1]
    finish(done, tmp_path, broken, "failed", GATE.name)
    folder = launch_folder(tmp_path, broken)
    for name in ("benchmark", "capture", "exit", "profile"):
        (folder / f"{name}.json").unlink()
    assert unmeasured(done, tmp_path) == ()
    assert all_measured(done, tmp_path)
    (folder / GATE.record).unlink()
    assert [(a.cell, a.block) for a in unmeasured(done, tmp_path)] == [(broken.cell.id, broken.block)]


@pytest.mark.parametrize("damage", ["cut", "gone", "not json", "too deep"])
def test_damaged_records_are_redone(done, tmp_path, damage):
    folder = launch_folder(tmp_path, done.launches[0])
    if damage == "gone":
        (folder / "requests.jsonl").unlink()
    else:
        text = {"cut": '{"digest": "', "not json": "[1]", "too deep": "[" * 100_000}[damage]
        (folder / "benchmark.json").write_text(text)
    assert [r.stage for r in plan_redo(done, tmp_path)] == ["benchmark"]


def test_new_cells_do_not_touch_old_ones(done, base, tmp_path):
    base["grid"]["steps"] = [0, 2, 4]
    base["replicates"] = 2
    assert plan_redo(Study.from_config(base), tmp_path) == []


def test_study_products_follow_their_sources(done, tmp_path):
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "tables.json").write_text('{"digest": "old"}')
    (tmp_path / "report.html").write_text("half a study")
    redo = plan_redo(done, tmp_path)
    assert {r.stage: [str(f) for f in r.files] for r in redo} == {
        "tables/tables.json": ["tables"],
        "figures/figures.json": ["report.html"],
    }


def test_the_plan_counts_no_launch_where_only_the_extract_is_due(done, tmp_path):
    first, second, third, *_ = (launch_folder(tmp_path, launch) for launch in done.launches)
    (first / EXTRACT.record).unlink()
    (second / EXTRACT.record).write_text('{"digest": "old"}')
    (third / BENCHMARK.record).unlink()
    [line] = [line for line in lines(done, tmp_path) if line.startswith("To do")]
    assert line.startswith("To do: 1 launch,")
    assert "2 to extract again" in line


def test_capture_switched_off_and_on(done, base, tmp_path):
    base["capture"] = {"enabled": False}
    without = Study.from_config(base)
    redo = plan_redo(without, tmp_path)
    assert {(r.stage, len(r.files)) for r in redo} == {("capture", 2), ("extract", 1)}
    set_aside(redo, tmp_path)
    assert plan_redo(without, tmp_path) == []
    assert {r.stage for r in plan_redo(done, tmp_path)} == {"capture"}, "exit.json is made again with it"


def test_a_gate_that_is_gone_and_records_without_earlier_ones(done, tmp_path):
    first, second = done.launches[:2]
    (launch_folder(tmp_path, first) / "instances" / "life" / "gate.json").unlink()
    (launch_folder(tmp_path, second) / "benchmark.json").unlink()
    redo = plan_redo(done, tmp_path)
    assert [(r.launch, r.stage) for r in redo] == [(first, "benchmark"), (second, "benchmark")]
    assert "gate is gone" in redo[0].why
    assert any(f.name == "exit.json" for f in redo[1].files)


def test_a_listed_table_or_figure_that_is_gone(done, tmp_path):
    (tmp_path / "figures").mkdir()
    digest = hashlib.sha256(b"x").hexdigest()
    record = {"digest": figures_digest(done), "figures": [{"name": "speed", "files": {"png": digest}}]}
    (tmp_path / "figures" / "figures.json").write_text(json.dumps(record))
    assert [r.why for r in plan_redo(done, tmp_path)] == ["a file that it lists is gone"]
    (tmp_path / "figures" / "speed.png").write_text("x")
    assert plan_redo(done, tmp_path) == []
    (tmp_path / "figures" / "speed.png").write_text("y")
    [redo] = plan_redo(done, tmp_path)
    assert str(redo) == "study, from figures/figures.json on: a file that it lists was changed"


def test_requests_that_are_not_those_of_the_benchmark(done, tmp_path):
    folder = launch_folder(tmp_path, done.launches[0])
    record = json.loads((folder / BENCHMARK.record).read_text())
    digest = hashlib.sha256((folder / "requests.jsonl").read_bytes()).hexdigest()
    (folder / BENCHMARK.record).write_text(json.dumps(record | {"requests_sha256": digest}))
    assert plan_redo(done, tmp_path) == []
    (folder / "requests.jsonl").write_text("x" * 10)
    [redo] = plan_redo(done, tmp_path)
    assert (redo.stage, redo.why) == ("benchmark", "requests.jsonl is not the file that was written")


@pytest.mark.parametrize(
    ("name", "status", "stage"),
    [("exit", "passed", "release"), ("profile", "passed", "extract"), ("exit", "failed", None)],
)
def test_records_of_one_launch_are_of_the_server_life_that_was_measured(done, tmp_path, name, status, stage):
    folder = launch_folder(tmp_path, done.launches[0])
    (folder / "instances" / "other").mkdir()
    (folder / "instances" / "other" / "gate.json").write_text("{}")
    for record, change in ((name, {"instance": "other"}), ("benchmark", {"status": status})):
        path = folder / f"{record}.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
    redo = plan_redo(done, tmp_path, reach={})
    assert [r.stage for r in redo] == ([stage] if stage else []), (
        "of a benchmark that failed none was measured"
    )
    assert stage is None or "another server life" in redo[0].why


def test_a_stale_record_says_whether_the_code_or_the_config_changed(done, base, tmp_path):
    """A key that the record does not depend on is not what made it stale."""
    (tmp_path / "study.json").write_text(json.dumps({"config": Study.from_config(base).config}))
    profile = launch_folder(tmp_path, done.launches[0]) / EXTRACT.record
    profile.write_text(json.dumps(json.loads(profile.read_text()) | {"digest": "of older readers"}))
    base["title"] = "another"
    [redo] = [r for r in plan_redo(Study.from_config(base), tmp_path) if r.launch]
    assert redo.why == CHANGED
    base["capture"] = {"cycles": 7}
    redo = [r for r in plan_redo(Study.from_config(base), tmp_path) if r.launch]
    assert {r.stage for r in redo} == {"capture"}
    assert all("capture.cycles" in r.why for r in redo)


def test_launches_that_are_not_measured_can_be_left_out_and_come_back(done, base, tmp_path):
    gone, stale, failed = done.launches[1], done.launches[2], done.launches[3]
    (launch_folder(tmp_path, gone) / "exit.json").unlink()
    gate = launch_folder(tmp_path, stale) / "gate.json"
    gate.write_text(json.dumps(json.loads(gate.read_text()) | {"digest": "of another server"}))
    finish(done, tmp_path, failed, status="failed", upto="benchmark")
    some = Study.from_config(base)
    some.left_out = unmeasured(some, tmp_path)
    assert {(a.cell, a.block) for a in some.left_out} == {(x.cell.id, x.block) for x in (gone, stale)}
    assert [x for x in done.launches if x not in some.launches] == [gone, stale]
    assert plan_redo(some, tmp_path, reach={}) == []
    record = study_record(some)
    assert record["warnings"][0].startswith("2 of ")
    (tmp_path / "study.json").write_text(json.dumps(record))
    assert [len(x) for x in launches_of(record)] == [len(done.launches) - 2, 2]
    # The study was finished without them; they are no later addition to it.
    again = Study.from_config(base)
    again.history = history_of(tmp_path)
    assert again.launches == done.launches


def test_a_record_without_a_digest_is_redone(done, base, tmp_path):
    (tmp_path / "study.json").write_text(json.dumps({"config": done.config}))
    (launch_folder(tmp_path, done.launches[0]) / "gate.json").write_text("{}")
    [redo] = [r for r in plan_redo(done, tmp_path) if r.launch]
    assert (redo.stage, redo.why) == ("gate", CHANGED)


def test_a_stage_that_is_switched_off_takes_no_server(done, base, tmp_path):
    base["capture"] = {"enabled": False}
    without = Study.from_config(base)
    redo = plan_redo(without, tmp_path)
    assert {r.stage for r in redo} == {"capture", "extract"}
    assert not takes_server(redo)
    assert unmeasured(without, tmp_path) == ()


def test_only_measured_is_no_part_of_what_the_study_is(base):
    """Whoever repeats a study from the config in its records means to measure it."""
    base["only_measured"] = True
    closed = Study.from_config(base)
    assert closed.only_measured
    base["only_measured"] = False
    assert study_record(closed)["digest"] == study_record(Study.from_config(base))["digest"]
    assert "only_measured" not in study_record(closed)["config"]


def test_a_grown_study_keeps_its_epochs_where_study_json_was_set_aside(done, base, tmp_path):
    (tmp_path / "study.json").write_text(json.dumps(study_record(done)))
    base["grid"]["steps"] = [*base["grid"]["steps"], 7]

    def grown():
        return Study(Study.from_config(base).config, history=history_of(tmp_path))

    before = grown()
    assert {x.epoch for x in before.launches} == {1, 2}
    before.freeze(tmp_path / ".live/study.json")
    set_aside(plan_redo(before, tmp_path), tmp_path)
    assert not (tmp_path / "study.json").exists()
    assert grown().launches == before.launches
    shutil.rmtree(tmp_path / "cells")
    assert {x.epoch for x in grown().launches} == {1}, "nothing of it is there any more"


def test_the_plan_says_which_launches_are_left_out(done, base, tmp_path, capsys):
    gone, failed = done.launches[1], done.launches[2]
    (launch_folder(tmp_path, gone) / "exit.json").unlink()
    finish(done, tmp_path, failed, status="failed", upto="benchmark")
    config = tmp_path / "study.yaml"
    config.write_text(yaml.safe_dump(base | {"only_measured": True}))
    command = ["plan", str(config), "--results", str(tmp_path), "--brief"]
    assert main(command) == 0
    text = capsys.readouterr().out
    count = len(done.launches)
    assert f"1 of {count} launches left out, not measured: {gone.cell.id} {gone.id}" in text
    assert f"Kept {count - 1}, new 0, unfinished 0, stale 0" in text, "a failed launch is not retried"
    assert "left alone" not in text
    assert "To do: 0 launches" in text
    assert "server.python" not in text, "no server is started, so none need be here"
    shutil.rmtree(tmp_path / "cells")
    assert main(command) == 2
    assert "no launch with all its records" in capsys.readouterr().err


BREAKS = {
    "no block": lambda record: record["launches"][0].pop("block"),
    "an odd key": lambda record: record["launches"][0].update(blok=1),
    "a block that is no number": lambda record: record["launches"][0].update(block="1"),
    "block 0": lambda record: record["launches"][0].update(block=0),
    "a launch that is not its block": lambda record: record["launches"][0].update(launch="l7"),
    "epoch 0": lambda record: record["launches"][0].update(epoch=0),
    "no launches": lambda record: record.pop("launches"),
    "launches by name": lambda record: record.update(launches={}),
    "left out: a name": lambda record: record.update(left_out=["a"]),
    "no config": lambda record: record.pop("config"),
}


@pytest.mark.parametrize("how", [*BREAKS, "cut", "too deep"])
def test_a_damaged_study_json_is_refused_and_left_alone(done, tmp_path, how):
    record = study_record(done)
    path = tmp_path / "study.json"
    path.write_text(json.dumps(record))
    assert len(history_of(tmp_path)) == len(done.launches)
    BREAKS.get(how, lambda _: None)(record)
    text = {"cut": json.dumps(record)[:100], "too deep": "[" * 100_000}.get(how, json.dumps(record))
    path.write_text(text)
    for read in (history_of, was_left_out):
        with pytest.raises(
            BadInput, match=r"study\.json: .*; put it back as it was, or move it away"
        ) as error:
            read(tmp_path)
        assert "\n" not in str(error.value)
    assert path.read_text() == text


FORGED = {
    "config": lambda record: record["config"].update(title="another"),
    "cells": lambda record: record["cells"].pop(),
    "untimed": lambda record: record.update(
        untimed={"id": "x", "twin": record["reference"], "timers": [], "digests": {}}
    ),
    "launches": lambda record: record["launches"].reverse(),
    "left_out": lambda record: record.update(left_out=[record["launches"].pop()]),
    "axes": lambda record: record.update(axes=["topk"]),
    "reference": lambda record: record.update(reference="x"),
    "seed": lambda record: record.update(seed=record["seed"] + 1),
}


@pytest.mark.parametrize("key", FORGED)
def test_a_study_json_that_says_what_the_config_does_not_is_made_again(done, tmp_path, key):
    record = json.loads(json.dumps(study_record(done)))
    path = tmp_path / "study.json"
    path.write_text(json.dumps(record))
    assert plan_redo(done, tmp_path) == []
    older = {name: value for name, value in record.items() if name not in ("untimed", "left_out")}
    path.write_text(json.dumps(older))
    assert plan_redo(done, tmp_path) == [], "written before there were these keys"
    FORGED[key](record)
    path.write_text(json.dumps(record))
    [redo] = plan_redo(done, tmp_path)
    assert redo.files == (path.relative_to(tmp_path),)
    expected = "launches" if key == "left_out" else key
    assert redo.why == f"its {expected} is not what the config gives"


@pytest.mark.parametrize("tables", [[{"name": "cells"}], ["cells"], 3, [{"name": 1, "sha256": [1]}]])
def test_a_damaged_list_of_tables_is_made_again(done, tmp_path, tables):
    (tmp_path / "tables").mkdir()
    record = {"digest": tables_digest(done), "tables": tables}
    (tmp_path / "tables" / "tables.json").write_text(json.dumps(record))
    [redo] = plan_redo(done, tmp_path)
    assert redo.stage == "tables/tables.json"


def test_a_failure_that_says_nothing(done, tmp_path):
    finish(done, tmp_path, done.launches[0], "failed", BENCHMARK.name)
    path = launch_folder(tmp_path, done.launches[0]) / BENCHMARK.record
    path.write_text(json.dumps(json.loads(path.read_text()) | {"failure": "x"}))
    [redo] = plan_redo(done, tmp_path)
    assert redo.why == "failed: no reason recorded"
