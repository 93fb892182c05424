"""Whoever is killed, at whatever moment, the server's processes do not survive it."""

import os
import signal
import time

import pytest

from quietgate.errors import CellFailed, Interrupted
from quietgate.files import read_json
from quietgate.serve import lease
from quietgate.serve.locks import try_lock
from quietgate.serve.processes import Identity
from serve_lease.house import PATIENCE_S, kill, release, until

pytestmark = pytest.mark.process


def supervisors(house, spec):
    return [Identity.from_json(s).pid for s in house.lease_of(spec)["supervisors"]]


@pytest.mark.parametrize(
    ("victims", "reason", "options"),
    [
        ("guardian", "the guardian was killed", ("--fork",)),
        ("guardian", "the guardian was killed", ("--ignore-term", "--stray")),
        ("supervisor", "the supervisor ended unexpectedly, killed by SIGKILL", ("--fork",)),
        (
            "supervisor",
            "the supervisor ended unexpectedly, killed by SIGKILL",
            ("--ignore-term", "--stray"),
        ),
        ("both", "both supervisors of the server were killed", ("--fork",)),
        ("both", "both supervisors of the server were killed", ("--escape",)),
        ("server", "the server ended by itself, killed by SIGKILL", ("--fork",)),
        ("server", "the server ended by itself, killed by SIGKILL", ("--stray",)),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, tuple) else None,
)
def test_killed_under_a_consumer(house, victims, reason, options):
    options = [w for o in options for w in ((o, house.tag) if o in ("--stray", "--escape") else (o,))]
    spec = house.spec(*options, grace_s=0.3)
    server = lease.start(spec)
    house.up(server)
    consumer = house.job(spec, "hold", "sleep")
    consumer.said("holding")
    guardian, supervisor = supervisors(house, spec)
    kill(
        *{"guardian": [guardian], "supervisor": [supervisor], "server": server.pids}.get(
            victims, [guardian, supervisor]
        )
    )
    begun = time.monotonic()
    assert consumer.said("raised") == "CellFailed"
    assert time.monotonic() - begun < PATIENCE_S
    assert consumer.lines()[-1]["reason"].endswith(reason)
    assert consumer.wait() == 3
    until(lambda: not house.alive())
    ended = release(spec)
    assert ended["reason"] == reason
    assert ended["left"] == []
    assert lease.live(spec) is None


def test_both_supervisors_killed_with_nobody_there(house):
    """The next launch in the slot, of another cell, ends what the first left, then starts."""
    first = house.spec("--escape", house.tag, cell="a")
    house.up(lease.start(first))
    kill(*supervisors(house, first))
    until(lambda: len(house.alive()) == 1, why="only the escaped process is left")
    second = house.spec(cell="b")
    house.up(lease.start(second))
    assert not [line for line in house.alive() if "--linger" in line]
    release(second)
    assert release(first)["forced"] is True


def test_owner_killed(house):
    owner = house.owner()
    spec = house.spec("--ignore-term", grace_s=0.2)
    consumer = house.job(spec, "hold", "recv", owner=owner)
    consumer.said("holding")
    owner.kill()
    assert consumer.said("raised") == "Interrupted"
    assert consumer.wait() == 4
    ended = house.exit(spec)
    assert (ended["reason"], ended["interrupted"]) == ("owner gone", True)
    until(lambda: not house.alive())


def test_consumer_killed(house):
    spec = house.spec("--fork")
    consumer = house.job(spec, "hold", "sleep")
    consumer.said("holding")
    consumer.kill()
    assert house.exit(spec)["reason"] == "consumer benchmark vanished"


def test_consumer_that_fails(house):
    spec = house.spec()
    server = lease.start(spec)
    with pytest.raises(ZeroDivisionError), lease.hold(server, "benchmark"):
        raise ZeroDivisionError("a bug")
    ended = house.exit(spec)
    assert ended["reason"] == "benchmark failed: a bug"
    assert house.alive() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_consumer_told_to_stop(house, number):
    spec = house.spec()
    consumer = house.job(spec, "hold", "sleep")
    consumer.said("holding")
    consumer.send_signal(number)
    assert consumer.said("raised") == "Interrupted"
    assert consumer.wait() == 4
    ended = house.exit(spec)
    assert ended["interrupted"] is True
    assert f"told to stop by {signal.Signals(number).name}" in ended["reason"]
    assert house.alive() == []


@pytest.mark.parametrize("victim", ["guardian", "supervisor"])
def test_supervisor_told_to_stop(house, victim):
    """A batch system's cancel reaches every process: to the consumer that is no failure."""
    spec = house.spec()
    lease.start(spec)
    consumer = house.job(spec, "hold", "sleep")
    consumer.said("holding")
    os.kill(supervisors(house, spec)[victim == "supervisor"], signal.SIGTERM)
    assert consumer.said("raised") == "Interrupted"
    assert "stopped by SIGTERM" in house.exit(spec)["reason"]


def busy_slot(house):
    """The one slot's lock, held by this test as another study's supervisor would."""
    house.slot_dir.mkdir(exist_ok=True)
    lock = try_lock(house.slot_dir / "cpu.lock")
    assert lock is not None
    return lock


@pytest.mark.parametrize("how", ["SIGKILL", "SIGTERM", "SIGINT", "owner", "supervisor"])
def test_stopped_while_waiting_for_the_slot(house, how):
    lock = busy_slot(house)
    owner = house.owner()
    spec = house.spec()
    job = house.job(spec, "start", owner=owner)
    waiting = house.slot_dir / "waiting"
    until(lambda: waiting.is_dir() and list(waiting.glob("*.json")))
    if how == "owner":
        owner.kill()
    elif how == "supervisor":
        [line] = [line for line in house.alive() if "quietgate.serve.supervisor" in line]
        kill(int(line.split()[0]))
    else:
        job.send_signal(signal.Signals[how])
    assert job.wait(PATIENCE_S) == {"SIGKILL": -9, "supervisor": 3}.get(how, 4)
    until(lambda: not [line for line in house.alive() if "quietgate.serve.supervisor" in line])
    assert not spec.instances_dir.exists()
    assert how == "supervisor" or not list(waiting.glob("*.json"))
    lock.release()


def test_waiting_in_vain(house):
    lock = busy_slot(house)
    with pytest.raises(CellFailed) as caught:
        lease.start(house.spec(slot_timeout_s=0.3))
    assert caught.value.failure_class == "slot_timeout"
    assert "waited 0.3 s in vain for a free slot" in caught.value.reason
    lock.release()


def test_job_killed_right_after_launching(house):
    """Nobody holds the server, but the owner lives: the repeated job finds it and uses it."""
    spec = house.spec()
    job = house.job(spec, "start")
    job.said("started")
    job.kill()
    assert lease.live(spec) is not None
    release(spec)


def test_orphan_cannot_start(house, monkeypatch):
    owner = house.owner()
    monkeypatch.setenv("QUIETGATE_OWNER", owner.variable)
    owner.kill()
    owner.wait()
    with pytest.raises(Interrupted, match="gone"):
        lease.start(house.spec())
    until(lambda: not house.alive())
    assert read_json(house.spec().live_dir / "lease.json") is None
