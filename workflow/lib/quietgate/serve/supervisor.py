"""Guardian and supervisor of one server: `python -m quietgate.serve.supervisor SPEC.json`.

A server must outlive the job that starts it and must not outlive the run that owns it::

    job (launch) --starts, detached--> guardian --forks--> supervisor --starts--> server processes

Both are subreapers, so that no double fork leaves their tree. If the supervisor is killed, the
kernel kills the server's processes (parent-death signal) and the guardian everything below them;
if the guardian is killed, the supervisor ends the server in order. Both hold the locks of the
launch and of the GPU slot until nothing of the server is left.

The supervisor ends the server when it is asked to, when the owner (the run's Snakemake) is gone,
when a consumer vanishes, when one of the server's processes ends, when nobody uses it (soon, if
another launch waits for the slot) or at its maximum age. Its wake-ups are few: it sleeps in
`sigtimedwait`, which child deaths and stop signals end at once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from quietgate.files import read_json, write_json
from quietgate.serve import memory, ports
from quietgate.serve.environment import command, environment, placeholders
from quietgate.serve.locks import Lock, peek, try_lock
from quietgate.serve.processes import (
    Identity,
    alive,
    become_subreaper,
    can_judge,
    descendants,
    die_with_parent,
    identity,
    marked,
    myself,
    place,
    send_all,
)
from quietgate.serve.slots import Slot, lock_path, try_slot
from quietgate.serve.state import End, LaunchSpec, Process, State, exit_file, put_json, utc
from quietgate.serve.strays import leaders_of, supervised, sweep, tombstone
from quietgate.serve.waiting import Ticket, contended

POLL_S = 0.05
KILL_TIMEOUT_S = 30.0
STRAY_GRACE_S = 5.0
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_T = TypeVar("_T")
AWAITED = {*STOP_SIGNALS, signal.SIGCHLD}
# How a server that somebody else told to stop may look; its own supervisor was told too, then.
_STOPPED = {0, *(-s for s in STOP_SIGNALS), *(128 + s for s in STOP_SIGNALS)}


@dataclass(frozen=True)
class Order:
    """A spec as written by `lease.start`: what to start, for whom."""

    spec: LaunchSpec
    instance: str
    owner: Identity
    owner_json: dict[str, Any]
    launcher: Identity
    slot_dir: Path

    @staticmethod
    def read(path: Path) -> Order:
        """The order in `path`."""
        value = read_json(path)
        return Order(
            LaunchSpec.from_json(value["spec"]),
            value["instance"],
            Identity.from_json(value["owner"]),
            value["owner"],
            Identity.from_json(value["launcher"]),
            Path(value["slot_dir"]),
        )


class NotStarted(Exception):
    """The launch ends before a server process was started."""

    def __init__(self, failure_class: str | None, reason: str):
        self.failure_class = failure_class  # None: interrupted, no failure
        self.reason = reason
        super().__init__(reason)


def wait_for_signal(seconds: float) -> str | None:
    """Sleep, but not past a child's death or a stop signal; the stop signal's name, if any."""
    received = signal.sigtimedwait(AWAITED, seconds)
    if received is None or received.si_signo == signal.SIGCHLD:
        return None
    return signal.Signals(received.si_signo).name


def event(order: Order, text: str) -> None:
    """One line in supervisor.log (the standard error of this process)."""
    print(utc(), order.instance, text, file=sys.stderr, flush=True)


# ---- before the server: turns


class Turn:
    """The locks of a launch and of a slot, once it is this launch's turn."""

    def __init__(self, order: Order, state: State):
        self.order, self.state = order, state
        self._deadline = time.monotonic() + order.spec.slot_timeout_s
        self.launch_lock = self._wait("the end of this launch's previous server", self._lock)
        state.tidy(order.instance)
        ticket = Ticket(order.slot_dir, order.instance, order.spec.slots)
        try:
            self.slot, self.slot_locks = self._wait("a free slot", lambda: self._try_slots(ticket))
        finally:
            ticket.leave()
        for lock in self.slot_locks:
            sweep_predecessor(lock.note(), order)

    def note(self, value: Any) -> None:
        """Say in the slot's lock files whose server runs there."""
        for lock in self.slot_locks:
            lock.write_note(value)

    def _lock(self) -> Lock | None:
        return try_lock(self.state.lock)

    def _try_slots(self, ticket: Ticket) -> tuple[Slot, list[Lock]] | None:
        ticket.beat()
        for slot in self.order.spec.slots:
            if ticket.may_take(slot) and (locks := try_slot(self.order.slot_dir, slot)):
                return slot, locks
        for slot in self.order.spec.slots:  # a dead holder's strays may keep a lock from us
            for key in slot.locks:
                sweep_predecessor(peek(lock_path(self.order.slot_dir, key)), self.order)
        return None

    def _wait(self, what: str, attempt: Callable[[], _T | None]) -> _T:
        while True:
            got = attempt()
            if got is not None:
                return got
            if stopped := wait_for_signal(POLL_S):
                raise NotStarted(None, f"stopped by {stopped} while waiting for {what}")
            give_up_if_unwanted(self.order, self.state)
            if time.monotonic() > self._deadline:
                waited = self.order.spec.slot_timeout_s
                raise NotStarted("slot_timeout", f"waited {waited:g} s in vain for {what}")


