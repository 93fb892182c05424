"""profile.json extracted again from the records and traces it came from."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from quietgate.analyse.launch_records import LaunchRecords
from quietgate.analyse.profile import profile as extract
from quietgate.errors import BadInput
from quietgate.records import Record
from quietgate.share.archive import below, shown
from quietgate.share.numbers import equal
from quietgate.share.redraw import differences
from quietgate.study.stages import profile_digest

# Reading takes about a second per this many bytes of gzipped trace.
_QUICK_BYTES = 1_000_000
# A trace that unpacks to more was made to fill a disk or a memory.
_MAX_RATIO = 300
_CHUNK = 2**20
_FOLDER = re.compile(r"[^\s'\"]*/trace/")


def comparable(study: Record, found: LaunchRecords) -> bool:
    """Whether the profile was made by these very readers, so that it must come out the same."""
    mine = profile_digest(found.cell["digests"], study["config"]["capture"])
    return bool(found.records["profile"]["digest"] == mine)


def is_quick(folder: Path) -> bool:
    """Whether the launch's traces are small enough to be read by the way."""
    return sum(p.stat().st_size for p in (folder / "trace").glob("*")) < _QUICK_BYTES


def problems(folder: Path, profile: Record, steps: int) -> Iterator[str]:
    """Where profile.json is not what its sources give."""
    for path in sorted((folder / "trace").glob("*.gz")):
        if _is_bomb(path):
            yield f"trace/{path.name}: unpacks to more than {_MAX_RATIO} times its size, or is damaged"
            return
    try:
        again = extract(folder, steps)
    except BadInput as e:
        yield f"profile.json: cannot be extracted again ({below(folder, shown(e))[:200]})"
        return
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError) as e:
        yield f"profile.json: its sources are garbled ({shown(repr(e))[:100]})"
        return
    for name, value in again.items():
        for place, here, there in differences(value, profile.get(name)):
            if not _same(here, there):
                named, given = (_FOLDER.sub("trace/", repr(x))[:60] for x in (there, here))
                yield f"profile.json: {name}{place} is {named}, its sources give {given}"
                return


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, str) and isinstance(b, str):
        # A trace is named by its path, which is another one here.
        return bool(_FOLDER.sub("trace/", a) == _FOLDER.sub("trace/", b))
    return type(a) is not bool and type(b) is not bool and equal(a, b)


def _is_bomb(path: Path) -> bool:
    limit = _MAX_RATIO * path.stat().st_size
    size = 0
    try:
        with gzip.open(path) as f:
            while chunk := f.read(_CHUNK):
                size += len(chunk)
                if size > limit:
                    return True
    except (OSError, EOFError, zlib.error):
        return True
    return False
