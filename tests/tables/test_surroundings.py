"""The machine during the timed passes: sums and worst cases over GPUs, and what is worth a warning."""

from types import SimpleNamespace

import pandas as pd
import pytest

from quietgate.analyse import surroundings


def gpu(**changed):
    usual = {"energy_j": 100.0, "power_w": 50.0, "sm_clock_mhz": 1980, "temperature_c": 40}
    held = {"power": changed.pop("power", 0.0), "heat": changed.pop("heat", 0.0)}
    return usual | changed | {"held_back_s": held}


def row(*gpus, tokens_per_s=10.0, others=0.25, stolen=0.05, loop_ms=None):
    around = {
        "window_s": 2.0, "cores": 16, "server_cores": 1.5, "client_cores": 0.1,
        "other_cores": others, "stolen_cores": stolen, "gpus": list(gpus),
    }  # fmt: skip
    if loop_ms:
        around["loop_ms"] = dict(zip(("before", "after"), loop_ms, strict=True))
    one = {
        "concurrency": 1, "repeat": 1, "output_tokens_per_s": tokens_per_s, "wall_s": 2.0,
        "surroundings": around,
    }  # fmt: skip
    found = SimpleNamespace(passed=lambda kind: {"passes": [one]})
    return next(surroundings.rows(found))


def test_a_row_sums_power_and_takes_the_worst_of_the_rest():
    made = row(gpu(power=0.5), gpu(sm_clock_mhz=1700, temperature_c=70, heat=1.0))
    assert made["other_cores"] == pytest.approx(0.3)
    assert (made["gpu_power_w"], made["gpu_clock_mhz"], made["gpu_temperature_c"]) == (100.0, 1700, 70)
    assert made["gpu_energy_j_per_token"] == 200.0 / 20
    assert (made["power_limited"], made["heat_limited"]) == (0.25, 0.5)


def test_the_pace_is_the_mean_of_before_and_after():
    assert row(loop_ms=(2.0, 3.0))["loop_ms"] == 2.5
    assert row()["loop_ms"] is None
    assert row(loop_ms=(2.0, None))["loop_ms"] is None


def test_a_gpu_that_does_not_tell_leaves_no_half_sum():
    made = row(gpu(), gpu(energy_j=None, power_w=None, power=None))
    assert (made["gpu_power_w"], made["gpu_energy_j_per_token"]) == (None, None)
    assert made["power_limited"] == 0.0
    nothing = row()
    assert (nothing["gpu_clock_mhz"], nothing["power_limited"]) == (None, None)


def test_older_records_have_no_row():
    found = SimpleNamespace(passed=lambda kind: {"passes": [{"concurrency": 1, "repeat": 1}]})
    assert list(surroundings.rows(found)) == []


def frame(*launches):
    made = [
        {"cell": "c", "launch": f"l{i}", **row(gpu(**changed), others=others, stolen=0.0)}
        for i, (others, changed) in enumerate(launches)
    ]
    return pd.DataFrame(made)


def warnings(made, machines=None):
    """Of launches on one machine, or on the machines given, one per launch."""
    cells = made[["cell", "launch"]].drop_duplicates()
    return surroundings.warnings(made, cells.assign(machine=machines or 1))


def paced(*launches):
    """Passes of launches with these mean times of the fixed work; None: an earlier record."""
    return pd.DataFrame(
        {"cell": "c", "launch": f"l{i}", **row(loop_ms=ms and (ms, ms))}
        for i, some in enumerate(launches, start=1)
        for ms in some
    )


def test_a_machine_of_its_own_is_no_warning():
    assert warnings(frame((0.1, {}), (0.4, {"power": 0.01}))) == []


def test_each_way_of_not_being_alone_is_a_sentence():
    found = warnings(frame((0.1, {}), (3.25, {"power": 0.5}), (0.75, {"heat": 0.1, "sm_clock_mhz": 1500})))
    assert len(found) == 4
    assert "other programs had 0.8 to 3.2 cores during the timed passes of 2 of 3 launches" in found[0]
    assert "held back by their power limit" in found[1]
    assert "lumps" in found[1]
    assert "in 1 of 3 launches, for up to about 25 % of a pass" in found[1]
    assert "held back by heat in 1 of 3 launches, for up to about 5 % of a pass" in found[2]
    assert "1500 to 1980 MHz at 1 stream" in found[3]


def test_launches_that_the_machine_slowed_are_named():
    (found,) = warnings(paced([2.0, 2.1, 9.0], [3.0, 3.0, 2.0], [2.5, 2.5, 2.5], [4.0, 4.0, 4.0]))
    assert "took 2.10 ms in the fastest launch" in found
    assert "up to 4.00 ms, in 2 of 4 launches (c l4, c l2):" in found
    assert "pin the processor's clocks" in found
    many = warnings(paced([2.0], *[[5.0]] * 8))
    assert "(c l2, c l3, c l4, c l5, c l6, c l7 and 2 more)" in many[0]


def test_one_slow_pass_of_a_launch_is_no_slow_launch():
    assert warnings(paced([2.0, 2.1, 9.0], [2.5, 2.6, 2.0])) == []


def test_paces_of_two_machines_are_not_compared():
    made = paced([2.0], [4.0], [2.1], [4.1])
    assert warnings(made, [1, 2, 1, 2]) == []
    (found,) = warnings(paced([2.0], [4.0], [2.1], [6.0]), [1, 2, 1, 2])
    assert found.startswith("machine 2 did not keep its pace")
    assert "in 1 of 2 launches (c l4)" in found


def test_launches_of_before_the_pace_was_recorded_are_not_slow():
    assert warnings(paced([None], [2.0], [2.1])) == []
    assert warnings(paced([None]).drop(columns="loop_ms")) == []
    assert len(warnings(paced([None], [2.0], [3.0]))) == 1


def test_the_report_says_what_was_seen():
    assert surroundings.facts(None) == []
    told = dict(surroundings.facts(frame((0.1, {}), (0.3, {}))))
    assert told["cores of other programs, while timed"] == "0.10 to 0.30"
    assert told["GPU clock, MHz, while timed"] == "1980"
    on_cpu = pd.DataFrame([{"cell": "c", "launch": "l1", **row()}])
    assert list(dict(surroundings.facts(on_cpu))) == ["cores of other programs, while timed"]
    assert list(dict(surroundings.facts(on_cpu.drop(columns="loop_ms")))) == list(
        dict(surroundings.facts(on_cpu))
    )
    (said,) = [words for name, words in surroundings.facts(paced([2.0, 3.0], [None, 2.25])) if "pace" in name]
    assert said == "took 2.00 to 3.00 ms, median 2.25"
