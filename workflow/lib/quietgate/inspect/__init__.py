"""Readers of server logs, NCCL logs, traces, metrics and benchmark files; no state, no study."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from quietgate.errors import BadInput


def read(kind: str, files: list[Path]) -> dict[str, Any]:
    """One JSON-able object about the files of one kind: log, nccl, trace, bench or metrics.

    Ranks of one server (`nccl`, `trace`) are read together; of the other kinds, several files give
    {"files": {name: object}}.
    """
    # Imported here: a reader may need a heavy library that the others do not.
    if kind == "nccl":
        from quietgate.inspect import nccl

        return dict(nccl.read(files))
    if kind == "trace":
        from quietgate.inspect.trace import ranks

        return dict(ranks.read(files))
    if kind == "log":
        from quietgate.inspect.log import read as reader
    elif kind == "bench":
        from quietgate.inspect.bench import read as reader
    elif kind == "metrics":
        from quietgate.inspect.metrics import read as reader
    else:
        raise BadInput(f"inspect: unknown kind {kind!r}")
    if len(files) == 1:
        return dict(reader(files[0]))
    return {"files": {str(f): reader(f) for f in files}}
