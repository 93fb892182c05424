"""Tables from records: contents, order, bytes, and what is refused."""

from __future__ import annotations

import json
import shutil

import pandas as pd
import pytest
from draw import synthetic

from quietgate import records
from quietgate.analyse import tables
from quietgate.analyse.collect import unsteady
from quietgate.errors import BadInput
from quietgate.files import sha256


def made(root, study):
    return tables.collect(tables.read_all(root, study), study)


@pytest.fixture(scope="module")
def study_of(tmp_path_factory):
    """Two profiles, two steps, two launches; one failed cell."""
    root = tmp_path_factory.mktemp("tables")
    settings = synthetic.config([0, 2], launches=2, concurrency=(1, 2))
    study = synthetic.write(root, settings, failed={(2, "tuned"): "out_of_memory"})
    return root, study, made(root, study)


@pytest.fixture
def one(tmp_path):
    """One cell, one launch, to be damaged."""
    study = synthetic.write(tmp_path, synthetic.config([2], launches=1, profiles=("tuned",)))
    return tmp_path, study, tmp_path / "cells" / study["cells"][0]["id"] / "l1"


def test_cells_has_the_agreed_columns(study_of):
    _, _, frames = study_of
    assert list(frames["cells"].columns) == [
        "cell", "steps", "nccl", "launch", "concurrency", "repeat", "status", "failure_class",
        "nccl_verdict", "decode_tokens_per_s", "request_tokens_per_s", "output_tokens_per_s",
        "tokens_per_cycle", "cycle_ms", "draft_ms", "verify_ms", "extend_ms", "other_ms", "ttft_s",
        "end_to_end_s", "target_ms", "nccl_transfer_ms", "requests", "started_at", "instance", "machine",
    ]  # fmt: skip


def test_one_row_per_launch_level_and_repeat_in_grid_order(study_of):
    _, study, frames = study_of
    cells = frames["cells"]
    keys = cells[cells["status"] == "passed"][["cell", "launch", "concurrency", "repeat"]]
    assert len(keys) == 3 * 2 * 2 * 2
    order = [c["id"] for c in study["cells"]]
    wanted = sorted(
        keys.itertuples(index=False), key=lambda k: (order.index(k.cell), k.launch, k.concurrency, k.repeat)
    )
    assert list(keys.itertuples(index=False)) == wanted


def test_a_failed_launch_is_one_row_without_numbers(study_of):
    _, _, frames = study_of
    rows = frames["cells"][frames["cells"]["cell"] == "steps-2_nccl-tuned"]
    assert rows["status"].tolist() == ["failed", "failed"]
    assert rows["failure_class"].tolist() == ["out_of_memory"] * 2
    numbers = rows[[*tables.PASS_NUMBERS, "concurrency", "repeat", "requests"]]
    assert numbers.isna().all(axis=None)
    failures = frames["failures"]
    assert failures["stage"].tolist() == ["gate", "gate"]
    assert failures["reason"].str.startswith("CUDA ran out").all()


def test_values_are_the_records_own(study_of):
    root, _, frames = study_of
    benchmark = records.read(root / "cells/steps-2_nccl-untuned/l1/benchmark.json")
    profile = records.read(root / "cells/steps-2_nccl-untuned/l1/profile.json")
    rows = frames["cells"].query("cell == 'steps-2_nccl-untuned' and launch == 'l1'")
    for i, row in enumerate(rows.to_dict("records")):
        for name in tables.PASS_NUMBERS:
            source = profile["windows"] if name in tables.STAGE_NUMBERS else benchmark["passes"]
            assert row[name] == source[i][name]
        assert row["nccl_verdict"] == "confirmed"
        assert row["instance"] == benchmark["instance"]
    stages = frames["stages"].query("cell == 'steps-2_nccl-untuned' and launch == 'l1'").iloc[0]
    assert stages["verify_source"] == "device_timer"
    assert stages["cycle_source"] == "requests"


