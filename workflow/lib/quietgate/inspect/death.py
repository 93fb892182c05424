"""Why a server ended by itself: by its own log, else by what its other processes and NCCL logged beside it.

A rank whose collective fails logs little more than "NCCL error: invalid usage"; which one, and why, stands
in the file that NCCL_DEBUG_FILE names. That sentence is taken only where the server's own log tells of
nothing but NCCL, and only where NCCL did not go on after it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from quietgate.inspect.failure_classes import Failure, told
from quietgate.inspect.failure_ranks import ROOT, VAGUE
from quietgate.inspect.failure_rules import rule_of
from quietgate.inspect.failures import classify
from quietgate.inspect.lines import blocks
from quietgate.inspect.prefixes import message

_LONGEST = 4 << 10  # bytes, far above NCCL's own lines
# Classes that tell no more than that NCCL failed, in a line that is not NCCL's own.
_OF_NCCL = ("nccl_init", "nccl_timeout", "graph_capture")
# Too little to be taken from the log of another process than the first.
_NO_CAUSE = ("unknown", "killed", "hang")
# NCCL works on: what it warned of before was survived.
_WENT_ON = (b"- Init COMPLETE", b" Bytes -> ", b"Connected all ")
# Of another rank, or the way to it: that one may have died of what the others only notice.
_OF_A_PEER = re.compile(rb"[Cc]onnect|\bremote\b|\breset\b")
_SAID = re.compile(r"(?:(\w[\w./]*\.\w+:\d+) )?(NCCL WARN .*)", re.S)


@dataclass(frozen=True)
class Death:
    """Why a server ended by itself.

    Attributes:
        failure: the cause; its line number is one of `log`.
        log: the file in which it stands.
        own: what the server's log says instead, or None where that is the cause itself or says nothing.
    """

    failure: Failure
    log: Path
    own: Failure | None = None


def why(log: Path) -> Death | None:
    """The cause that the logs of a server life tell, or None; a stop by us is none.

    Args:
        log: of the server's first process; those of others (`server.*.log`) and NCCL's (`nccl.*.log`) are
            looked for beside it.
    """
    own = _cause(log)
    if own is not None and not _of_nccl(own):
        return Death(own, log)
    for other in sorted(log.parent.glob("server.*.log")):
        found = _cause(other)
        if found is None:
            continue
        if not _of_nccl(found) and found.failure_class not in _NO_CAUSE:
            return Death(found, other, own)
        if own is None and _of_nccl(found):
            own, log = found, other
    if own is None:
        return None
    return _of_nccls_logs(log.parent, own) or Death(own, log)


def _cause(log: Path) -> Failure | None:
    found = classify(log, exited=True)
    return None if found is None or found.failure_class == "stopped_by_us" else found


def _of_nccl(failure: Failure) -> bool:
    """Does it tell no more than that NCCL failed?"""
    if "NCCL WARN" in failure.message:
        return False
    return failure.failure_class in _OF_NCCL or (
        failure.failure_class == "unknown" and "NCCL" in failure.message
    )


def _of_nccls_logs(folder: Path, own: Failure) -> Death | None:
    """The sentence of NCCL's that explains most, of all ranks."""
    found = [(*one, path) for path in sorted(folder.glob("nccl.*.log")) if (one := _last(path))]
    if not found:
        return None
    weight, failure, path = min(found, key=lambda one: one[0])
    # After a time-out, or a capture that failed, ranks complain of each other: that caused nothing.
    if own.failure_class != "nccl_init" and weight != (ROOT, False):
        return None
    return Death(failure, path, own)


def _last(log: Path) -> tuple[tuple[int, bool], Failure] | None:
    """How little it explains, and what NCCL complained of in this log since it last went on."""
    best: tuple[tuple[int, bool], Failure] | None = None
    for block in blocks(log, tolerant=True):
        for i, line in enumerate(block.lines):
            if any(sign in line for sign in _WENT_ON):
                best = None
            elif b"NCCL WARN" in line and (rule := rule_of(line := line[:_LONGEST])):
                weight = rule.rank, bool(_OF_A_PEER.search(line))
                if rule.rank > VAGUE or (best is not None and best[0] <= weight):
                    continue
                said = _SAID.search(message(line))
                place, text = said.groups() if said else (None, message(line))
                best = weight, told(rule.failure_class, text, block.number(i), place)
    return best
