"""A server's life from start to release, and the ways in which it ends by itself."""

import os
import socket
import subprocess
import sys
from dataclasses import replace

import pytest

from quietgate.errors import CellFailed
from quietgate.files import read_json
from quietgate.serve import lease, processes
from quietgate.serve.processes import Identity, alive
from serve_lease.house import House, release, until

pytestmark = pytest.mark.process


def test_a_life(house):
    spec = house.spec("--fork")
    server = lease.start(spec)
    assert lease.live(spec) == server
    assert house.up(server)["pid"] == server.pids[0]
    assert server.pgids == server.pids
    assert server.base_url == f"http://127.0.0.1:{server.port}"
    with lease.hold(server, "gate") as held:
        held.check()
        assert len(list((spec.live_dir / "consumers").iterdir())) == 1
    assert list((spec.live_dir / "consumers").iterdir()) == []
    ended = release(spec)
    assert ended | {"ended_at": None, "gpu_memory": None} == {
        "reason": "released",
        "returncode": -15,
        "forced": False,
        "left": [],
        "ended_at": None,
        "gpu_memory": None,
        "instances": [server.instance],
    }
    assert ended["gpu_memory"]["used_before_mib"] is None
    assert "no GPU" in ended["gpu_memory"]["why"]
    assert house.alive() == []
    assert lease.live(spec) is None
    assert release(spec, "again") == ended
    assert read_json(house.slot_dir / "cpu.lock") is None
    assert "stub server is up" in server.log.read_text()


def test_release_without_a_server(house):
    ended = release(house.spec())
    assert ended["reason"] == "no server was started"
    assert ended["instances"] == []


def test_every_life_is_listed(house):
    spec = house.spec()
    first = lease.start(spec).instance
    release(spec)
    second = lease.start(spec).instance
    ended = release(spec)
    assert ended["instances"] == [first, second]


def test_only_the_server_asked_for_is_live(house, monkeypatch):
    spec = house.spec()
    server = lease.start(spec)
    assert lease.live(replace(spec, digest="e")) is None
    with monkeypatch.context() as other:
        other.setenv("QUIETGATE_OWNER", house.owner().variable)
        assert lease.live(spec) is None
    assert lease.live(spec) == server
    release(spec)


def test_a_new_start_ends_the_old_server(house):
    spec = house.spec()
    old = lease.start(spec)
    new = lease.start(replace(spec, digest="e"))
    assert new.instance != old.instance
    assert not any(alive(p) for p in old.started)
    assert house.exits(spec)[0]["reason"] == "another server of this launch is wanted"
    release(spec)


def test_environment_and_placeholders(house, monkeypatch):
    for name in ("NCCL_A", "NCCL_B", "GONE", "STAYS"):
        monkeypatch.setenv(name, "inherited")
    json_value = '{"a": {"port": 1}}'
    process = House.process(
        "--json",
        json_value,
        "--where",
        "{instance_dir}/x:{slot}",
        "~",
        "~/model",
        env={"ADDRESS": "http://0:{port}", "NODE": "{dist_port}", "JSON": json_value},
        unset=("GONE",),
    )
    monkeypatch.setenv("HOME", str(house.folder))
    (house.folder / "python").symlink_to(sys.executable)
    process = replace(process, argv=("~/python", *process.argv[1:]))
    slot = replace(house.slots[0], env={"CUDA_VISIBLE_DEVICES": "7"})
    spec = house.spec(processes=1, drop=("NCCL_*",), keep=("NCCL_B",), slots=(slot,))
    server = lease.start(replace(spec, processes=(process,)))
    seen = house.up(server)
    argv, env = seen["argv"], seen["env"]
    assert argv[argv.index("--json") + 1] == json_value
    assert argv[argv.index("--where") + 1] == f"{server.instance_dir}/x:cpu"
    assert argv[-2:] == ["~", f"{house.folder}/model"], "as a shell does"
    assert env["ADDRESS"] == f"http://0:{server.port}"
    assert env["JSON"] == json_value
    assert int(env["NODE"]) != server.port
    assert env["CUDA_VISIBLE_DEVICES"] == "7"
    assert env["QUIETGATE_INSTANCE"] == server.instance
    assert env["STAYS"] == env["NCCL_B"] == "inherited"
    assert {"NCCL_A", "GONE", "QUIETGATE_OWNER"}.isdisjoint(env)
    release(spec)


def test_server_starts_with_default_signals(house):
    server = lease.start(house.spec())
    house.up(server)
    status = (processes.Path("/proc") / str(server.pids[0]) / "status").read_text()
    masks = dict(line.split(":\t") for line in status.splitlines() if line.startswith("Sig"))
    stops = sum(1 << (n - 1) for n in (1, 15, 17))
    assert int(masks["SigBlk"], 16) == 0
    assert int(masks["SigIgn"], 16) & stops == 0
    release(house.spec())


def test_several_processes(house):
    spec = house.spec(processes=2)
    server = lease.start(spec)
    assert len(set(server.pids)) == 2
    house.up(server)
    assert house.up(server, 1)["argv"][2] != str(server.port)
    assert (server.instance_dir / "server.1.log").exists()
    processes.send(server.started[1], 9)
    ended = house.exit(spec)
    assert ended["reason"] == "process 1 of the server ended by itself, killed by SIGKILL"
    assert ended["returncodes"] == [-15, -9]
    assert lease.live(spec) is None


