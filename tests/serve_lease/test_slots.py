"""Slots: which there are, whose turn it is, and making room."""

import contextlib
import os
import time

import pytest

from quietgate import gpus, nvml
from quietgate.errors import BadInput
from quietgate.gpus import Gpu
from quietgate.serve import lease, ports, slots, waiting
from quietgate.serve.slots import Slot, discover, try_slot
from quietgate.study import Study
from quietgate.study.plan import study_warnings
from serve_lease.house import release, until

FOUR = tuple(Gpu(i, f"GPU-{'dcba'[i]}", "Test", 1000) for i in range(4))


@pytest.fixture
def four_gpus(monkeypatch):
    monkeypatch.setattr(gpus, "all_gpus", lambda: FOUR)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.parametrize(
    ("visible", "config", "expected"),
    [
        (None, "auto", [("gpu-0-1-2-3", ("GPU-a", "GPU-b", "GPU-c", "GPU-d"), None)]),
        ("1,3", "auto", [("gpu-0-1", ("GPU-a", "GPU-c"), "1,3")]),
        ("GPU-b", "auto", [("gpu-0", ("GPU-b",), "GPU-b")]),
        ("2,9,0", "auto", [("gpu-0", ("GPU-b",), "2")]),
        ("MIG-5", "auto", [("gpu-0", ("MIG-5",), "MIG-5")]),
        ("", "auto", [("cpu", ("cpu",), None)]),
        ("-1", None, [("cpu", ("cpu",), None)]),
        (None, [[1, 0], [2]], [("gpu-1-0", ("GPU-c", "GPU-d"), "1,0"), ("gpu-2", ("GPU-b",), "2")]),
        ("2,3", [[1], [0]], [("gpu-1", ("GPU-a",), "3"), ("gpu-0", ("GPU-b",), "2")]),
        (None, [[], []], [("cpu-0", ("cpu-0",), None), ("cpu-1", ("cpu-1",), None)]),
    ],
)
def test_discover(four_gpus, monkeypatch, visible, config, expected):
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = [(s.name, s.locks, s.env.get("CUDA_VISIBLE_DEVICES")) for s in discover(config)]
    assert found == expected


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ([[0, 4]], r"slots\[0\]: no GPU 4 here; this machine shows 4 GPUs, numbered 0 to 3"),
        ([[0], ["1"]], r"slots\[1\]: no GPU '1' here"),
        ([[True]], r"slots\[0\]: no GPU True here"),
        ([[1, 1]], "a GPU is named twice"),
        ([0, 1], "neither `auto` nor a list of lists"),
        ("all", "neither `auto` nor a list of lists"),
        ([], "neither `auto` nor a list of lists"),
    ],
)
def test_bad_slots(four_gpus, config, message):
    with pytest.raises(BadInput, match=message):
        discover(config)


@pytest.mark.parametrize(("visible", "config"), [(None, "auto"), (None, [[2]]), ("3", "auto")])
def test_numbers_mean_nothing_beside_a_lost_gpu(monkeypatch, visible, config):
    monkeypatch.setattr(gpus, "all_gpus", lambda: (FOUR[0], *FOUR[2:]))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(BadInput, match="GPU 1 of this machine does not answer its driver"):
        discover(config)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b")
    assert discover([[1]])[0].locks == ("GPU-b",)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert discover() == (Slot("cpu", ("cpu",), {}),)


def test_a_machine_without_a_driver():
    assert isinstance(gpus.all_gpus(), tuple)
    if not gpus.all_gpus():
        assert gpus.driver_version() is None
        with pytest.raises(nvml.NvmlError):
            gpus.used_mib(["GPU-x"])


class Driver:
    """NVML's answers about links: for each GPU, whether each of its links is active."""

    def __init__(self, *links):
        self.links, self.asked = links, None

    def by_index(self, index):
        self.asked = index

    def number(self, name, *arguments):
        if name == "nvmlDeviceGetCount_v2":
            return len(self.links)
        assert name == "nvmlDeviceGetNvLinkState"
        link = arguments[1].value
        if link >= len(self.links[self.asked]):
            raise nvml.NvmlError("no such link")
        return self.links[self.asked][link]


@pytest.mark.parametrize(
    ("links", "found"),
    [
        (([1],), None),
        (([1, 1], [1, 1]), True),
        (([0, 1], [0, 0, 1]), True),
        (([1, 1], [0, 0]), False),
        (([], []), False),
    ],
)
def test_nvlink_is_what_every_gpu_has(monkeypatch, links, found):
    monkeypatch.setattr(nvml, "opened", lambda: contextlib.nullcontext(Driver(*links)))
    assert gpus.nvlink() is found


def test_ll128_is_warned_of_where_there_is_no_nvlink(monkeypatch):
    config = {
        "study": "s",
        "server": {"python": "python3", "args": {"model-path": "m/x", "tp-size": 2}},
        "grid": {"steps": [0], "nccl": ["p"]},
        "nccl_profiles": {"p": {"set": {"NCCL_PROTO": "LL128"}}},
    }
    told = {}
    for linked in (True, False, None):
        monkeypatch.setattr(gpus, "nvlink", lambda linked=linked: linked)
        told[linked] = [n for n in study_warnings(Study.from_config(config)) if "corrupt" in n]
    assert told[True] == []
    assert "here, without NVLink," in told[False][0]
    assert "on GPUs without NVLink" in told[None][0]


