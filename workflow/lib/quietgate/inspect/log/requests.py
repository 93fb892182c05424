"""What a server writes about requests: its answers by status, and with --log-requests what users said."""

from __future__ import annotations

import re
from collections import Counter

from quietgate.inspect.failures import USERS_TEXT
from quietgate.inspect.log.kinds import Kind, Read, Sort, varied

_ACCESS = b' HTTP/1.1" '


def statuses(read: Read) -> Counter[bytes]:
    """How many answers of each status a block has."""
    counts = Counter(_status(line) for _, line in read.odd)
    for lines in read.found:
        column = lines.values["status"]
        if column.count(b"200") == lines.count:
            counts[b"200"] += lines.count
        else:
            counts.update(column)
    return counts


def _status(line: bytes) -> bytes:
    return b"200" if line.endswith(b"200 OK") else line.rpartition(b'" ')[2][:3]


def _answer(line: bytes) -> Kind | None:
    head, _, tail = line.partition(_ACCESS)
    if b'" ' in tail or not re.match(rb"\d{3}(?!\d)", tail):
        return None
    return Kind(varied(head) + re.escape(_ACCESS) + b"([0-9]{3})" + varied(tail[3:]), ("status",))


def _before_users(line: bytes) -> bytes:
    return line.partition(USERS_TEXT)[0]


def _users(line: bytes) -> Kind:
    return Kind(varied(_before_users(line)) + re.escape(USERS_TEXT) + b"[^\n]*+")


ANSWERS, USERS = Sort(_ACCESS, _answer), Sort(USERS_TEXT, _users, _before_users)
