"""What the supervisors of one launch share: their order, their signals, their log."""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quietgate.files import read_json
from quietgate.serve.processes import Identity
from quietgate.serve.state import LaunchSpec, utc

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
AWAITED = {*STOP_SIGNALS, signal.SIGCHLD}
"""Signals that are blocked in the supervisors, and reported by `wait_for_signal`."""


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
