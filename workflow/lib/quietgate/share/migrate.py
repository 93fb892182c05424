"""Records of earlier schema versions: read by way of steps that make the next version of them.

Every record says `quietgate/<kind>/<n>`. When a kind's schema changes, `CURRENT` rises and a step from the
version before is added to `STEPS`; until somebody runs it, older records are refused with the command.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from quietgate import records
from quietgate.errors import BadInput
from quietgate.share import strict
from quietgate.share.archive import files, shown

# The version of each kind that is written now; kinds not named here are at 1.
CURRENT: dict[str, int] = {}
# (kind, n) -> what makes version n + 1 of a record of version n.
STEPS: dict[tuple[str, int], Callable[[records.Record], records.Record]] = {}

_SCHEMA = re.compile(r"quietgate/([a-z_]+)/([0-9]{1,4})")


def version_of(record: Any) -> tuple[str, int] | None:
    """Kind and schema version of a record, or None where it says neither."""
    schema = record.get("schema") if isinstance(record, dict) else None
    found = _SCHEMA.fullmatch(schema) if isinstance(schema, str) else None
    return (found[1], int(found[2])) if found else None


def version_problem(record: Any) -> str | None:
    """Why a record of another schema version cannot be read as it is, and what to do; None for ours."""
    version = version_of(record)
    if version is None:
        return "not a quietgate record"
    kind, number = version
    now = CURRENT.get(kind, 1)
    if number > now:
        return (
            f"written by a newer quietgate (schema {kind} {number}, this one reads {now}); update quietgate"
        )
    if number < now:
        if any((kind, n) not in STEPS for n in range(number, now)):
            return f"schema {kind} {number} is too old to be read (now {now}); repeat the measurement"
        return (
            f"of the earlier schema {kind} {number} (now {now}); "
            "run `python -m quietgate migrate FOLDER` on these results (an archive unpacked)"
        )
    return None


def migrate(root: Path) -> Iterator[str]:
    """Bring every older record in a results folder to the version of now; yields one line per record.

    BadInput where a record cannot be brought there; records before it are done by then, and may be again.
    """
    if not root.is_dir():
        raise BadInput(f"{shown(root)}: migrate works on a results folder; unpack the archive first")
    for name in files(root):
        if not name.endswith(".json"):
            continue
        path = root / name
        record = strict.load(path)
        version = version_of(record)
        if version is None or version[1] == CURRENT.get(version[0], 1):
            continue
        kind, number = version
        now = CURRENT.get(kind, 1)
        if number > now or any((kind, n) not in STEPS for n in range(number, now)):
            raise BadInput(f"{shown(path)}: {version_problem(record)}")
        for n in range(number, now):
            record = STEPS[kind, n](record) | {"schema": f"quietgate/{kind}/{n + 1}"}
        records.write(path, record)
        yield f"{shown(name)}: {kind} {number} -> {now}"
