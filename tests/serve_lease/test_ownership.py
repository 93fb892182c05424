"""Who may do what: owners, orphans, the study's lock, and what killed runs left behind."""

import json
import os
import shutil

import pytest

from quietgate.errors import BadInput
from quietgate.serve import lease, ownership, processes
from quietgate.serve.processes import Identity
from quietgate.serve.state import State
from serve_lease.house import kill, release, until

pytestmark = pytest.mark.process


def claim(monkeypatch, **inherited):
    monkeypatch.setenv("QUIETGATE_OWNER", json.dumps(inherited) if inherited else "")
    return lease.claim_owner(), json.loads(os.environ["QUIETGATE_OWNER"])


def test_owner_of_a_run(monkeypatch):
    me = processes.myself().as_json()
    assert claim(monkeypatch) == (True, me | {"place": processes.place()})
    assert lease.claim_owner() is True  # parsed twice by the same process


def test_jobs_inherit_the_owner_dead_or_alive(monkeypatch):
    for pid, start in ((1, processes.stat(1).start), (1, 12345)):
        inherited = {"pid": pid, "start": start, "place": processes.place()}
        assert claim(monkeypatch, **inherited) == (False, inherited)


@pytest.mark.parametrize("change", [{"slurm_job": "17"}, {"host": "login1"}])
def test_batch_jobs_own_their_servers(monkeypatch, change):
    """The first process of a batch job owns its servers but must not lock the study."""
    there = processes.place() | change
    first = claim(monkeypatch, pid=1, start=2, place=there)
    assert first == (False, processes.myself().as_json() | {"place": processes.place()})


def test_owner_of_another_boot_is_gone():
    there = processes.place()
    assert ownership.owner_alive({"pid": 1, "start": 1, "place": there | {"boot": "earlier"}}) is False
    assert ownership.owner_alive({"pid": 1, "start": 1, "place": there | {"host": "other"}}) is None


def test_study_lock(house):
    lock = lease.lock_study(house.study)
    with pytest.raises(BadInput) as caught:
        lease.lock_study(house.study)
    assert f"another run of this study is in progress (pid {os.getpid()} on" in str(caught.value)
    lock.release()
    lease.lock_study(house.study).release()


def test_a_run_begins_when_it_takes_the_study(house):
    assert lease.run_began(house.study) == 0
    lock = lease.lock_study(house.study)
    os.utime(lock.path, (1000, 1000))
    with pytest.raises(BadInput):
        lease.lock_study(house.study)
    assert lease.run_began(house.study) == 1000, "another run in vain is none"
    lock.release()
    lease.lock_study(house.study).release()
    assert lease.run_began(house.study) > 1000


def test_orphans_release_is_refused(house, monkeypatch):
    """SIGKILL of a run, an immediate resume: the old run's last job must not end the new server."""
    old = house.owner()
    spec = house.spec()
    server = lease.start(spec)
    old.kill()
    old.wait()
    orphan = house.job(spec, "release", owner=old)
    assert orphan.said("raised") == "Interrupted"
    assert "owns this server" in orphan.lines()[-1]["reason"]
    assert lease.live(spec) == server
    release(spec)


@pytest.mark.parametrize("verb", [("start",), ("hold", "end"), ("release",)])
def test_another_live_run_is_refused(house, verb):
    spec = house.spec()
    server = lease.start(spec)
    job = house.job(spec, *verb, owner=house.owner())
    assert job.wait(30) == 4, job.out.read_text()
    assert lease.live(spec) == server
    release(spec)


def everything_of(house, spec):
    found = house.lease_of(spec)
    return [Identity.from_json(p).pid for p in found["supervisors"]]


def test_resume_after_everything_was_killed(house):
    owner = house.owner()
    spec = house.spec("--escape", house.tag)
    consumer = house.job(spec, "hold", "recv", owner=owner)
    consumer.said("holding")
    kill(*everything_of(house, spec), owner.pid, consumer.pid)
    until(lambda: len([line for line in house.alive() if "stub_server" in line]) == 1)
    [said] = lease.reap_stale(house.study)
    assert said == "c/l1: ended what both killed supervisors had left"
    assert not [line for line in house.alive() if "stub_server" in line]
    assert house.exit(spec)["forced"] is True
    assert lease.live(spec) is None
    assert lease.reap_stale(house.study) == []


def test_resume_right_after_the_owner_was_killed(house):
    owner = house.owner()
    spec = house.spec("--ignore-term", grace_s=0.4)
    consumer = house.job(spec, "hold", "recv", owner=owner)
    consumer.said("holding")
    kill(owner.pid, consumer.pid)
    owner.wait()
    [said] = lease.reap_stale(house.study)
    assert said == "c/l1: waited for the server of a killed run to end"
    assert house.exit(spec)["reason"] == "owner gone"
    assert not [line for line in house.alive() if "stub_server" in line]


def test_reaping_kills_supervisors_that_hang(house):
    owner = house.owner()
    spec = house.spec()
    house.job(spec, "start", owner=owner).said("started")
    for pid in everything_of(house, spec):
        os.kill(pid, 19)  # SIGSTOP
    kill(owner.pid)
    owner.wait()
    lease.reap_stale(house.study, timeout_s=0.2)
    assert house.exit(spec)["reason"] == "both supervisors of the server were killed"
    assert house.alive() == []


def test_killed_between_first_process_and_lease(house):
    """The lease is not there yet: the order and the marker tell what to end."""
    owner = house.owner()
    spec = house.spec("--escape", house.tag)
    house.job(spec, "start", owner=owner).said("started")
    house.up(lease._live(house.lease_of(spec), State(spec.live_dir)))
    kill(*everything_of(house, spec), owner.pid)
    owner.wait()
    (spec.live_dir / "lease.json").unlink()
    lease.reap_stale(house.study)
    until(lambda: not house.alive())  # the launching job may be ending still
    assert house.exit(spec)["forced"] is True


def test_live_runs_are_not_reaped(house):
    spec = house.spec()
    server = lease.start(spec)
    [said] = lease.reap_stale(house.study)
    assert said == f"c/l1: in use by pid {os.getpid()}, left alone"
    assert lease.live(spec) == server
    release(spec)
    assert lease.reap_stale(house.study) == []


def test_results_deleted_under_a_server(house):
    spec = house.spec()
    house.up(lease.start(spec))
    shutil.rmtree(house.study)
    until(lambda: not house.alive())
    assert not house.study.exists()
