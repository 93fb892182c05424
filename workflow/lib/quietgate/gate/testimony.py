"""Stage 6: what NCCL itself says it was given and what it chose."""

from __future__ import annotations

from quietgate.gate.stage import NotApplicable, Subject


def prove(subject: Subject) -> None:
    """Not built yet."""
    raise NotApplicable("not read yet", {"profile_verdict": "not_exercised", "ranks": []})