def give_up_if_unwanted(order: Order, state: State) -> None:
    """NotStarted when nobody waits for this server any more."""
    if not alive(order.owner):
        raise NotStarted(None, "owner gone")
    if not alive(order.launcher):
        raise NotStarted(None, "the launching job is gone")
    if state.release(order.instance).exists():
        raise NotStarted(None, "released before it was started")


def sweep_predecessor(note: Any, order: Order) -> None:
    """End what a slot's last server left behind when both of its supervisors were killed.

    The note only points at a lease; what it says is believed if that file is this user's own.
    """
    if not isinstance(note, dict) or note.get("instance") == order.instance:
        return
    if not can_judge(note["place"]) or supervised(note):
        return
    lease_path, leaders = Path(note["lease"]), []
    lease = read_json(lease_path)
    if isinstance(lease, dict) and lease["instance"] == note["instance"]:
        with contextlib.suppress(OSError):
            if lease_path.stat().st_uid == os.getuid():
                leaders = leaders_of(lease)
    if left := sweep(note["instance"], leaders):
        event(order, f"strays of {note['instance']} could not be ended: {left}")


# ---- the server's life


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
        return End(f"{which} ended by itself, {describe(code)}", by_itself=True)

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
    found = {*descendants(os.getpid()), *marked(instance)}
    return [p for p in found if p.pid != os.getpid()]


def kill_below(instance: str, reap: Callable[[], None]) -> bool:
    """Kill what is left of the server, for a bounded time; whether anything was."""
    forced = False
    deadline = time.monotonic() + KILL_TIMEOUT_S
    reap()
    while (left := left_below(instance)) and time.monotonic() < deadline:
        forced = True
        send_all(left, signal.SIGKILL)
        wait_for_signal(0.02)
        reap()
    return forced


def describe(code: int) -> str:
    """An exit status in words: "exit status 3" or "killed by SIGKILL"."""
    if code >= 0:
        return f"exit status {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


# ---- its end


def finish(
    order: Order,
    turn: Turn,
    before: tuple[dict[str, int] | None, str | None],
    lease: dict[str, Any],
    returncodes: list[int | None],
    forced: bool,
    reap: Callable[[], None],
) -> None:
    """Wait for the GPU's memory, write exit.json, and keep the slot while anything is left."""
    left = [p.pid for p in left_below(order.instance)]
    gpu_memory = memory.settle(turn.slot.gpu_uuids, *before, order.spec.memory_timeout_s)
    record = exit_file(order.spec.instances_dir, order.instance)
    if record.parent.is_dir():  # else the results were deleted under us
        write_json(
            record,
            {
                "instance": order.instance,
                "cell": order.spec.cell,
                "launch": order.spec.launch,
                "slot": turn.slot.name,
                "reason": lease["ended"]["reason"],
                "interrupted": lease["ended"]["interrupted"],
                "returncode": returncodes[0] if returncodes else None,
                "returncodes": returncodes,
                "forced": forced,
                "left": sorted(left),
                "started_at": utc(lease["started_at"]) if "started_at" in lease else None,
                "ended_at": utc(),
                "gpu_memory": gpu_memory,
            },
        )
    event(order, f"ended: {lease['ended']['reason']}" + (" (forced)" if forced else ""))
    while left_below(order.instance):  # cannot be killed now: nobody else may have its GPU yet
        time.sleep(0.5)
        reap()
    turn.note(None)


