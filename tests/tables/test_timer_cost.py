"""What the timers cost, on an invented study in which it is known."""

import pandas as pd
import pytest
from draw import synthetic

from quietgate.analyse import tables, timer_cost
from quietgate.analyse.collect import collect
from quietgate.draw import report
from quietgate.files import write_json

TRUE_PERCENT = 100 / synthetic.WITHOUT_TIMERS - 100


def made(root, launches=4, **changes):
    settings = synthetic.config([0, 2], launches=launches, timer_cost=True)
    study = synthetic.write(root, settings, **changes)
    record = collect(root, study_tables := root / "tables")
    return study, record, study_tables


def test_it_is_found_with_an_interval_around_the_truth(tmp_path):
    _, _, folder = made(tmp_path)
    [row] = pd.read_csv(folder / "timer_cost.csv").to_dict("records")
    assert row["percent_low"] < TRUE_PERCENT < row["percent_high"] < 0
    assert row["percent"] == pytest.approx(TRUE_PERCENT, abs=1.5)
    assert (row["launches"], row["launches_untimed"]) == (4, 4)
    assert "with SGLang's stage timer on, steps-2_nccl-tuned decodes" in row["text"]
    assert "95 % interval" in row["text"]


def test_a_cost_that_matters_is_a_warning(tmp_path):
    _, record, folder = made(tmp_path)
    [told] = [w for w in record["warnings"] if w.startswith("timers:")]
    assert pd.read_csv(folder / "timer_cost.csv")["text"][0] in told
    assert "server.env" in told
    small = pd.DataFrame([{"percent": -1.9, "percent_high": -0.5, "text": "x"}])
    unsure = pd.DataFrame([{"percent": -9.0, "percent_high": 0.5, "text": "x"}])
    unknown = pd.DataFrame([{"percent": -9.0, "percent_high": None, "text": "x"}])
    assert [len(timer_cost.warnings(f, {})) for f in (small, unsure, unknown)] == [0, 0, 1]


def test_one_launch_of_each_gives_no_interval(tmp_path):
    _, _, folder = made(tmp_path, launches=1)
    [row] = pd.read_csv(folder / "timer_cost.csv").to_dict("records")
    assert pd.isna(row["percent_low"])
    assert "how launches vary is unknown" in row["text"]


def test_the_cell_without_timers_is_in_no_other_result(tmp_path):
    _, record, folder = made(tmp_path)
    for table in record["tables"]:
        frame = pd.read_csv(folder / f"{table['name']}.csv")
        if table["name"] not in ("untimed", "timer_cost", "gate"):
            assert not frame.get("cell", pd.Series(dtype=str)).astype(str).str.contains("timers-off").any()
    assert set(tables.read(folder / "untimed.csv")["cell"]) == {"steps-2_nccl-tuned_timers-off"}
    plain = tmp_path / "plain"
    synthetic.write(plain, synthetic.config([0, 2], launches=4))
    collect(plain, plain / "tables")
    assert len(tables.read(plain / "tables/cells.csv")) == len(tables.read(folder / "cells.csv"))


def test_tables_of_which_nothing_is_left_to_say_do_not_stay(tmp_path):
    _, record, folder = made(tmp_path)
    assert {"untimed", "timer_cost", "variation"} <= {table["name"] for table in record["tables"]}
    synthetic.write(tmp_path, synthetic.config([0, 2], launches=1))
    (folder / "own.csv").write_text("a\n1\n")
    named = {table["name"] for table in collect(tmp_path, folder)["tables"]}
    assert {path.stem for path in folder.glob("*.csv")} == named | {"own"}
    assert not named & {"untimed", "timer_cost", "variation"}


def test_nothing_is_said_where_there_is_nothing_to_compare(tmp_path):
    failed = {(2, "tuned", f"l{i}"): "out_of_memory" for i in (1, 2, 3, 4)}
    _, record, folder = made(tmp_path, failed_launches=failed)
    assert pd.read_csv(folder / "timer_cost.csv").empty
    [told] = [w for w in record["warnings"] if w.startswith("timers:")]
    assert "not known" in told
    assert "steps-2_nccl-tuned_timers-off" in told


def test_the_report_says_it(tmp_path):
    study, _, folder = made(tmp_path)
    report.write(tmp_path, study, None, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "What the timers cost" in page
    assert pd.read_csv(folder / "timer_cost.csv")["text"][0].replace("'", "&#39;") in page


def test_each_epoch_has_its_own_row_that_says_so(tmp_path):
    settings = synthetic.config([0, 2], launches=4, timer_cost=True)
    study = synthetic.write(tmp_path, settings)
    for launch in study["launches"]:
        launch["epoch"] = 1 if launch["block"] < 3 else 2
    write_json(tmp_path / "study.json", study)
    collect(tmp_path, tmp_path / "tables")
    rows = pd.read_csv(tmp_path / "tables/timer_cost.csv").to_dict("records")
    assert [(row["epoch"], row["launches"], row["launches_untimed"]) for row in rows] == [
        (1, 2, 2),
        (2, 2, 2),
    ]
    assert [row["text"][:9] for row in rows] == ["Epoch 1: ", "Epoch 2: "]
