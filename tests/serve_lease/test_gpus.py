"""The GPUs of a machine and how they reach each other, from a faked driver library."""

import pytest

from quietgate import gpus, nvml
from quietgate.analyse import machines

# Two pairs with NVLink on two processors, and what the rest share.
LEVELS = {frozenset({0, 2}): 50, frozenset({0, 3}): 50, frozenset({1, 2}): 50, frozenset({1, 3}): 40}


class Library:
    """libnvidia-ml.so.1 with four GPUs, whose handles are 1 to 4."""

    def nvmlInit_v2(self):
        return 0

    def nvmlShutdown(self):
        return 0

    def nvmlDeviceGetCount_v2(self, found):
        found._obj.value = 4
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index, handle):
        handle._obj.value = index.value + 1
        return 0

    def nvmlDeviceGetHandleByUUID(self, uuid, handle):
        handle._obj.value = int(uuid.removeprefix(b"GPU-")) + 1
        return 0

    def nvmlDeviceGetUUID(self, handle, buffer, length):
        buffer.value = b"GPU-%d" % (handle.value - 1)
        return 0

    def nvmlDeviceGetName(self, handle, buffer, length):
        buffer.value = b"NVIDIA H200"
        return 0

    def nvmlDeviceGetMemoryInfo(self, handle, memory):
        memory._obj.total = 143771 << 20
        return 0

    def nvmlDeviceGetP2PStatus(self, one, other, capability, found):
        found._obj.value = 0 if capability == 2 and (one.value - 1) // 2 == (other.value - 1) // 2 else 1
        return 0

    def nvmlDeviceGetTopologyCommonAncestor(self, one, other, found):
        found._obj.value = LEVELS[frozenset({one.value - 1, other.value - 1})]
        return 0


@pytest.fixture
def library(monkeypatch):
    monkeypatch.setattr(nvml.ctypes, "CDLL", lambda name: Library())


def links(found):
    return gpus.links([g.uuid for g in found])


def test_gpus_and_their_links(library):
    found = gpus.all_gpus()
    assert [(g.index, g.uuid, g.name, g.memory_mib) for g in found] == [
        (i, f"GPU-{i}", "NVIDIA H200", 143771) for i in range(4)
    ]
    assert links(found)[0] == ("self", "NVLink", "SYS", "SYS")
    assert links(found)[3] == ("SYS", "NODE", "NVLink", "self")
    assert machines.links([{"links": list(row)} for row in links(found)]) == "2 x NVLink, 3 x SYS, 1 x NODE"


def test_a_driver_that_does_not_know_links(library, monkeypatch):
    monkeypatch.delattr(Library, "nvmlDeviceGetP2PStatus")
    monkeypatch.delattr(Library, "nvmlDeviceGetTopologyCommonAncestor")
    found = gpus.all_gpus()
    assert links(found)[1] == ("", "self", "", "")
    assert machines.links([{"links": list(row)} for row in links(found)]) == ""


def test_records_from_before_have_no_links():
    assert machines.links([{"uuid": "GPU-0"}, {"uuid": "GPU-1"}]) == ""


def test_a_lost_gpu_hides_no_other(library, monkeypatch):
    def but_the_second(self, index, handle):
        handle._obj.value = index.value + 1
        return 15 if index.value == 1 else 0

    monkeypatch.setattr(Library, "nvmlDeviceGetHandleByIndex_v2", but_the_second)
    found = gpus.all_gpus()
    assert [(g.index, g.uuid) for g in found] == [(0, "GPU-0"), (2, "GPU-2"), (3, "GPU-3")]
    assert links(found)[0] == ("self", "SYS", "SYS")
