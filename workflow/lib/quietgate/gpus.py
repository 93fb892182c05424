"""The machine's NVIDIA GPUs, asked of the driver's own library (NVML); nothing where there is none."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True)
class Gpu:
    """One GPU as the driver numbers it (PCI bus order)."""

    index: int
    uuid: str
    name: str
    memory_mib: int


class _Memory(ctypes.Structure):
    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


class NvmlError(Exception):
    """The driver's library is missing or refused a question."""


class _Nvml:
    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            raise NvmlError("no NVIDIA driver library (libnvidia-ml.so.1)") from None

    def call(self, name: str, *arguments: object) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            raise NvmlError(f"{name}: NVML error {status}")

    def text(self, name: str, *arguments: object) -> str:
        buffer = ctypes.create_string_buffer(256)
        self.call(name, *arguments, buffer, ctypes.c_uint(len(buffer)))
        return buffer.value.decode(errors="replace")

    def memory(self, handle: ctypes.c_void_p) -> _Memory:
        memory = _Memory()
        self.call("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
        return memory


@contextlib.contextmanager
def _nvml() -> Iterator[_Nvml]:
    """NVML for a moment only: kept open it would hold the driver loaded between launches."""
    nvml = _Nvml()
    nvml.call("nvmlInit_v2")
    try:
        yield nvml
    finally:
        with contextlib.suppress(NvmlError):
            nvml.call("nvmlShutdown")


def all_gpus() -> tuple[Gpu, ...]:
    """Every GPU the driver shows, whatever CUDA_VISIBLE_DEVICES says; () without a driver."""
    found = []
    try:
        with _nvml() as nvml:
            count = ctypes.c_uint()
            nvml.call("nvmlDeviceGetCount_v2", ctypes.byref(count))
            for index in range(count.value):
                handle = ctypes.c_void_p()
                nvml.call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle))
                found.append(
                    Gpu(
                        index,
                        nvml.text("nvmlDeviceGetUUID", handle),
                        nvml.text("nvmlDeviceGetName", handle),
                        nvml.memory(handle).total // MIB,
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
        with _nvml() as nvml:
            count = ctypes.c_uint()
            nvml.call("nvmlDeviceGetCount_v2", ctypes.byref(count))
            if count.value < 2:
                return None
            return all(_linked(nvml, index) for index in range(count.value))
    except NvmlError:
        return None


def _linked(nvml: _Nvml, index: int) -> bool:
    handle, active = ctypes.c_void_p(), ctypes.c_uint()
    nvml.call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle))
    for link in range(_MOST_LINKS):
        try:
            nvml.call("nvmlDeviceGetNvLinkState", handle, ctypes.c_uint(link), ctypes.byref(active))
        except NvmlError:  # no such link, or none at all on this GPU
            return False
        if active.value:
            return True
    return False


def driver_version() -> str | None:
    """The NVIDIA driver's version, or None without a driver."""
    try:
        with _nvml() as nvml:
            return nvml.text("nvmlSystemGetDriverVersion")
    except NvmlError:
        return None


def used_mib(uuids: Sequence[str]) -> dict[str, int]:
    """Memory in use on each of these GPUs; NvmlError says why it cannot be told."""
    used = {}
    with _nvml() as nvml:
        for uuid in uuids:
            handle = ctypes.c_void_p()
            nvml.call("nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(handle))
            used[uuid] = int(nvml.memory(handle).used // MIB)
    return used
