"""Machines of the launches: listed, and warned of where they differ."""

from __future__ import annotations

import pytest
from draw import synthetic

from quietgate.analyse import machines
from quietgate.analyse.collect import collect
from quietgate.analyse.launch_records import LaunchRecords

MACHINES = "launches ran on 2 machines (c l1; c l2): cells are compared within one machine"


def seen(version):
    return {
        "stages": [
            {"name": "process", "evidence": {}},
            {"name": "arguments", "evidence": {"version": version}},
        ]
    }


def record(**changes):
    made = {
        "cell": "c",
        "launch": "l1",
        "host": {"name": "a", "processor": "P", "cores": 8, "memory_mib": 65536},
        "gpus": [{"name": "G", "uuid": "u1"}, {"name": "G", "uuid": "u2"}],
        "driver": "580.1",
        "gate": seen("0.5.23"),
    }
    return made | changes


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, []),
        ({"gpus": [{"name": "G", "uuid": "u2"}, {"name": "G", "uuid": "u1"}]}, []),
        ({"gpus": [{"name": "G", "uuid": "u1"}, {"name": "G", "uuid": "u3"}]}, [MACHINES]),
        ({"driver": "590.2"}, ["the same driver (580.1: c l1; 590.2: c l2)"]),
        ({"gate": seen("0.5.24")}, ["the same SGLang (0.5.23: c l1; 0.5.24: c l2)"]),
        ({"gate": None}, []),
        ({"driver": None}, ["the same driver (580.1: c l1; none: c l2)"]),
        (
            {"gpus": [{"name": "G", "uuid": "u1"}, {"name": "H", "uuid": "u3"}]},
            [MACHINES, "the same GPUs (2 x G: c l1; 1 x G, 1 x H: c l2)"],
        ),
        (
            {"host": {"name": "b", "processor": "P", "cores": 16, "memory_mib": 65536}},
            [
                MACHINES,
                "the same host (a: c l1; b: c l2)",
                "the same processor (P, 8 cores: c l1; P, 16 cores: c l2)",
            ],
        ),
    ],
)
def test_every_difference_is_one_warning(changes, told):
    found = machines.differences([record(), record(launch="l2", **changes)])
    assert len(found) == len(told)
    for sentence, piece in zip(found, told, strict=True):
        assert piece in sentence


def test_the_machine_is_that_of_the_measured_life(tmp_path):
    other = {"name": "b"}
    launch = {"status": "passed", "instance": "i1", **record()}
    lives = {"i1": {}, "i2": {"host": other, "gpus": []}, "i3": {}}

    def where(instance):
        records = {"launch": launch, "benchmark": {"status": "passed", "instance": instance}}
        found = LaunchRecords({"id": "c"}, "l1", tmp_path, records, gates=lives)
        return machines.of_measured_life(found)

    assert machines.identity(where("i1")) == ("a", "u1", "u2")
    assert machines.identity(where("i2")) == ("b",)
    assert where("i3") is None


def test_many_launches_are_counted():
    records = [record(launch=f"l{i}") for i in range(5)] + [record(launch="l9", driver="1")]
    assert "580.1: 5 launches; 1: c l9" in machines.differences(records)[0]


def test_collect_warns_of_another_driver(tmp_path):
    synthetic.write(tmp_path, synthetic.config([0, 1], launches=2), drivers={"l2": "999.9"})
    warnings = collect(tmp_path, tmp_path / "tables")["warnings"]
    assert [w for w in warnings if "999.9: 4 launches" in w]
