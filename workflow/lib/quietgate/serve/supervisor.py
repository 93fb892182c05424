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

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from quietgate.files import read_json
from quietgate.serve import memory
from quietgate.serve.life import Life, choose_ports, describe, kill_below, left_below, refused
from quietgate.serve.order import AWAITED, STOP_SIGNALS, NotStarted, Order, event, wait_for_signal
from quietgate.serve.processes import Identity, become_subreaper, myself
from quietgate.serve.state import End, State, exit_file, put_json
from quietgate.serve.strays import tombstone, write_exit
from quietgate.serve.turn import Turn, give_up_if_unwanted


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
    child = os.fork()
    if child:
        guard(order, state, turn, child)
        return 0
    try:
        supervise(order, state, turn, guardian)
    except BaseException:
        traceback.print_exc()
        leave(1)
    leave(0)


def leave(status: int) -> NoReturn:
    """End a forked child without running its parent's exit handlers."""
    sys.stderr.flush()
    os._exit(status)


def refuse(order: Order, state: State, why: NotStarted) -> None:
    """Tell the launching job that no server was started."""
    event(order, f"not started: {why.reason}")
    if state.folder.is_dir():
        put_json(state.refusal(order.instance), {"failure_class": why.failure_class, "reason": why.reason})


def supervise(order: Order, state: State, turn: Turn, guardian: Identity) -> None:
    """The supervisor: a server's whole life."""
    become_subreaper()
    life = Life(order, state, turn, guardian)
    try:
        ports = choose_ports(order)
        give_up_if_unwanted(order, state)
        life.start(*ports)
    except (NotStarted, OSError) as e:
        why = refused(e, life)
        forced = life.end()
        refuse(order, state, why)
        ended = {"ended": vars(End(why.reason))}
        finish(order, turn, ended, life.returncodes, forced, life.reap)
        return
    event(order, f"started {order.spec.cell}/{order.spec.launch} on {turn.slot.name}, port {ports[0]}")
    end = life.watch()
    # First of all nobody new may trust it.
    current = read_json(state.lease)
    if isinstance(current, dict) and current["instance"] == order.instance:
        lease = tombstone(state.lease, life.lease, end)
    else:
        lease = life.lease | {"ended": vars(end)}
    forced = life.end()
    finish(order, turn, lease, life.returncodes, forced, life.reap)


def guard(order: Order, state: State, turn: Turn, supervisor: int) -> None:
    """The guardian: wait for the supervisor; if it was killed, end everything below."""
    status = None
    while status is None:
        if wait_for_signal(3600.0):
            os.kill(supervisor, signal.SIGTERM)  # not reaped yet, so its pid is its own
        status = reap_all().get(supervisor)
    if status == 0:
        return
    reason = f"the supervisor ended unexpectedly, {describe(os.waitstatus_to_exitcode(status))}"
    event(order, reason)
    lease = read_json(state.lease)
    if isinstance(lease, dict) and lease["instance"] == order.instance:
        lease = tombstone(state.lease, lease, End(reason))
    else:
        lease = {"ended": vars(End(reason))}
        refuse(order, state, NotStarted("killed", reason))
    forced = kill_below(order.instance, reap_all)
    codes: list[int | None] = [None] * len(order.spec.processes)
    finish(order, turn, lease, codes, forced, reap_all)


def reap_all() -> dict[int, int]:
    """Collect dead children: wait status by pid."""
    found: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if not pid:
            return found
        found[pid] = status


def finish(
    order: Order,
    turn: Turn,
    lease: dict[str, Any],
    returncodes: list[int | None],
    forced: bool,
    reap: Callable[[], object],
) -> None:
    """Wait for the GPU's memory, write exit.json, and keep the slot while anything is left."""
    left = [p.pid for p in left_below(order.instance)]
    gpu_memory = memory.settle(turn.slot.gpu_uuids, *turn.memory_before, order.spec.memory_timeout_s)
    record = exit_file(order.spec.instances_dir, order.instance)
    if not record.exists():  # the guardian comes second where the supervisor wrote it and then died
        spec = order.spec
        whose = {"cell": spec.cell, "launch": spec.launch, "slot": turn.slot.name}
        write_exit(record, whose | lease, returncodes, forced, left, gpu_memory)
    event(order, f"ended: {lease['ended']['reason']}" + (" (forced)" if forced else ""))
    while left_below(order.instance):  # cannot be killed now: nobody else may have its GPU yet
        time.sleep(0.5)
        reap()
    turn.note(None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
