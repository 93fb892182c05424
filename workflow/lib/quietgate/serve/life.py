"""One server's processes: started, watched, ended. Used by the supervisor only."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from quietgate.files import read_json
from quietgate.serve import ports
from quietgate.serve.environment import command, environment, placeholders
from quietgate.serve.order import STOP_SIGNALS, NotStarted, Order, wait_for_signal
from quietgate.serve.processes import (
    Identity,
    alive,
    descendants,
    die_with_parent,
    identity,
    marked,
    myself,
    place,
    send_all,
)
from quietgate.serve.state import End, Process, State, put_json
from quietgate.serve.turn import Turn
from quietgate.serve.waiting import contended

POLL_S = 0.05
KILL_TIMEOUT_S = 30.0
STRAY_GRACE_S = 5.0
# How a server that somebody else told to stop may look; its own supervisor was told too, then.
_STOPPED = {0, *(-s for s in STOP_SIGNALS), *(128 + s for s in STOP_SIGNALS)}


class Life:
    """One server: its processes, started and ended by the supervisor that constructs it."""

    def __init__(self, order: Order, state: State, turn: Turn, guardian: Identity):
        self.order, self.spec, self.state, self.turn = order, order.spec, state, turn
        self.guardian = guardian
        self.instance_dir = self.spec.instances_dir / order.instance
        self.started: list[Identity] = []
        self.returncodes: list[int | None] = []
        self.lease: dict[str, Any] = {}
        self.began = time.monotonic()

    def start(self, port: int, node_ports: list[int], dist_port: int) -> None:
        """Start every process and publish the lease; OSError when one cannot be executed."""
        self.instance_dir.mkdir(parents=True, exist_ok=True)
        supervisors = [self.guardian.as_json(), myself().as_json()]
        self.turn.note(
            {
                "instance": self.order.instance,
                "lease": str(self.state.lease),
                "supervisors": supervisors,
                "place": place(),
            }
        )
        started_at = time.time()
        for number, process in enumerate(self.spec.processes):
            values = placeholders(port, node_ports[number], dist_port, self.instance_dir, self.turn.slot.name)
            self.started.append(self._spawn(number, process, values))
            self.returncodes.append(None)
        pids = [p.pid for p in self.started]
        self.lease = {
            "instance": self.order.instance,
            "study": self.spec.study,
            "cell": self.spec.cell,
            "launch": self.spec.launch,
            "digest": self.spec.digest,
            "owner": self.order.owner_json,
            "supervisors": supervisors,
            "slot": self.turn.slot.name,
            "gpus": list(self.turn.slot.gpu_uuids),
            "port": port,
            "started": [p.as_json() for p in self.started],
            "pgids": pids,  # each leads a session of its own
            "instance_dir": str(self.instance_dir),
            "log": str(self.log(0)),
            "started_at": started_at,
            "grace_s": self.spec.grace_s,
            "ended": None,
        }
        put_json(self.state.lease, self.lease)

    def log(self, number: int) -> Path:
        """Where process `number` writes."""
        return self.instance_dir / ("server.log" if number == 0 else f"server.{number}.log")

    def _spawn(self, number: int, process: Process, values: dict[str, str]) -> Identity:
        supervisor = os.getpid()

        def prepare() -> None:
            die_with_parent(signal.SIGKILL)
            if os.getppid() != supervisor:  # it died before the line above could count
                os._exit(1)
            for number in (*STOP_SIGNALS, signal.SIGCHLD, signal.SIGQUIT):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())

        with self.log(number).open("ab") as log:
            child = subprocess.Popen(
                command(process.argv, values),
                env=environment(
                    os.environ,
                    drop=self.spec.drop,
                    keep=self.spec.keep,
                    unset=process.unset,
                    env=process.env,
                    slot_env=self.turn.slot.env,
                    values=values,
                    instance=self.order.instance,
                ),
                cwd=self.spec.cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=prepare,  # this process has one thread
            )
        child.returncode = 0  # reaped by `reap` below, not by Popen
        found = identity(child.pid)
        assert found is not None, "a child that was not reaped has an entry in /proc"
        return found

    def reap(self) -> None:
        """Collect dead children, the server's own and adopted ones."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            for number, process in enumerate(self.started):
                if process.pid == pid and self.returncodes[number] is None:
                    self.returncodes[number] = os.waitstatus_to_exitcode(status)

    def watch(self) -> End:
        """Stay until the server must end, and say why."""
        idle_since, next_look = time.monotonic(), 0.0
        while True:
            stopped = wait_for_signal(POLL_S)
            self.reap()
            if ended := self._why_now(stopped):
                return ended
            consumers = self._consumers()
            for who, is_alive in consumers:
                if not is_alive and not alive(self.order.owner):  # killed together
                    return End("owner gone", interrupted=True)
                if not is_alive:
                    return End(f"consumer {who} vanished")
            now = time.monotonic()
            if consumers:
                idle_since = now
            elif now > next_look:
                next_look = now + 0.25
                if ended := self._idle(now - idle_since):
                    return ended

    def _why_now(self, stopped: str | None) -> End | None:
        if stopped:
            return End(f"the supervisor was stopped by {stopped}", interrupted=True)
        if not alive(self.order.owner):
            return End("owner gone", interrupted=True)
        if any(code is not None for code in self.returncodes):
            return self._server_ended()
        if os.getppid() != self.guardian.pid:
            return End("the guardian was killed")
        request = read_json(self.state.release(self.order.instance))
        if request:
            return End(str(request["reason"]), interrupted=bool(request["interrupted"]))
        if time.monotonic() - self.began > self.spec.max_life_s:
            return End(f"maximum age of {self.spec.max_life_s:g} s")
        lease = read_json(self.state.lease)
        if not isinstance(lease, dict) or lease.get("instance") != self.order.instance:
            return End("its state was removed")
        return None

    def _server_ended(self) -> End:
        number, code = next((n, c) for n, c in enumerate(self.returncodes) if c is not None)
        if code in _STOPPED:  # a batch system's cancel hits the server and us alike: were we told?
            deadline = time.monotonic() + 0.15
            while (left := deadline - time.monotonic()) > 0:
                if stopped := wait_for_signal(min(left, 0.03)):
                    return End(f"the supervisor was stopped by {stopped}", interrupted=True)
                if not alive(self.order.owner):
                    return End("owner gone", interrupted=True)
        which = "the server" if len(self.started) == 1 else f"process {number} of the server"
        return End(f"{which} ended by itself, {describe(code)}", by_itself=True, returncode=code)

    def _consumers(self) -> list[tuple[str, bool]]:
        found = []
        for path in self.state.consumers.glob(f"{self.order.instance}.*.json"):
            consumer = read_json(path)
            if consumer:  # else it left at this moment
                found.append((str(consumer["who"]), alive(Identity.from_json(consumer))))
        return found

    def _idle(self, seconds: float) -> End | None:
        if seconds > self.spec.idle_s:
            return End(f"idle for {seconds:.0f} s")
        if seconds > self.spec.idle_contended_s and contended(self.order.slot_dir, self.turn.slot.locks):
            return End(f"idle for {seconds:.0f} s while another launch waited for its slot")
        return None

    def end(self) -> bool:
        """End every process of the server; whether force was needed.

        First only the processes we started are asked: they know how to end their own children,
        and would log those as crashed otherwise. Then what they left, and then nobody is asked.
        """
        running = [p for p, code in zip(self.started, self.returncodes, strict=True) if code is None]
        send_all(running, signal.SIGTERM)
        self._until(lambda: None not in self.returncodes, self.spec.grace_s)
        if None not in self.returncodes and (left := descendants(os.getpid())):
            send_all(left, signal.SIGTERM)
            grace = min(self.spec.grace_s, STRAY_GRACE_S)
            self._until(lambda: not descendants(os.getpid()), grace)
        return kill_below(self.order.instance, self.reap)

    def _until(self, done: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not done() and time.monotonic() < deadline:
            wait_for_signal(0.02)
            self.reap()


def left_below(instance: str) -> list[Identity]:
    """What is left of the server, as a subreaper sees it; strays elsewhere by their marker."""
    for _ in range(2):  # one that was forked while its parent was dying is seen at the second look
        found = {p for p in [*descendants(os.getpid()), *marked(instance)] if p.pid != os.getpid()}
        if found:
            break
    return list(found)


def kill_below(instance: str, reap: Callable[[], object]) -> bool:
    """Kill what is left of the server, for a bounded time; whether anything was."""
    forced = False
    deadline = time.monotonic() + KILL_TIMEOUT_S
    reap()
    while (left := left_below(instance)) and time.monotonic() < deadline:
        forced = True
        send_all(left, signal.SIGKILL)
        wait_for_signal(0.02)
        reap()
    reap()  # who died after the last call counts as gone already, and its status is wanted
    return forced


def describe(code: int) -> str:
    """An exit status in words: "exit status 3" or "killed by SIGKILL"."""
    if code >= 0:
        return f"exit status {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def choose_ports(order: Order) -> tuple[int, list[int], int]:
    """(HTTP port, one port per process, rendezvous port); NotStarted when the fixed one is taken."""
    fixed, count = order.spec.port, len(order.spec.processes)
    if fixed is not None and (who := ports.holder(fixed)):
        raise NotStarted("port_in_use", f"port {fixed} is held by {who}; end it or set another server port")
    if fixed is None:
        node_ports = ports.pick(order.slot_dir, count)
    else:
        node_ports = [fixed, *(ports.pick(order.slot_dir, count - 1) if count > 1 else [])]
    dist_port = ports.pick(order.slot_dir, neighbours=8)[0]
    return node_ports[0], node_ports, dist_port


def refused(error: NotStarted | OSError, life: Life) -> NotStarted:
    """What keeps a server from being started, for its job; an OSError is about its program."""
    if isinstance(error, NotStarted):
        return error
    process = life.spec.processes[min(len(life.started), len(life.spec.processes) - 1)]
    return NotStarted("cannot_start", f"cannot start {process.argv[0]}: {error.strerror or error}")
