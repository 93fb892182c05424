"""Waiting for a launch's turn: for the end of its last server, then for a free slot."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from quietgate.files import read_json
from quietgate.serve import memory
from quietgate.serve.locks import Lock, try_lock
from quietgate.serve.order import NotStarted, Order, event, wait_for_signal
from quietgate.serve.processes import alive, can_judge
from quietgate.serve.slots import Slot, try_slot
from quietgate.serve.state import State
from quietgate.serve.strays import leaders_of, supervised, sweep
from quietgate.serve.waiting import Ticket

POLL_S = 0.05
_T = TypeVar("_T")


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
        self.memory_before = memory.level(self.slot.gpu_uuids)

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
