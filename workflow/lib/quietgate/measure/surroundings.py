"""What the machine did while a pass was timed: who used its cores, and what held its GPUs back.

Two readings of the kernel's and the driver's own counters, before the pass and after it, and outside these
the machine's pace (`pace`); nothing runs in between that could disturb the pass. No number of a pass is
corrected by them: they are what a reader needs to trust it. What a machine does not tell is null, with the
reason beside it.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quietgate import nvml
from quietgate.nvml import Nvml, NvmlError
from quietgate.serve import processes

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Of nvmlClockType_t, nvmlTemperatureSensors_t and nvmlPerfPolicyType_t (NVML API reference).
_SM_CLOCK, _GPU_SENSOR = 1, 0
_HELD_BACK_BY = {"power": 0, "heat": 1}


class _Violation(ctypes.Structure):
    """nvmlViolationTime_t: the host's clock in microseconds, time held back in nanoseconds.

    The time moves in lumps: of 0.25 to 0.36 s in passes of 1 to 2 s on H200 (driver 580.159).
    """

    _fields_ = (("reference_us", ctypes.c_ulonglong), ("violation_ns", ctypes.c_ulonglong))


@dataclass(frozen=True)
class Cores:
    """Seconds of processor time: of the whole machine since boot, and of the server's processes."""

    busy_s: float
    stolen_s: float
    server_s: float


@dataclass(frozen=True)
class Gpu:
    """One GPU's counters, and its state at this moment; None is what it does not tell."""

    energy_j: float | None
    held_back_s: dict[str, float | None]
    sm_clock_mhz: int | None
    sm_clock_most_mhz: int | None
    power_limit_w: float | None
    temperature_c: int | None


@dataclass(frozen=True)
class Reading:
    """All of it at one moment (`at_s`: monotonic clock)."""

    at_s: float
    cores: Cores | None
    gpus: dict[str, Gpu]
    why: str | None = None


def reading(roots: Iterable[int], uuids: Sequence[str]) -> Reading:
    """Read the counters now.

    Args:
        roots: pids of the server's launched processes; their descendants are the server too.
        uuids: the server's GPUs, or none.
    """
    gpus, why = _gpus(uuids)
    return Reading(time.monotonic(), _cores(roots), gpus, why)


def between(
    before: Reading, after: Reading, client_cpu_s: float, loop_ms: tuple[float | None, float | None]
) -> dict[str, Any]:
    """The entry `surroundings` of a pass, from a reading before it and one after it.

    `*_cores` are mean numbers of cores in use; `other_cores` those of neither server nor client. Energy and
    time held back are of the window, power is its mean; clock, limit and temperature are those at its end.

    Args:
        loop_ms: what `pace.loop_ms` gave before the first reading and after the second, so that its own
            processor time is nobody's.
    """
    window_s = after.at_s - before.at_s
    entry: dict[str, Any] = {"window_s": window_s, "cores": os.cpu_count()}
    entry |= dict.fromkeys(("server_cores", "client_cores", "other_cores", "stolen_cores"))
    if before.cores and after.cores and window_s > 0:
        # Less only where a process left the server's tree, and so is one of the others.
        server_s = max(0.0, after.cores.server_s - before.cores.server_s)
        other_s = after.cores.busy_s - before.cores.busy_s - server_s - client_cpu_s
        entry["server_cores"] = server_s / window_s
        entry["client_cores"] = client_cpu_s / window_s
        entry["other_cores"] = max(0.0, other_s / window_s)
        entry["stolen_cores"] = (after.cores.stolen_s - before.cores.stolen_s) / window_s
    entry["gpus"] = [
        {"uuid": uuid} | _gpu_between(gpu, after.gpus[uuid], window_s)
        for uuid, gpu in before.gpus.items()
        if uuid in after.gpus
    ]
    entry["loop_ms"] = dict(zip(("before", "after"), loop_ms, strict=True))
    entry["why"] = before.why or after.why
    return entry


def _gpu_between(before: Gpu, after: Gpu, window_s: float) -> dict[str, Any]:
    energy = _grown(before.energy_j, after.energy_j)
    return {
        "energy_j": energy,
        "power_w": energy / window_s if energy is not None and window_s > 0 else None,
        "power_limit_w": after.power_limit_w,
        "sm_clock_mhz": after.sm_clock_mhz,
        "sm_clock_most_mhz": after.sm_clock_most_mhz,
        "temperature_c": after.temperature_c,
        "held_back_s": {by: _grown(before.held_back_s[by], after.held_back_s[by]) for by in _HELD_BACK_BY},
    }


def _grown(before: float | None, after: float | None) -> float | None:
    """What a counter grew by; None where it is unknown or was reset."""
    return None if before is None or after is None or after < before else after - before


def _cores(roots: Iterable[int]) -> Cores | None:
    """From /proc/stat (proc(5): user nice system idle iowait irq softirq steal), in clock ticks."""
    try:
        first = Path("/proc/stat").read_text().split("\n", 1)[0].split()
        user, nice, system, _, _, irq, softirq, steal = (int(x) / _TICKS_PER_S for x in first[1:9])
    except (OSError, ValueError):
        return None
    pids = {pid for root in roots for pid in (root, *(d.pid for d in processes.descendants(root)))}
    return Cores(user + nice + system + irq + softirq, steal, sum(map(_used_s, pids)))


def _used_s(pid: int) -> float:
    """A process's processor time: of all its threads, and of its children that ended and were waited for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rsplit(b")", 1)[1].split()
        return sum(map(int, fields[11:15])) / _TICKS_PER_S
    except (OSError, IndexError, ValueError):
        return 0.0


def _gpus(uuids: Sequence[str]) -> tuple[dict[str, Gpu], str | None]:
    if not uuids:
        return {}, "no GPU in this slot"
    try:
        with nvml.opened() as driver:
            return {uuid: _gpu(driver, driver.by_uuid(uuid)) for uuid in uuids}, None
    except NvmlError as e:
        return {}, str(e)


def _gpu(driver: Nvml, handle: ctypes.c_void_p) -> Gpu:
    def asked(name: str, *arguments: object, kind: nvml.Number = ctypes.c_uint) -> int | None:
        try:
            return driver.number(name, handle, *arguments, kind=kind)
        except NvmlError:  # not every card has every counter
            return None

    energy_mj = asked("nvmlDeviceGetTotalEnergyConsumption", kind=ctypes.c_ulonglong)
    limit_mw = asked("nvmlDeviceGetEnforcedPowerLimit")
    return Gpu(
        energy_j=None if energy_mj is None else energy_mj / 1e3,
        held_back_s={by: _held_back_s(driver, handle, policy) for by, policy in _HELD_BACK_BY.items()},
        sm_clock_mhz=asked("nvmlDeviceGetClockInfo", _SM_CLOCK),
        sm_clock_most_mhz=asked("nvmlDeviceGetMaxClockInfo", _SM_CLOCK),
        power_limit_w=None if limit_mw is None else limit_mw / 1e3,
        temperature_c=asked("nvmlDeviceGetTemperature", _GPU_SENSOR),
    )


def _held_back_s(driver: Nvml, handle: ctypes.c_void_p, policy: int) -> float | None:
    found = _Violation()
    try:
        driver.call("nvmlDeviceGetViolationStatus", handle, policy, ctypes.byref(found))
    except NvmlError:
        return None
    return float(found.violation_ns) / 1e9