def supervise(
    order: Order,
    state: State,
    turn: Turn,
    before: tuple[dict[str, int] | None, str | None],
    guardian: Identity,
) -> None:
    """The supervisor: a server's whole life."""
    become_subreaper()
    life = Life(order, state, turn, guardian)
    spec = order.spec
    try:
        port, node_ports, dist_port = choose_ports(order)
        give_up_if_unwanted(order, state)
        life.start(port, node_ports, dist_port)
    except (NotStarted, OSError) as e:
        refusal = e if isinstance(e, NotStarted) else cannot_execute(e, life)
        life.end()
        refuse(order, state, refusal)
        if life.instance_dir.is_dir():
            ended = {"ended": vars(End(refusal.reason))}
            finish(order, turn, before, ended, life.returncodes, False, life.reap)
        turn.note(None)
        return
    event(order, f"started {spec.cell}/{spec.launch} on {turn.slot.name}, port {port}")
    end = life.watch()
    if (read_json(state.lease) or {}).get("instance") == order.instance:
        life.lease = tombstone(state.lease, life.lease, end)
    else:
        life.lease |= {"ended": vars(end)}
    forced = life.end()
    finish(order, turn, before, life.lease, life.returncodes, forced, life.reap)


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


def cannot_execute(error: OSError, life: Life) -> NotStarted:
    """Which program could not be started, and why."""
    number = min(len(life.started), len(life.spec.processes) - 1)
    program = life.spec.processes[number].argv[0]
    return NotStarted("cannot_start", f"cannot start {program}: {error.strerror or error}")


def refuse(order: Order, state: State, why: NotStarted) -> None:
    """Tell the launching job that no server was started."""
    event(order, f"not started: {why.reason}")
    if state.folder.is_dir():
        put_json(
            state.refusal(order.instance),
            {"failure_class": why.failure_class, "reason": why.reason},
        )


def guard(
    order: Order,
    state: State,
    turn: Turn,
    before: tuple[dict[str, int] | None, str | None],
    supervisor: int,
) -> None:
    """The guardian: wait for the supervisor; if it was killed, end everything below."""
    while True:
        if wait_for_signal(3600.0):
            os.kill(supervisor, signal.SIGTERM)
        status = None
        while status is None:
            try:
                pid, raw = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not pid:
                break
            if pid == supervisor:
                status = raw
        if status is not None:
            break
    if status == 0:
        return
    reason = f"the supervisor ended unexpectedly, {describe(os.waitstatus_to_exitcode(status))}"
    event(order, reason)

    def reap() -> None:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass

    lease = read_json(state.lease)
    known = isinstance(lease, dict) and lease["instance"] == order.instance
    if known:
        lease = tombstone(state.lease, lease, End(reason))
    else:
        lease = {"ended": vars(End(reason))}
    forced = kill_below(order.instance, reap)
    if not known:
        refuse(order, state, NotStarted("killed", reason))
    if not exit_file(order.spec.instances_dir, order.instance).exists():
        codes: list[int | None] = [None] * len(order.spec.processes)
        finish(order, turn, before, lease, codes, forced, reap)
    turn.note(None)


def main(spec_path: str) -> int:
    """Wait for our turn, split into guardian and supervisor, and stay until the server is gone."""
    signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)
    for number in STOP_SIGNALS:  # an ignored signal would never be reported
        signal.signal(number, signal.SIG_DFL)
    become_subreaper()
    order = Order.read(Path(spec_path))
    state = State(order.spec.live_dir)
    try:
        turn = Turn(order, state)
        give_up_if_unwanted(order, state)
    except NotStarted as e:
        refuse(order, state, e)
        return 0
    guardian = myself()
    before = memory.level(turn.slot.gpu_uuids)
    child = os.fork()
    if child:
        guard(order, state, turn, before, child)
        return 0
    status = 1
    try:
        supervise(order, state, turn, before, guardian)
        status = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finish_process(status)


def finish_process(status: int) -> NoReturn:
    """Leave a forked child without running its parent's exit handlers."""
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