def test_positions_sum_to_tokens_per_cycle(study_of):
    _, _, frames = study_of
    got = frames["positions"].query("cell == 'steps-2_nccl-untuned' and launch == 'l1' and concurrency == 1")
    assert got["position"].tolist() == [1, 2]
    tokens = frames["cells"].query("cell == 'steps-2_nccl-untuned' and launch == 'l1' and concurrency == 1")
    assert 1 + got["accepted"].sum() == pytest.approx(tokens["tokens_per_cycle"].iloc[0], rel=0.03)
    assert got["accepted_given_previous"].iloc[1] == pytest.approx(
        got["accepted"].iloc[1] / got["accepted"].iloc[0]
    )


def test_gate_has_every_stage_of_the_measured_life(study_of):
    _, _, frames = study_of
    gate = frames["gate"].query("cell == 'steps-0_nccl-tuned' and launch == 'l1'")
    assert gate["number"].tolist() == list(range(1, 9))
    assert gate["verdict"].unique().tolist() == ["passed"]


def test_same_records_same_bytes_and_exact_floats(study_of, tmp_path):
    root, study, frames = study_of
    written = tables.write(frames, tmp_path / "a")
    assert written == tables.write(made(root, study), tmp_path / "b")
    for entry in written:
        path = tmp_path / "a" / f"{entry['name']}.csv"
        assert sha256(path) == entry["sha256"]
        back = tables.read(path)
        assert len(back) == entry["rows"]
        pd.testing.assert_frame_equal(back, frames[entry["name"]], check_dtype=False, check_exact=True)
    record = {
        "schema": "quietgate/tables/1", "study": "invented", "digest": "0" * 16, "inputs": 8,
        "tables": written, "drifts": [], "agreement": [], "refused": [],
    }  # fmt: skip
    assert records.problem(record, "tables") is None


def test_other_axes_are_columns(tmp_path):
    axes = {"graphs": {"flag": "disable-cuda-graph", "values": [None, True]}}
    study = synthetic.write(tmp_path, synthetic.config([0], launches=1, profiles=("tuned",), axes=axes))
    frames = made(tmp_path, study)
    assert list(frames["cells"].columns[:5]) == ["cell", "steps", "nccl", "graphs", "launch"]
    tables.write(frames, tmp_path / "tables")
    assert tables.read(tmp_path / "tables/cells.csv")["graphs"].isna().tolist() == [True, True, False, False]


def test_an_unfinished_launch_is_missing_not_forgotten(one):
    root, study, folder = one
    for name in ("gate", "benchmark", "stages", "capture", "profile", "exit"):
        (folder / f"{name}.json").unlink()
    frames = made(root, study)
    assert frames["cells"][["status", "failure_class"]].values.tolist() == [["missing", "missing"]]
    assert "was not finished" in frames["failures"]["reason"].item()


def test_a_failed_capture_costs_the_launch_nothing(one):
    root, study, folder = one
    failure = {"class": "timeout", "reason": "no trace came", "stage": "capture", "evidence": []}
    edit(folder / "capture.json", status="failed", failure=failure)
    frames = made(root, study)
    assert frames["cells"]["status"].unique().tolist() == ["passed"]
    assert frames["failures"][["stage", "failure_class"]].values.tolist() == [["capture", "timeout"]]


def edit(path, **fields):
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, **fields}))


def no_gate(folder):
    shutil.rmtree(folder / "instances")


def failed_gate(folder):
    (gate,) = folder.glob("instances/*/gate.json")
    failure = {"class": "port", "reason": "taken", "stage": "gate", "evidence": []}
    edit(gate, status="failed", failure=failure)


def other_gate(folder):
    (gate,) = folder.glob("instances/*/gate.json")
    edit(gate, instance="0" * 12)


def old_gate(folder):
    (gate,) = folder.glob("instances/*/gate.json")
    edit(gate, digest="0" * 16)


def surrounded(folder, **said):
    around = dict.fromkeys(("cores", "server_cores", "client_cores", "other_cores", "stolen_cores", "why"))
    around |= {"window_s": 1.0, "gpus": []} | said
    passes = json.loads((folder / "benchmark.json").read_text())["passes"]
    edit(folder / "benchmark.json", passes=[one | {"surroundings": around} for one in passes])


