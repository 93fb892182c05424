"""The leased server as jobs see it: start it, use it, end it.

A run's main process calls `claim_owner`, `lock_study` and `reap_stale`. A job calls `live(spec)
or start(spec)`, then works inside `with hold(server, "benchmark") as held:`, and the last job
calls `release`. Being told to stop is `Interrupted`, a lost server is `CellFailed`.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from quietgate.errors import CellFailed, Interrupted
from quietgate.files import read_json
from quietgate.serve import slots
from quietgate.serve.hold import Hold, explained, hold, outcome_of, request_release, wait_until_gone
from quietgate.serve.locks import peek
from quietgate.serve.ownership import claim_owner, owner, owner_alive
from quietgate.serve.processes import Identity, alive, myself
from quietgate.serve.reaping import lock_study, reap_stale, run_began
from quietgate.serve.slots import Slot
from quietgate.serve.state import LaunchSpec, Live, Process, State, exit_file, put_json
from quietgate.serve.strays import supervised

__all__ = [
    "Hold",
    "LaunchSpec",
    "Live",
    "Process",
    "Slot",
    "claim_owner",
    "hold",
    "how_ended",
    "live",
    "lock_study",
    "reap_stale",
    "release",
    "run_began",
    "start",
]

POLL_S = 0.02
WAITING_TOLD_AFTER_S = 2.0
LIBRARY = Path(__file__).parents[2]
# What ending a server may take beyond its grace: strays, forced kills, writing the record.
END_MARGIN_S = 60.0


def live(spec: LaunchSpec) -> Live | None:
    """This run's live server of this launch, if it is just the one asked for; else None."""
    state = State(spec.live_dir)
    lease = read_json(state.lease)
    if (
        not isinstance(lease, dict)
        or lease["ended"] is not None
        or lease["digest"] != spec.digest
        or lease["owner"] != owner()
        or not supervised(lease)
        or state.release(lease["instance"]).exists()
        or not all(alive(Identity.from_json(p)) for p in lease["started"])
    ):
        return None
    return _live(lease, state)


def _live(lease: dict[str, Any], state: State) -> Live:
    return Live(
        instance=lease["instance"],
        cell=lease["cell"],
        launch=lease["launch"],
        digest=lease["digest"],
        port=lease["port"],
        base_url=f"http://127.0.0.1:{lease['port']}",
        pids=tuple(p["pid"] for p in lease["started"]),
        pgids=tuple(lease["pgids"]),
        slot=lease["slot"],
        instance_dir=Path(lease["instance_dir"]),
        log=Path(lease["log"]),
        started_at=lease["started_at"],
        live_dir=state.folder,
        started=tuple(Identity.from_json(p) for p in lease["started"]),
        grace_s=lease["grace_s"],
        gpus=tuple(lease["gpus"]),
    )


def start(spec: LaunchSpec, report: Callable[[str], None] = lambda line: None) -> Live:
    """Start this launch's server under a supervisor of its own, waiting for a slot first.

    Returns as soon as its processes run, long before it can answer. Raises Interrupted when told
    to stop meanwhile, CellFailed when it cannot be started. `report` gets a line when it has to
    wait for its turn.
    """
    mine = owner()
    state = State(spec.live_dir)
    _end_previous(state, mine)
    instance = uuid.uuid4().hex[:12]
    put_json(
        state.order,
        {
            "instance": instance,
            "spec": spec.as_json(),
            "owner": mine,
            "launcher": myself().as_json(),
            "slot_dir": str(slots.folder()),
        },
    )
    with _told_to_stop() as told, state.supervisor_log.open("ab") as log:
        supervisor = subprocess.Popen(
            # -m looks in the working folder first: no variable needs to be set, all of which
            # the server would inherit.
            [sys.executable, "-m", "quietgate.serve.supervisor", str(state.order)],
            cwd=LIBRARY,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        _supervisors.append(supervisor)
        try:
            waiting = _Waiting(spec, report)
            return _await_start(state, instance, supervisor, mine, told, waiting)
        except BaseException as e:
            request_release(
                state, instance, f"launch gave up: {e}", interrupted=not isinstance(e, CellFailed)
            )
            raise


# Popen objects of supervisors that this process started: kept, so that they can be reaped.
_supervisors: list[subprocess.Popen[bytes]] = []


def _end_previous(state: State, mine: dict[str, Any]) -> None:
    """Ask an earlier server of this launch to end; the new supervisor waits for that."""
    for old in _supervisors[:]:
        if old.poll() is not None:
            _supervisors.remove(old)
    lease = read_json(state.lease)
    if not isinstance(lease, dict) or lease["ended"] is not None or not supervised(lease):
        return
    if lease["owner"] != mine and owner_alive(lease["owner"]):
        raise Interrupted(f"another run (pid {lease['owner']['pid']}) has a server of this launch")
    request_release(state, lease["instance"], "another server of this launch is wanted")


@contextlib.contextmanager
def _told_to_stop() -> Iterator[list[str]]:
    """The names of stop signals received by this process so far, which do nothing else meanwhile."""
    told: list[str] = []
    if threading.current_thread() is not threading.main_thread():
        yield told
        return
    before = {}
    for number in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, lambda n, frame: told.append(signal.Signals(n).name))
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Waiting:
    """Says once, after a while, what a launch waits for."""

    def __init__(self, spec: LaunchSpec, report: Callable[[str], None]):
        self._spec, self._report = spec, report
        self._due: float | None = time.monotonic() + WAITING_TOLD_AFTER_S

    def tell(self) -> None:
        if self._due is None or time.monotonic() < self._due:
            return
        self._due = None
        where = slots.folder()
        notes = {
            key: note
            for slot in self._spec.slots
            for key in slot.locks
            if isinstance(note := peek(slots.lock_path(where, key)), dict)
        }
        holders = ", ".join(f"{key}: {Path(n['lease']).parent}" for key, n in sorted(notes.items()))
        names = ", ".join(slot.name for slot in self._spec.slots)
        self._report(f"waiting for a free slot of {names}" + (f" (in use by {holders})" if holders else ""))