def test_server_that_exits_by_itself(house):
    spec = house.spec("--exit-after", "0.1", "--status", "7", "--fork")
    server = lease.start(spec)
    with pytest.raises(CellFailed) as caught, lease.hold(server, "gate") as held:
        until(lambda: held.check())
    assert caught.value.failure_class == "out_of_memory"
    assert caught.value.reason.endswith("(the server ended by itself, exit status 7)")
    assert caught.value.evidence[-1].startswith("torch.OutOfMemoryError")
    ended = release(spec)
    assert ended["returncode"] == 7
    assert ended["reason"] == "the server ended by itself, exit status 7"


@pytest.mark.parametrize(
    ("status", "failure_class", "reason"),
    [
        ("7", "unknown", "flux is not aligned (the server ended by itself, exit status 7)"),
        ("137", "killed", "the server ended by itself, exit status 137"),
    ],
)
def test_server_that_exits_for_a_reason_that_nobody_knows(house, status, failure_class, reason):
    words = "Load weight begin. avail mem=1.00 GB\nflux is not aligned"
    spec = house.spec("--exit-after", "0.1", "--status", status, "--words", words)
    server = lease.start(spec)
    with pytest.raises(CellFailed) as caught, lease.hold(server, "gate") as held:
        until(lambda: held.check())
    assert (caught.value.failure_class, caught.value.reason) == (failure_class, reason)
    release(spec)


@pytest.mark.parametrize(
    "tags", [(), ("--stray",), ("--escape", "--stray")], ids=lambda t: "+".join(t) or "-"
)
def test_server_that_ignores_term(house, tags):
    options = [word for option in tags for word in (option, house.tag)]
    spec = house.spec("--ignore-term", *options, grace_s=0.2)
    house.up(lease.start(spec))
    ended = release(spec)
    assert ended["forced"] is True
    assert ended["returncode"] == -9
    assert house.alive() == []


def test_stray_of_an_obedient_server(house):
    spec = house.spec("--stray", house.tag, grace_s=0.2)
    house.up(lease.start(spec))
    until(lambda: len(house.alive()) == 4)  # guardian, supervisor, server, stray
    assert release(spec)["forced"] is True
    assert house.alive() == []


def test_slow_end_is_within_grace(house):
    spec = house.spec("--slow-end", "0.6", grace_s=20)
    house.up(lease.start(spec))
    ended = release(spec)
    assert (ended["returncode"], ended["forced"]) == (0, False)


def test_program_that_does_not_exist(house):
    spec = replace(house.spec(), processes=(lease.Process(("/nowhere/python3", "-m", "sglang")),))
    with pytest.raises(CellFailed) as caught:
        lease.start(spec)
    assert caught.value.failure_class == "cannot_start"
    assert caught.value.reason == "cannot start /nowhere/python3: No such file or directory"
    assert release(spec)["reason"] == caught.value.reason


def test_second_process_that_does_not_exist(house):
    spec = house.spec(processes=2)
    spec = replace(spec, processes=(spec.processes[0], lease.Process(("/nowhere/python3",))))
    with pytest.raises(CellFailed, match="cannot start /nowhere/python3"):
        lease.start(spec)
    release(spec)
    assert house.alive() == []


def test_fixed_port_held_by_a_stranger(house):
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        with pytest.raises(CellFailed) as caught:
            lease.start(house.spec(port=port))
    assert caught.value.failure_class == "port_in_use"
    assert f"port {port} is held by pid {os.getpid()} (" in caught.value.reason


def test_fixed_port_again_and_again(house):
    spec = house.spec(port=socket_free())
    for _ in range(2):
        server = lease.start(spec)
        assert server.port == spec.port
        house.up(server)
        release(spec)


def socket_free() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


@pytest.mark.parametrize(
    ("limits", "reason"),
    [({"max_life_s": 0.3}, "maximum age of 0.3 s"), ({"idle_s": 0.3}, "idle for 0 s")],
    ids=["age", "idle"],
)
def test_limits(house, limits, reason):
    spec = house.spec(**limits)
    lease.start(spec)
    assert house.exit(spec)["reason"] == reason


def test_state_removed_by_hand(house):
    spec = house.spec()
    server = lease.start(spec)
    (spec.live_dir / "lease.json").unlink()
    assert house.exit(spec)["reason"] == "its state was removed"
    until(lambda: not any(alive(p) for p in server.started))


def test_supervisor_starts_light(house):
    """Every launch pays for what its supervisor imports."""
    code = "import sys, quietgate.serve.supervisor; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"pandas", "requests", "aiohttp", "jsonschema", "numpy", "asyncio", "quietgate.records"}
    assert not heavy & set(loaded.stdout.split())


def test_identity_survives_json():
    me = processes.myself()
    assert Identity.from_json(me.as_json()) == me
    assert alive(me)
    assert not alive(Identity(me.pid, me.start - 1))
    assert not processes.send(Identity(me.pid, me.start - 1), 9)