def half_told(folder):
    """Cores of other programs without those of other guests: the kernel tells all or nothing."""
    surrounded(folder, other_cores=0.5)


def test_records_of_before_the_pace_give_the_table_they_gave(one):
    root, study, folder = one
    surrounded(folder)
    before = made(root, study)["surroundings"]
    assert before.columns.tolist()[3:] == [
        "launch", "concurrency", "repeat", "cores", "server_cores", "client_cores", "other_cores",
        "gpu_power_w", "gpu_energy_j_per_token", "gpu_clock_mhz", "gpu_temperature_c",
        "power_limited", "heat_limited",
    ]  # fmt: skip
    surrounded(folder, loop_ms={"before": 2.0, "after": 3.0})
    after = made(root, study)["surroundings"]
    assert after["loop_ms"].eq(2.5).all()
    assert after.drop(columns="loop_ms").equals(before)


@pytest.mark.parametrize(
    ("damage", "record", "why"),
    [
        (no_gate, "benchmark.json", "has no gate"),
        (failed_gate, "benchmark.json", "whose gate failed"),
        (other_gate, "benchmark.json", "another server life"),
        (old_gate, "benchmark.json", "under another configuration"),
        (lambda f: edit(f / "benchmark.json", digest="1" * 16), "benchmark.json", "another configuration"),
        (lambda f: edit(f / "benchmark.json", instance=None), "benchmark.json", "names no server life"),
        (lambda f: edit(f / "launch.json", digest="1" * 16), "launch.json", "another configuration"),
        (lambda f: edit(f / "benchmark.json", cell="steps-9_nccl-tuned"), "benchmark.json", "of cell"),
        (lambda f: edit(f / "profile.json", instance="0" * 12), "profile.json", "of server life"),
        (lambda f: edit(f / "benchmark.json", passes="none"), "benchmark.json", "breaks schema"),
        (lambda f: edit(f / "launch.json", gpus=[{"links": ["self", 5]}]), "launch.json", "gpus/0/links/1"),
        (half_told, "benchmark.json", "/surroundings/"),
        (lambda f: surrounded(f, loop_ms={"before": 2.0}), "benchmark.json", "/surroundings/loop_ms"),
        (lambda f: (f / "gate.json").write_text("{"), "gate.json", "not readable as JSON"),
        (lambda f: (f / "requests.jsonl").unlink(), "benchmark.json", "requests.jsonl is gone"),
        (lambda f: (f / "requests.jsonl").write_text(""), "benchmark.json", "not the file that was measured"),
    ],
)
def test_a_record_that_proves_nothing_is_refused_by_name(one, damage, record, why):
    root, study, folder = one
    damage(folder)
    with pytest.raises(BadInput) as error:
        made(root, study)
    lines = str(error.value).splitlines()
    assert any(f"l1/{record}: " in line and why in line for line in lines), lines
    refused = [r for found in tables.read_all(root, study) for r in found.refused]
    assert any(r["record"].endswith(record) and why in r["why"] for r in refused)


def test_a_table_that_is_not_there(tmp_path):
    with pytest.raises(BadInput, match=r"cells\.csv: no such table"):
        tables.read(tmp_path / "cells.csv")


def gate_of(*levels):
    found = [{"concurrency": streams, "steady": steady} for streams, steady in levels]
    return {
        "stages": [
            {"name": "http", "evidence": {}},
            {"name": "warm_up", "evidence": {"concurrencies": found}},
        ]
    }


def test_a_warm_up_that_ended_too_early_is_a_warning():
    [told] = unsteady([gate_of((1, True), (8, False)), gate_of((1, False), (8, False))])
    assert "at 1 stream in 1 of 2 launches, at 8 streams in 2 of 2 launches" in told
    assert unsteady([gate_of((1, True))]) == []
    assert unsteady([{"stages": []}]) == []
