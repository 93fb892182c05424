"""The machine during the timed passes: sums and worst cases over GPUs, and what is worth a warning."""

from types import SimpleNamespace

import pandas as pd
import pytest

from quietgate.analyse import surroundings


def gpu(**changed):
    usual = {"energy_j": 100.0, "power_w": 50.0, "sm_clock_mhz": 1980, "temperature_c": 40}
    held = {"power": changed.pop("power", 0.0), "heat": changed.pop("heat", 0.0)}
    return usual | changed | {"held_back_s": held}


def row(*gpus, tokens_per_s=10.0, others=0.25, stolen=0.05):
    around = {
        "window_s": 2.0, "cores": 16, "server_cores": 1.5, "client_cores": 0.1,
        "other_cores": others, "stolen_cores": stolen, "gpus": list(gpus),
    }  # fmt: skip
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


def test_a_machine_of_its_own_is_no_warning():
    assert surroundings.warnings(frame((0.1, {}), (0.4, {"power": 0.01}))) == []


def test_each_way_of_not_being_alone_is_a_sentence():
    found = surroundings.warnings(
        frame((0.1, {}), (3.25, {"power": 0.5}), (0.75, {"heat": 0.1, "sm_clock_mhz": 1500}))
    )
    assert len(found) == 4
    assert "other programs had 0.8 to 3.2 cores during the timed passes of 2 of 3 launches" in found[0]
    assert "held back by their power limit in 1 of 3 launches, for up to 25 % of a pass" in found[1]
    assert "held back by heat in 1 of 3 launches, for up to 5 % of a pass" in found[2]
    assert "1500 to 1980 MHz at 1 stream" in found[3]


def test_the_report_says_what_was_seen():
    assert surroundings.facts(None) == []
    told = dict(surroundings.facts(frame((0.1, {}), (0.3, {}))))
    assert told["cores of other programs, while timed"] == "0.10 to 0.30"
    assert told["GPU clock, MHz, while timed"] == "1980"
    on_cpu = pd.DataFrame([{"cell": "c", "launch": "l1", **row()}])
    assert list(dict(surroundings.facts(on_cpu))) == ["cores of other programs, while timed"]
