"""What stands before a log message: shippers, stamps, ranks. Told apart, so that the message is bare."""

from __future__ import annotations

import json
import re

# In the order in which they are peeled off, each as often as it occurs.
_PEEL = re.compile(
    rb"""\s*(?:
      \d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,\d]*(?:Z|[+-]\d\d:?\d\d)?\s+
          (?:std(?:err|out)\s+[FP]\s+)?(?:-\s+[A-Z]+\s+-\s+)?                            # kubelet, logging
    | (?:ERROR|INFO|WARNING|DEBUG|DEFAULT|NOTICE|CRITICAL)\s+(?=\d{4}-\d\d-\d\dT)       # cloud export
    | (?:ERROR|INFO|WARNING|DEBUG)\s+\d\d-\d\d\s\d\d:\d\d:\d\d\s+\S+:\d+\]\s             # vLLM style
    | [A-Z][a-z]{2}\s+\d+\s\d\d:\d\d:\d\d\s+\S+\s+\S+\[\d+\]:\s                          # syslog, journal
    | \[\d{4}-\d\d-\d\d[T ][^\]\n]{8,60}\]\s*
    | \[\d\d:\d\d:\d\d[^\]\n]{0,40}\]\s*
    | \[rank\d+\]:\s?
    | \((?:\w[\w.]*\s+)?pid=\d+(?:,\s*ip=[^)]*)?\)\s?                                         # Ray actor
    | [\w.-]+\s>>\s                                                                      # host >>
    | [\w.-]+\s+\|\s                                                                     # docker compose
    | \[[\d,]+\]<std(?:err|out)>:                                                        # mpirun
    | \d+:\s(?=\[)                                                                       # srun --label
    | (?:INFO|WARNING|ERROR|CRITICAL):\s+
    )""",
    re.X,
)
_DOCKER = re.compile(rb'^\s*\{.*"(?:log|message|msg)":\s*"')
_RANKS = re.compile(rb"\b(DP|PP|ATTN_CP|MOE_DP|TP|EP|CP)(\d+)\b")
_STAMP = re.compile(
    rb"\[(?:(\d{4}-\d\d-\d\d)[ T])?(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?((?:\s+[A-Z_]+\d+)*)\s*\]"
)


def message(line: bytes) -> str:
    """The line as a person would quote it: shipper's wrapping, stamps and ranks taken off."""
    if _DOCKER.match(line):
        line = _unwrapped(line)
    at = 0
    while found := _PEEL.match(line, at):
        if found.end() == at:
            break
        at = found.end()
    return line[at:].decode("utf-8", "replace").strip()


def unwrapped(line: bytes) -> bytes:
    """The line without a JSON wrapping (docker's json-file, structured shippers), else as it is."""
    return _unwrapped(line) if _DOCKER.match(line) else line


def _unwrapped(line: bytes) -> bytes:
    try:
        record = json.loads(line)
    except ValueError:
        return line
    for key in ("log", "message", "msg"):
        text = record.get(key) if isinstance(record, dict) else None
        if isinstance(text, str):
            return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).rstrip("\r\n").encode()
    return line


def stamp(prefix: bytes) -> tuple[str | None, float | None, dict[str, int]]:
    """Of a line's prefix, the innermost stamp: date (None where it has none), seconds of the day, ranks."""
    stamps = list(_STAMP.finditer(prefix))
    if not stamps:
        return None, None, ranks(prefix)
    date, hours, minutes, seconds, fraction, named = stamps[-1].groups()  # the last is SGLang's own
    of_day = int(hours) * 3600 + int(minutes) * 60 + int(seconds)
    part = float(b"0." + fraction) if fraction else 0.0
    return date.decode() if date else None, of_day + part, ranks(named)


def ranks(text: bytes) -> dict[str, int]:
    """The ranks named in a prefix, e.g. {"DP": 1, "TP": 4}."""
    return {name.decode(): int(number) for name, number in _RANKS.findall(text)}
