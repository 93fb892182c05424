"""At the start of a run: the study is taken, and what killed runs left alive is ended."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from quietgate.errors import BadInput, CellFailed
from quietgate.files import read_json
from quietgate.serve.locks import Lock, peek, try_lock
from quietgate.serve.ownership import owner, owner_alive
from quietgate.serve.processes import Identity, send
from quietgate.serve.state import State, utc
from quietgate.serve.strays import bury

LOCK = ".live/study.lock"


def lock_study(study_dir: Path) -> Lock:
    """Take the study for this run; BadInput when another run has it. Held until the process ends."""
    path = Path(study_dir) / LOCK
    try:
        lock = try_lock(path)
    except OSError as e:
        raise BadInput(f"{path}: cannot lock this study ({e.strerror or e})") from None
    if lock is None:
        holder = peek(path) or {}
        who = f"pid {holder.get('pid', '?')} on {holder.get('host', '?')}"
        raise BadInput(
            f"{study_dir}: another run of this study is in progress ({who}, since "
            f"{holder.get('since', '?')}); wait for it, or stop it and start again"
        )
    here = owner()
    lock.write_note({"pid": os.getpid(), "host": here["place"]["host"], "since": utc()})
    return lock


def run_began(study_dir: Path) -> float:
    """When the present run took the study, on the clock of its files' times (s); 0 where none ever did."""
    try:
        return (Path(study_dir) / LOCK).stat().st_mtime
    except FileNotFoundError:
        return 0.0


def reap_stale(
    study_dir: Path, timeout_s: float = 180.0, say: Callable[[str], None] | None = None
) -> list[str]:
    """End what killed runs of this study left alive; one line for each thing found.

    Args:
        say: hears of a wait before it begins.

    Only for the holder of the study's lock. Supervisors of a dead owner end their servers by
    themselves: they are waited for, and killed when they do not. Servers of another host's runs
    (batch jobs of a killed main process) cannot be judged from here and are only named.
    """
    said = []
    give_up = time.monotonic() + timeout_s
    for order_path in sorted(Path(study_dir).glob(".live/*/*/spec.json")):
        state = State(order_path.parent)
        order = read_json(order_path)
        if not isinstance(order, dict):
            continue
        name = "/".join(state.folder.parts[-2:])
        if (lock := try_lock(state.lock)) is None:
            judged = owner_alive(order["owner"])
            if judged is None:
                host = order["owner"].get("place", {}).get("host")
                said.append(f"{name}: in use by a job on {host}, left alone; cancel it first")
                continue
            if judged:
                said.append(f"{name}: in use by pid {order['owner']['pid']}, left alone")
                continue
            said.append(f"{name}: waited for the server of a killed run to end")
            if say:
                say(f"{name}: waiting for the server of a killed run to end (up to {timeout_s:.0f} s)")
            lock = _await_lock(state, give_up)
        if lock is None:
            raise CellFailed("killed", f"{name}: the server of a killed run cannot be ended")
        try:
            left = bury(state) if owner_alive(order["owner"]) is not None else None
            if left is not None:
                said.append(f"{name}: ended what both killed supervisors had left")
            if left:
                said.append(f"{name}: processes {left} cannot be ended")
        finally:
            lock.release()
    return said


def _await_lock(state: State, give_up: float) -> Lock | None:
    """The launch's lock once its supervisors are gone, which is forced when time is up."""
    forced_until = give_up + 10
    while time.monotonic() < forced_until:
        if lock := try_lock(state.lock):
            return lock
        lease = read_json(state.lease)
        if time.monotonic() > give_up and isinstance(lease, dict):
            for supervisor in lease["supervisors"]:
                send(Identity.from_json(supervisor), signal.SIGKILL)
        time.sleep(0.05)
    return None
