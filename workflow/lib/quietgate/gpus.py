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
    """One GPU as the driver numbers it (PCI bus order)."""

    index: int
    uuid: str
    name: str
    memory_mib: int


def all_gpus() -> tuple[Gpu, ...]:
    """Every GPU the driver shows, whatever CUDA_VISIBLE_DEVICES says; () without a driver."""
    try:
        with nvml.opened() as driver:
            return tuple(_answering(driver))
    except NvmlError:
        return ()


def _answering(driver: Nvml) -> Iterator[Gpu]:
    """The GPUs that answer: one that is lost hides no other."""
    for index in range(driver.number("nvmlDeviceGetCount_v2")):
        with contextlib.suppress(NvmlError):
            handle = driver.by_index(index)
            yield Gpu(
                index,
                driver.text("nvmlDeviceGetUUID", handle),
                driver.text("nvmlDeviceGetName", handle),
                driver.memory(handle).total // MIB,
            )


def links(uuids: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """How each of these GPUs reaches each of them, in their order.

    "self", "NVLink", or what they share on the way ("PIX" a PCIe switch to "SYS" the link between
    processors); "" where the driver does not tell.
    """
    try:
        with nvml.opened() as driver:
            handles = [driver.by_uuid(uuid) for uuid in uuids]
            return tuple(
                tuple("self" if other is one else _link(driver, one, other) for other in handles)
                for one in handles
            )
    except NvmlError:
        return tuple(("",) * len(uuids) for _ in uuids)


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
