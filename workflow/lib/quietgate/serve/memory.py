"""Waiting until a dead server's GPU memory is really free: the driver frees it after the process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from quietgate import gpus
from quietgate.nvml import NvmlError

# What other programs' contexts may come and go by.
TOLERANCE_MIB = 256


def level(uuids: Sequence[str]) -> tuple[dict[str, int] | None, str | None]:
    """(MiB in use by GPU, None) or (None, why that cannot be told)."""
    if not uuids:
        return None, "no GPU in this slot"
    try:
        return gpus.used_mib(uuids), None
    except NvmlError as e:
        return None, str(e)


def settle(
    uuids: Sequence[str], before: dict[str, int] | None, why: str | None, timeout_s: float
) -> dict[str, Any]:
    """Wait until memory is back near `before`; the record of it, `settled` null where unknown."""
    begun = time.monotonic()
    after: dict[str, int] | None = None
    settled: bool | None = None
    while before is not None:
        after, why = level(uuids)
        if after is None:
            break
        settled = all(after[u] <= before[u] + TOLERANCE_MIB for u in before)
        if settled or time.monotonic() - begun > timeout_s:
            break
        time.sleep(0.05)
    return {
        "used_before_mib": before,
        "used_after_mib": after,
        "settled": settled,
        "waited_s": round(time.monotonic() - begun, 3),
        "why": why,
    }
