"""What a stage of a gate record found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def of_stage(record: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """The evidence of the stage of that name in a gate record; None where it did not come to it."""
    for stage in record.get("stages") or ():
        if stage.get("name") == name:
            evidence: Mapping[str, Any] | None = stage.get("evidence")
            return evidence
    return None
