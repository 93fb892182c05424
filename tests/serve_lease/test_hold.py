"""A job that uses a server learns that it is lost wherever the job is blocked."""

import threading
import time

import pytest

from quietgate.errors import CellFailed, Interrupted
from quietgate.serve import lease
from quietgate.serve.processes import send
from serve_lease.house import PATIENCE_S, release, until

pytestmark = pytest.mark.process


@pytest.mark.parametrize("how", ["sleep", "recv", "asyncio", "swallow", "deaf", "thread"])
def test_lost_while_blocked(house, how):
    spec = house.spec()
    server = lease.start(spec)
    house.up(server)
    job = house.job(spec, "hold", how)
    job.said("holding")
    send(server.started[0], 9)
    begun = time.monotonic()
    assert job.said("raised") == "CellFailed"
    took = time.monotonic() - begun
    last = job.lines()[-1]
    assert last["reason"].endswith("the server ended by itself, killed by SIGKILL")
    assert last["evidence"][-1] == "stub server is up"
    assert job.wait(PATIENCE_S) == 3
    print(f"{how}: noticed and ended after {took:.2f} s")
    release(spec)


@pytest.mark.parametrize("how", ["recv", "asyncio", "thread"])
def test_told_to_stop_while_blocked(house, how):
    spec = house.spec()
    lease.start(spec)
    job = house.job(spec, "hold", how)
    job.said("holding")
    if how == "thread":  # the main thread belongs to someone else, who ends the process
        release(spec)
        assert job.said("raised") == "CellFailed"
        return
    job.terminate()
    assert job.said("raised") == "Interrupted"
    assert job.wait(PATIENCE_S) == 4


def test_error_of_a_dying_server_is_the_servers(house):
    """The consumer sees a broken connection before anyone sees the dead process."""
    spec = house.spec()
    server = lease.start(spec)

    def body():
        send(server.started[0], 9)
        raise ConnectionResetError(104, "Connection reset by peer")

    with pytest.raises(CellFailed) as caught, lease.hold(server, "benchmark"):
        body()
    assert caught.value.reason.endswith("killed by SIGKILL")
    assert isinstance(caught.value.__cause__, ConnectionResetError)


def test_ended_before_holding(house):
    spec = house.spec()
    server = lease.start(spec)
    release(spec)
    with pytest.raises(CellFailed, match="released"), lease.hold(server, "benchmark"):
        pytest.fail("the body must not run")


def test_lost_at_the_very_end(house):
    """A pass that finished on a server which is gone by then is not trusted."""
    spec = house.spec()
    server = lease.start(spec)

    def body():
        send(server.started[0], 9)
        until(lambda: house.lease_of(spec)["ended"])

    with pytest.raises(CellFailed), lease.hold(server, "benchmark"):
        body()


def test_two_consumers_and_a_failing_one(house):
    spec = house.spec()
    server = lease.start(spec)
    job = house.job(spec, "hold", "sleep")
    job.said("holding")
    with pytest.raises(ValueError), lease.hold(server, "gate"):
        raise ValueError("no")
    assert job.said("raised") == "CellFailed"
    assert "gate failed: no" in job.lines()[-1]["reason"]


def test_handlers_are_restored(house):
    import signal

    before = [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)]
    spec = house.spec()
    with lease.hold(lease.start(spec), "gate"):
        assert signal.getsignal(signal.SIGTERM) != before[0]
    assert [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)] == before
    assert not [t for t in threading.enumerate() if t.name.startswith("hold-")]
    release(spec)


def test_owner_gone_before_holding(house, monkeypatch):
    spec = house.spec()
    server = lease.start(spec)
    with monkeypatch.context() as other:
        owner = house.owner()
        other.setenv("QUIETGATE_OWNER", owner.variable)
        owner.kill()
        owner.wait()
        with pytest.raises(Interrupted), lease.hold(server, "gate"):
            pytest.fail("the body must not run")
    assert lease.live(spec) == server
    release(spec)
