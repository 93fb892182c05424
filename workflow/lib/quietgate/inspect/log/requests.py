"""What a server writes about requests: its answers by status, and with --log-requests what users said."""

from __future__ import annotations

import re
from collections import Counter

from quietgate.inspect.log.kinds import Kind, Read, Sort, varied
from quietgate.inspect.prefixes import USERS_JSON, USERS_TEXT

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


def _said(words: bytes) -> Sort:
    """Lines that go on with what users said after these words."""

    def before(line: bytes) -> bytes:
        return line.partition(words)[0]

    return Sort(words, lambda line: Kind(varied(before(line)) + re.escape(words) + b"[^\n]*+"), before)


ANSWERS = Sort(_ACCESS, _answer)
USERS = _said(USERS_TEXT), _said(USERS_JSON)
