"""The driver's own library (NVML), bound with ctypes: the few questions that are asked of it."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator

# The C types of the numbers that NVML writes.
Number = type[ctypes.c_uint] | type[ctypes.c_ulonglong]


class _Memory(ctypes.Structure):
    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


class NvmlError(Exception):
    """The driver's library is missing or refused a question."""


class Nvml:
    """The library, while `opened`. Every question may raise NvmlError."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            raise NvmlError("no NVIDIA driver library (libnvidia-ml.so.1)") from None

    def call(self, name: str, *arguments: object) -> None:
        """Call a function by name; NvmlError where the driver lacks it or it answers with an error."""
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise NvmlError(f"{name}: this driver has no such function") from None
        status = function(*arguments)
        if status:
            raise NvmlError(f"{name}: NVML error {status}")

    def number(self, name: str, *arguments: object, kind: Number = ctypes.c_uint) -> int:
        """What a function writes to its last argument, a number of the C type `kind`."""
        found = kind()
        self.call(name, *arguments, ctypes.byref(found))
        return int(found.value)

    def by_index(self, index: int) -> ctypes.c_void_p:
        """The handle of a GPU, by its place in PCI bus order."""
        handle = ctypes.c_void_p()
        self.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
        return handle

    def by_uuid(self, uuid: str) -> ctypes.c_void_p:
        """The handle of a GPU (or MIG device)."""
        handle = ctypes.c_void_p()
        self.call("nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(handle))
        return handle

    def text(self, name: str, *arguments: object) -> str:
        """What a function writes to its last two arguments, a buffer and its length."""
        buffer = ctypes.create_string_buffer(256)
        self.call(name, *arguments, buffer, ctypes.c_uint(len(buffer)))
        return buffer.value.decode(errors="replace")

    def memory(self, handle: ctypes.c_void_p) -> _Memory:
        """Total, free and used bytes of a GPU."""
        memory = _Memory()
        self.call("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
        return memory


@contextlib.contextmanager
def opened() -> Iterator[Nvml]:
    """NVML for a moment only: kept open it would hold the driver loaded between launches."""
    nvml = Nvml()
    nvml.call("nvmlInit_v2")
    try:
        yield nvml
    finally:
        with contextlib.suppress(NvmlError):
            nvml.call("nvmlShutdown")