def test_folder_that_cannot_be_made(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("QUIETGATE_SLOT_DIR", str(tmp_path / "file" / "slots"))
    with pytest.raises(BadInput, match="QUIETGATE_SLOT_DIR"):
        slots.folder()


def test_folder_is_open_to_every_user(tmp_path, monkeypatch):
    monkeypatch.setenv("QUIETGATE_SLOT_DIR", str(tmp_path / "slots"))
    where = slots.folder()
    assert where.stat().st_mode & 0o7777 == 0o1777
    [lock] = try_slot(where, Slot("cpu", ("cpu",), {}))
    assert lock.path.stat().st_mode & 0o777 == 0o666
    lock.release()


def test_all_locks_or_none(tmp_path):
    both, one, other = (Slot("x", keys, {}) for keys in (("b", "a"), ("b",), ("a",)))
    held = try_slot(tmp_path, one)
    assert try_slot(tmp_path, both) is None
    free = try_slot(tmp_path, other)  # the failed attempt let go of it
    assert free is not None
    for lock in [*held, *free]:
        lock.release()
    for lock in try_slot(tmp_path, both):
        lock.release()


def test_turns_are_first_come_first_served(tmp_path):
    (tmp_path / "waiting").mkdir()
    wide, narrow, apart = (Slot("x", keys, {}) for keys in (("a", "b"), ("a",), ("c",)))
    first = waiting.Ticket(tmp_path, "first", [wide])
    time.sleep(0.002)
    second = waiting.Ticket(tmp_path, "second", [narrow, apart])
    assert first.may_take(wide)
    assert not second.may_take(narrow)
    assert second.may_take(apart)
    assert waiting.contended(tmp_path, ["b"])
    stale = time.time() - 2 * waiting.FRESH_S
    os.utime(tmp_path / "waiting" / "first.json", (stale, stale))
    assert second.may_take(narrow)
    assert not waiting.contended(tmp_path, ["b"])
    second.leave()
    first.leave()
    assert not waiting.contended(tmp_path, ["a", "b", "c"])


def test_ports_are_free_and_not_given_twice(tmp_path):
    given = ports.pick(tmp_path, 5) + ports.pick(tmp_path, 5)
    assert len(set(given)) == 10
    assert all(ports.free(port) and not ports.holder(port) for port in given)
    [base] = ports.pick(tmp_path, neighbours=8)
    later = ports.pick(tmp_path, 20)
    assert not set(range(base, base + 9)) & set(later)


@pytest.mark.process
def test_second_launch_waits_for_the_slot(house):
    first, second = house.spec(cell="a"), house.spec(cell="b")
    one = lease.start(first)
    job = house.job(second, "start")
    until(lambda: list((house.slot_dir / "waiting").glob("*.json")))
    time.sleep(0.2)
    assert job.lines() == []
    release(first)
    job.said("started")
    ended = house.exit(first)
    assert ended["instance"] == one.instance
    assert lease.live(second) is not None
    assert house.lease_of(second)["started_at"] > one.started_at
    release(second)


@pytest.mark.process
def test_a_waiting_launch_says_so(house, monkeypatch):
    monkeypatch.setattr(lease, "WAITING_TOLD_AFTER_S", 0.1)
    first = house.spec(cell="a", idle_contended_s=0.5)
    lease.start(first)
    said = []
    second = house.spec(cell="b")
    lease.start(second, said.append)
    assert said == [f"waiting for a free slot of cpu (in use by cpu: {first.live_dir})"]
    release(second)


@pytest.mark.process
def test_idle_server_makes_room(house):
    """A launch that waits behind a server whose next job never comes is no deadlock."""
    first = house.spec(cell="a", idle_contended_s=0.3)
    lease.start(first)
    with lease.hold(lease.live(first), "gate"):
        job = house.job(house.spec(cell="b"), "start")
        until(lambda: list((house.slot_dir / "waiting").glob("*.json")))
        time.sleep(0.5)
        assert house.exits(first) == []  # in use
    job.said("started")
    assert "while another launch waited for its slot" in house.exit(first)["reason"]
    release(house.spec(cell="b"))


@pytest.mark.process
def test_two_slots_run_two_servers(house):
    two = (Slot("a", ("a",), {"SLOT": "a"}), Slot("b", ("b",), {"SLOT": "b"}))
    first, second = (house.spec(cell=c, slots=two) for c in "xy")
    one, other = lease.start(first), lease.start(second)
    assert {one.slot, other.slot} == {"a", "b"}
    assert {house.up(one)["env"]["SLOT"], house.up(other)["env"]["SLOT"]} == {"a", "b"}
    assert one.port != other.port
    release(first)
    assert lease.live(second) == other
    release(second)


@pytest.mark.process
def test_two_studies_share_a_gpu(house):
    """One needs two GPUs, the other one of them: never both at once, and no deadlock."""
    wide = house.spec(cell="a", slots=(Slot("ab", ("a", "b"), {}),))
    narrow = house.spec(cell="b", slots=(Slot("b", ("b",), {}),))
    for _ in range(2):
        lease.start(wide)
        job = house.job(narrow, "start")
        until(lambda: list((house.slot_dir / "waiting").glob("*.json")))
        release(wide)
        job.said("started")
        waiter = house.job(wide, "start")
        until(lambda: list((house.slot_dir / "waiting").glob("*.json")))
        release(narrow)
        waiter.said("started")
        release(wide)