def _await_start(
    state: State,
    instance: str,
    supervisor: subprocess.Popen[bytes],
    mine: dict[str, Any],
    told: list[str],
    waiting: _Waiting,
) -> Live:
    while True:
        waiting.tell()
        ended = supervisor.poll() is not None  # before looking, so that its last word is seen
        lease = read_json(state.lease)
        if isinstance(lease, dict) and lease["instance"] == instance:
            if lease["ended"] is None:
                return _live(lease, state)
            raise explained(outcome_of(lease), Path(lease["log"]))
        refusal = read_json(state.refusal(instance))
        if refusal:
            if refusal["failure_class"] is None:
                raise Interrupted(refusal["reason"])
            raise CellFailed(refusal["failure_class"], refusal["reason"])
        if told:
            raise Interrupted(f"told to stop by {told[0]} while launching")
        if not owner_alive(mine):
            raise Interrupted("the run that owns this job is gone")
        if ended:
            raise CellFailed(
                "killed",
                f"the server's supervisor ended, status {supervisor.returncode}",
                _last_lines(state.supervisor_log),
            )
        time.sleep(POLL_S)


def _last_lines(path: Path, count: int = 15) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()[-count:]
    except OSError:
        return []


def release(live_dir: Path, instances_dir: Path, reason: str = "released") -> dict[str, Any]:
    """End this launch's server, if it has one, and say how its last server ended.

    May be called again, and after a server is gone. Raises Interrupted, and ends nothing, when
    the server belongs to another live run: an orphaned job must not end its successor's server.
    """
    state = State(live_dir)
    order = read_json(state.order)
    if isinstance(order, dict):
        mine = owner()
        if order["owner"] != mine and owner_alive(order["owner"]) is not False:
            raise Interrupted(f"another run (pid {order['owner']['pid']}) owns this server")
        if order["owner"] != mine and not owner_alive(mine):
            raise Interrupted("the run that owns this job is gone")
        instance, spec = order["instance"], order["spec"]
        request_release(state, instance, reason)
        bound = spec["grace_s"] + spec["memory_timeout_s"] + END_MARGIN_S
        if not wait_until_gone(state, exit_file(Path(instances_dir), instance), bound):
            raise CellFailed("killed", f"the server did not end within {bound:.0f} s")
    return how_ended(Path(instances_dir), order["instance"] if order else None)


def how_ended(instances_dir: Path, instance: str | None) -> dict[str, Any]:
    """How a server life of this launch ended (else its last one), as the exit record tells it."""
    lives = [e for p in instances_dir.glob("*/exit.json") if isinstance(e := read_json(p), dict)]
    lives.sort(key=lambda e: (e["started_at"] or e["ended_at"], e["ended_at"]))
    last = next((e for e in lives if e["instance"] == instance), lives[-1] if lives else None)
    fields = ("reason", "returncode", "forced", "left", "ended_at", "gpu_memory")
    if last is None:
        last = dict.fromkeys(fields) | {"reason": "no server was started", "forced": False}
        last["left"] = []
    return {f: last[f] for f in fields} | {"instances": [e["instance"] for e in lives]}
