"""Why a server died, in one class and one line, from its logs and exit status."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

from quietgate.inspect import death
from quietgate.inspect.last_words import last_words

_BY_SIGNAL = {
    signal.SIGKILL: ("killed", "killed from outside (SIGKILL), often by the kernel for memory"),
    signal.SIGSEGV: ("segmentation_fault", "segmentation fault (SIGSEGV)"),
    signal.SIGBUS: ("shared_memory", "bus error (SIGBUS), often a full /dev/shm"),
    signal.SIGTERM: ("killed", "told to end from outside (SIGTERM)"),
}


@dataclass(frozen=True)
class Cause:
    """A class of failure, the reason for a person, and the lines it rests on."""

    failure_class: str
    message: str
    lines: list[str]


def of_death(log: Path, returncode: int | None) -> Cause:
    """The cause that the log tells, or those beside it, else what the exit status tells.

    Args:
        returncode: as Python reports it: negative for a signal; a shell's 128 + signal counts too.
    """
    dead = death.why(log)
    if dead is not None:
        found = dead.failure
        lines = [found.message]
        lines += [f"at {found.location}"] if found.location else []
        lines += [found.advice] if found.advice else []
        lines += [f"the server's own log: {dead.own.message}"] if dead.own else []
        where = f" ({dead.log.name}, line {found.line})" if found.line else ""
        return Cause(found.failure_class, found.message + where, lines)
    if returncode is None:
        return Cause("killed", "no reason in its log and no exit status", [])
    number = -returncode if returncode < 0 else returncode - 128
    for known, (failure_class, message) in _BY_SIGNAL.items():
        if number == known:
            return Cause(failure_class, message, [])
    words = last_words(log)
    return Cause("unknown", words or "nothing in its log", [words] if words else [])
