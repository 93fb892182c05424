"""The machine's NVIDIA GPUs, asked of the driver's own library; nothing where there is none."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from quietgate import nvml
from quietgate.nvml import Nvml, NvmlError

MIB = 1 << 20


# What two GPUs share at the nearest, as `nvidia-smi topo -m` names it (nvmlGpuTopologyLevel_t).
_ANCESTORS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_NVLINK = 2  # of nvmlGpuP2PCapsIndex_t


@dataclass(frozen=True)
class Gpu:
    """One GPU as the driver numbers it (PCI bus order).

    Attributes:
        links: how it reaches each GPU of the machine, in their order: "self", "NVLink", or what they share
            on the way ("PIX" a PCIe switch to "SYS" the link between processors); "" where the driver does
            not tell.
    """

    index: int
    uuid: str
    name: str
    memory_mib: int
    links: tuple[str, ...] = ()


def all_gpus() -> tuple[Gpu, ...]:
    """Every GPU the driver shows, whatever CUDA_VISIBLE_DEVICES says; () without a driver."""
    try:
        with nvml.opened() as driver:
            told = list(_told(driver))
            return tuple(
                Gpu(
                    *gpu,
                    tuple("self" if other is handle else _link(driver, handle, other) for other, _ in told),
                )
                for handle, gpu in told
            )
    except NvmlError:
        return ()


def _told(driver: Nvml) -> Iterator[tuple[ctypes.c_void_p, tuple[int, str, str, int]]]:
    """Handle, and index, UUID, name and memory in MiB, of each GPU: one that is lost hides no other."""
    for index in range(driver.number("nvmlDeviceGetCount_v2")):
        with contextlib.suppress(NvmlError):
            handle = driver.by_index(index)
            yield (
                handle,
                (
                    index,
                    driver.text("nvmlDeviceGetUUID", handle),
                    driver.text("nvmlDeviceGetName", handle),
                    driver.memory(handle).total // MIB,
                ),
            )


def _link(driver: Nvml, one: ctypes.c_void_p, other: ctypes.c_void_p) -> str:
    with contextlib.suppress(NvmlError):
        if driver.number("nvmlDeviceGetP2PStatus", one, other, _NVLINK) == 0:
            return "NVLink"
    with contextlib.suppress(NvmlError):
        return _ANCESTORS.get(driver.number("nvmlDeviceGetTopologyCommonAncestor", one, other), "")
    return ""


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
    handle = driver.by_index(index)
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
