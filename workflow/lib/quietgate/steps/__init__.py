"""One function per workflow rule: reads files, calls the layers below, writes records.

Importing this package gives the process its way of ending: what is the person's or the machine's doing is
told in one line. It is set here so that it also holds while a step's libraries are being imported.
"""

from __future__ import annotations

import errno
import sys
from types import TracebackType

from quietgate.errors import BadInput

_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_inherited = sys.excepthook


def disk_trouble(error: BaseException) -> bool:
    """Whether an error is that of a full or read-only disk, which no cell is to blame for."""
    return isinstance(error, OSError) and error.errno in _DISK


def _tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if isinstance(error, KeyboardInterrupt):
        print("interrupted; the next run repeats what was cut", file=sys.stderr)
    elif isinstance(error, BadInput):
        print(error, file=sys.stderr)
    elif isinstance(error, OSError) and disk_trouble(error):
        place = f"{error.filename}: " if error.filename else ""
        print(f"{place}{error.strerror}; make room, the next run repeats what was cut", file=sys.stderr)
    else:
        _inherited(kind, error, trace)


sys.excepthook = _tell
