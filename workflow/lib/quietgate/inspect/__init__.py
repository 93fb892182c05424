"""Readers of server logs, NCCL logs, traces, metrics and benchmark files; no state, no study."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from quietgate.errors import BadInput

_WHAT = {
    "log": "a server's log",
    "nccl": "an NCCL log",
    "trace": "a torch profiler trace",
    "bench": "a benchmark's result",
    "metrics": "an answer of /metrics",
}


def read(kind: str, files: list[Path]) -> dict[str, Any]:
    """One JSON-able object about the files of one kind: log, nccl, trace, bench or metrics.

    Ranks of one server (`nccl`, `trace`) are read together; of the other kinds, several files give
    {"files": {name: object}}. BadInput also says which kind a refused file looks like.
    """
    for file in files:
        # Gigabytes, perhaps, which the other readers need not look through.
        if kind != "trace" and _looks_like(file) == "trace":
            raise _mistaken(kind, file, "trace")
    try:
        return _read(kind, files)
    except BadInput as error:
        for file in files:
            if str(error).startswith(f"{file}:") and (found := _looks_like(file)) not in (None, kind):
                raise _mistaken(kind, file, found) from None
        raise


def _looks_like(file: Path) -> str | None:
    from quietgate.inspect.lines import beginning
    from quietgate.inspect.recognise import kind_of

    return kind_of(beginning(file))


def _mistaken(kind: str, file: Path, found: str) -> BadInput:
    return BadInput(
        f"{file}: not what `inspect {kind}` reads; it looks like {_WHAT[found]}: "
        f"python -m quietgate inspect {found} FILE"
    )


def _read(kind: str, files: list[Path]) -> dict[str, Any]:
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
        from quietgate.inspect.metrics_file import read as reader
    else:
        raise BadInput(f"inspect: unknown kind {kind!r}")
    if len(files) == 1:
        return dict(reader(files[0]))
    return {"files": {str(f): reader(f) for f in files}}
