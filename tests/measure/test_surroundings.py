"""Who used the cores during a pass, and what the driver says of the GPUs (its functions are faked)."""

import ctypes
import os
import subprocess
import sys
import time

import pytest

from quietgate import nvml
from quietgate.measure import surroundings

SPIN = "import time\nend = time.monotonic() + 20\nwhile time.monotonic() < end: pass"


class Driver:
    """libnvidia-ml.so.1: each function writes through its last argument and returns NVML's status."""

    def __init__(self):
        self.energy_mj, self.held_ns, self.refused = 5_000, {0: 10**9, 1: 0}, set()

    def nvmlInit_v2(self):
        return 0

    def nvmlShutdown(self):
        return 0

    def nvmlDeviceGetHandleByUUID(self, uuid, handle):
        handle._obj.value = 7
        return 0 if uuid == b"GPU-a" else 6

    def nvmlDeviceGetTotalEnergyConsumption(self, handle, found):
        assert isinstance(found._obj, ctypes.c_ulonglong)
        found._obj.value = self.energy_mj
        return 0

    def nvmlDeviceGetEnforcedPowerLimit(self, handle, found):
        found._obj.value = 700_000
        return 0

    def nvmlDeviceGetClockInfo(self, handle, clock, found):
        found._obj.value = {1: 1755}[clock]
        return 3 if "clock" in self.refused else 0

    def nvmlDeviceGetMaxClockInfo(self, handle, clock, found):
        found._obj.value = {1: 1980}[clock]
        return 0

    def nvmlDeviceGetTemperature(self, handle, sensor, found):
        found._obj.value = {0: 61}[sensor]
        return 0

    def nvmlDeviceGetViolationStatus(self, handle, policy, found):
        found._obj.reference_us, found._obj.violation_ns = 1, self.held_ns[policy]
        return 0


@pytest.fixture
def driver(monkeypatch):
    made = Driver()
    monkeypatch.setattr(nvml.ctypes, "CDLL", lambda name: made)
    return made


def between(before, after, client_cpu_s=0.0):
    return surroundings.between(before, after, client_cpu_s, (2.0, 2.5))


def gpu_of(entry):
    assert entry["why"] is None
    return entry["gpus"][0]


def test_energy_power_clock_and_time_held_back(driver):
    before = surroundings.reading([], ["GPU-a"])
    driver.energy_mj, driver.held_ns = 65_000, {0: 3 * 10**9, 1: 0}
    after = surroundings.reading([], ["GPU-a"])
    entry = between(before, after)
    assert gpu_of(entry) == {
        "uuid": "GPU-a",
        "energy_j": 60.0,
        "power_w": pytest.approx(60.0 / entry["window_s"]),
        "power_limit_w": 700.0,
        "sm_clock_mhz": 1755,
        "sm_clock_most_mhz": 1980,
        "temperature_c": 61,
        "held_back_s": {"power": 2.0, "heat": 0.0},
    }


def test_what_a_card_does_not_tell_is_null(driver, monkeypatch):
    before = surroundings.reading([], ["GPU-a"])
    driver.refused.add("clock")
    driver.energy_mj = 100  # the counter began anew
    monkeypatch.delattr(Driver, "nvmlDeviceGetTemperature")  # an older driver
    gpu = gpu_of(between(before, surroundings.reading([], ["GPU-a"])))
    unknown = {name for name, value in gpu.items() if value is None}
    assert unknown == {"sm_clock_mhz", "energy_j", "power_w", "temperature_c"}
    assert gpu["held_back_s"] == {"power": 0.0, "heat": 0.0}


def test_no_gpu_and_no_driver_say_why(driver, monkeypatch):
    none = between(surroundings.reading([], []), surroundings.reading([], []))
    assert (none["gpus"], none["why"]) == ([], "no GPU in this slot")
    assert none["loop_ms"] == {"before": 2.0, "after": 2.5}
    unknown = surroundings.reading([], ["GPU-b"])
    assert (unknown.gpus, unknown.why) == ({}, "nvmlDeviceGetHandleByUUID: NVML error 6")

    def missing(name):
        raise OSError

    monkeypatch.setattr(nvml.ctypes, "CDLL", missing)
    assert "libnvidia-ml" in surroundings.reading([], ["GPU-a"]).why


@pytest.mark.process
def test_the_servers_cores_are_told_from_those_of_others():
    # The launched process is a shell; its child, which computes, is the server too.
    server = subprocess.Popen(["sh", "-c", f"{sys.executable} -c '{SPIN}'; true"], start_new_session=True)
    try:
        time.sleep(0.3)
        before = surroundings.reading([server.pid], [])
        own = time.process_time()
        time.sleep(1.0)
        entry = between(before, surroundings.reading([server.pid], []), time.process_time() - own)
        alone = between(before, surroundings.reading([], []))
    finally:
        os.killpg(server.pid, 9)
        server.wait()
    assert entry["cores"] == os.cpu_count()
    # A busy machine may give it less than a whole core, but never more.
    assert 0.1 < entry["server_cores"] < 1.3
    assert entry["client_cores"] < 0.5
    # What is not known to be the server's is other programs'.
    assert alone["server_cores"] == 0.0
    assert alone["other_cores"] >= entry["other_cores"]
    assert alone["other_cores"] > 0.1


FORKS = """
import os, sys, time
child = os.fork()
if child == 0:
    sys.stdin.readline()
    while time.process_time() < 0.5: pass
    print("spun", flush=True)
    sys.stdin.readline()
    os._exit(0)
os.waitpid(child, 0)
print("ended", flush=True)
time.sleep(20)
"""


@pytest.mark.process
def test_a_process_that_ends_during_the_pass_was_the_servers():
    server = subprocess.Popen(
        [sys.executable, "-c", FORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    try:
        at_first = surroundings.reading([server.pid], [])
        server.stdin.write("\n")
        assert server.stdout.readline() == "spun\n"
        spun = surroundings.reading([server.pid], [])
        server.stdin.write("\n")
        assert server.stdout.readline() == "ended\n"
        ended = surroundings.reading([server.pid], [])
    finally:
        server.kill()
        server.wait()
    whole = between(at_first, ended)
    assert 0.4 < whole["server_cores"] * whole["window_s"] < 0.7
    # What it had used before the pass is no part of it.
    late = between(spun, ended)
    assert late["server_cores"] * late["window_s"] < 0.2
