"""The line that a dead server's log is best quoted by, where no known failure is in it."""

from __future__ import annotations

import re
from pathlib import Path

from quietgate.inspect.prefixes import message

_TAIL_BYTES = 256_000
_LONGEST = 600
# What stands last in many logs and says nothing: traffic, NCCL's chatter, Python's warnings at exit.
_NOISE = re.compile(
    rb'" \d{3}\b|HTTP/1\.1"|NCCL INFO|resource_tracker|warnings\.warn|Decode batch|Prefill batch'
)
_COMPLAINT = re.compile(
    rb"\b(?:errors?|fatal|fail(?:ed|ure|s)?|cannot|can't|could not|abort(?:ed|ing)?|panic|invalid|refused"
    rb"|unrecognized|not found|no such)\b",
    re.I,
)


def last_words(log: Path) -> str | None:
    """The last complaint at the end of a log, else its last line that says something; None without any."""
    try:
        with Path(log).open("rb") as f:
            f.seek(0, 2)
            f.seek(max(0, f.tell() - _TAIL_BYTES))
            lines = f.read().replace(b"\r", b"\n").splitlines()
    except OSError:
        return None
    lines = [line for line in lines if line.strip() and not _NOISE.search(line)]
    complaints = [line for line in lines if _COMPLAINT.search(line)]
    chosen = complaints or lines
    return message(chosen[-1])[:_LONGEST].strip() or None if chosen else None
