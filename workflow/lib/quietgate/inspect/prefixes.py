"""What stands before a log message: shippers, stamps, ranks. Told apart, so that the message is bare."""

from __future__ import annotations

import json
import re

# In the order in which they are peeled off, each as often as it occurs.
_PEEL = re.compile(
    rb"""\s*(?:
      \d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,\d]*(?:Z|[+-]\d\d:?\d\d)?\s+
          (?:std(?:err|out)\s+[FP]\s+)?                                                # kubelet
          (?:-\s+(?:[\w.]+\s+-\s+)?[A-Z]+\s+-\s+|\|\s+[A-Z]+\s+\|\s+\S+\s+-\s)?          # logging, loguru
    | (?:ERROR|INFO|WARNING|DEBUG|DEFAULT|NOTICE|CRITICAL)\s+(?=\d{4}-\d\d-\d\dT)       # cloud export
    | (?:ERROR|INFO|WARNING|DEBUG)\s+\d\d-\d\d\s\d\d:\d\d:\d\d\s+\S+:\d+\]\s             # vLLM style
    | [A-Z][a-z]{2}\s+\d+\s\d\d:\d\d:\d\d\s+                                              # syslog, journal
    | [\w.-]+\s[\w.@/-]+\[\d+\]:\s                                                        # host unit[pid]:
    | \[\s*\d+\.\d+s?\]\s+                                                              # seconds since boot
    | \[\d{4}-\d\d-\d\d[T ][^\]\n]{8,60}\]\s*
    | \[\d\d:\d\d:\d\d[^\]\n]{0,40}\]\s*
    | \[(?:DEBUG|INFO|WARN|WARNING|ERROR)\]\s+
    | \[pod/[^\]\s]+\]\s                                                                # kubectl --prefix
    | \{\w+=[^{}]*\}\s                                                                 # Loki's labels
    | \d{13}\s                                                                        # milliseconds
    | \[rank\d+\]:\s?
    | \((?:\w[\w.]*\s+)?pid=\d+(?:,\s*ip=[^)]*)?\)\s?                                         # Ray actor
    | \(raylet[^)]*\)\s
    | >\s                                                                               # quoted in Markdown
    | [\w.-]+\s>>\s                                                                      # host >>
    | [\w.@-]+\s+\|\s                                                                    # docker compose
    | \xe2\x94[\x82\x83]\s                                                              # a terminal's frame
    | \[[\d,]+\]<std(?:err|out)>:                                                        # mpirun
    | \d+:\s+                                                                            # srun --label
    | (?!python|\w*(?:Error|Exception):|E[A-Z]\d{4}:)[A-Za-z](?=[\w.-]*\d)[\w.-]*:\s(?=\S)  # host:
    | (?:INFO|WARNING|ERROR|CRITICAL):\s+
    )""",
    re.X,
)
_TEXT_KEYS = ("log", "message", "msg", "textPayload", "MESSAGE", "line", "body", "text")
_WRAPPED = re.compile(rb'^\s*\{.*"(?:%b)":\s*"' % "|".join(_TEXT_KEYS).encode())
# --log-requests writes what users said, which may be about anything: as text, or as JSON.
USERS_TEXT = b": obj="
USERS_JSON = b'"event": "request.'
_RANKS = re.compile(rb"\b(DP|PP|ATTN_CP|MOE_DP|TP|EP|CP)(\d+)\b")
_STAMP = re.compile(
    rb"\[(?:(\d{4}-\d\d-\d\d)[ T])?(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?((?:\s+[A-Z_]+\d+)*)\s*\]"
)


def message(line: bytes) -> str:
    """The line as a person would quote it: shipper's wrapping, stamps and ranks taken off."""
    line = unwrapped(line)
    at = 0
    while found := _PEEL.match(line, at):
        if found.end() == at:
            break
        at = found.end()
    return line[at:].decode("utf-8", "replace").rstrip("│┃ \r\n").strip()


def unwrapped(line: bytes) -> bytes:
    """The line without a JSON wrapping (docker's json-file, structured shippers), else as it is."""
    return _unwrapped(line) if _WRAPPED.match(line) else line


def _unwrapped(line: bytes) -> bytes:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return line
    for key in _TEXT_KEYS:
        text = record.get(key) if isinstance(record, dict) else None
        if isinstance(text, str):
            return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).rstrip("\r\n").encode()
    return line


def of_users(before: bytes) -> bool:
    """Is what follows this part of a line something that the server quotes, and not its own words?"""
    if USERS_TEXT in before or USERS_JSON in before:
        return True
    stamps = list(_STAMP.finditer(before))
    quoting = before[stamps[-1].end() :] if stamps else before
    return b"'" in quoting or b'"' in quoting


def shipper(line: bytes) -> re.Pattern[bytes] | None:
    """What a shipper wrote before the server's own stamp, as it may stand before lines without a stamp."""
    stamps = [] if _WRAPPED.match(line) else list(_STAMP.finditer(line))
    before = line[: stamps[-1].start()] if stamps else b""
    return re.compile(rb"\d+".join(map(re.escape, re.split(rb"\d+", before)))) if before.strip() else None


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
