"""Why a server died, in one class and one line, from its log and exit status."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Cause:
    """A class of failure, the reason for a person, and the log's root line."""

    failure_class: str
    message: str
    line: str | None = None


def of_death(log: str, returncode: int | None) -> Cause:
    """The cause of death that the log tells, else what the exit status tells."""
    try:
        failures: Any = importlib.import_module("quietgate.inspect.failures")
        found = failures.classify(log, returncode)
        return Cause(found.failure_class, found.message, found.line)
    except (ImportError, AttributeError):
        return Cause("unknown", "no known reason in its log")
