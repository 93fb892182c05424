"""The machine's NVIDIA GPUs, asked of the driver's own library; nothing where there is none."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from quietgate import nvml
from quietgate.nvml import Nvml, NvmlError

MIB = 1 << 20


@dataclass(frozen=True)
class Gpu:
    """One GPU as the driver numbers it (PCI bus order)."""

    index: int
    uuid: str
    name: str
    memory_mib: int


def all_gpus() -> tuple[Gpu, ...]:
    """Every GPU the driver shows, whatever CUDA_VISIBLE_DEVICES says; () without a driver."""
    found = []
    try:
        with nvml.opened() as driver:
            for index in range(driver.number("nvmlDeviceGetCount_v2")):
                handle = ctypes.c_void_p()
                driver.call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle))
                found.append(
                    Gpu(
                        index,
                        driver.text("nvmlDeviceGetUUID", handle),
                        driver.text("nvmlDeviceGetName", handle),
                        driver.memory(handle).total // MIB,
                    )
                )
    except NvmlError:
        return ()
    return tuple(found)


# More than any GPU has.
_MOST_LINKS = 32


def nvlink() -> bool | None:
    """Whether every GPU here has an active NVLink; None where there are no two GPUs to link."""
    try:
        with nvml.opened() as driver:
            count = driver.number("nvmlDeviceGetCount_v2")
            return all(_linked(driver, index) for index in range(count)) if count > 1 else None
    except NvmlError:
        return None


def _linked(driver: Nvml, index: int) -> bool:
    handle = ctypes.c_void_p()
    driver.call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle))
    for link in range(_MOST_LINKS):
        try:
            if driver.number("nvmlDeviceGetNvLinkState", handle, ctypes.c_uint(link)):
                return True
        except NvmlError:  # no such link, or none at all on this GPU
            return False
    return False


def driver_version() -> str | None:
    """The NVIDIA driver's version, or None without a driver."""
    try:
        with nvml.opened() as driver:
            return driver.text("nvmlSystemGetDriverVersion")
    except NvmlError:
        return None


def used_mib(uuids: Sequence[str]) -> dict[str, int]:
    """Memory in use on each of these GPUs; NvmlError says why it cannot be told."""
    used = {}
    with nvml.opened() as driver:
        for uuid in uuids:
            used[uuid] = int(driver.memory(driver.by_uuid(uuid)).used // MIB)
    return used
