"""Launches that were measured by other code, libraries, drivers or servers than the rest of their table."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from quietgate.analyse.launch_records import LaunchRecords
from quietgate.gate.evidence import of_stage
from quietgate.records import Record
from quietgate.share import extracted
from quietgate.wording import counted


def problems(launches: Sequence[LaunchRecords]) -> Iterator[str]:
    """One line per version that is not the same in every measured launch."""
    seen: defaultdict[str, Counter[str]] = defaultdict(Counter)
    where: dict[tuple[str, str], str] = {}
    for found in launches:
        if found.passed("benchmark") is None:
            continue
        for what, value in facts(found).items():
            seen[what][value] += 1
            where.setdefault((what, value), f"{found.cell['id']} {found.launch}")
    for what, values in seen.items():
        if len(values) > 1:
            told = ", ".join(
                f"{value} ({counted(n, 'launch')}, first {where[what, value]})"
                for value, n in values.most_common(4)
            )
            yield f"launches of different versions in one table: {what}: {told}"


def readers(study: Record, launches: Sequence[LaunchRecords]) -> Iterator[str]:
    """All profiles of a table come from one version of the readers, or from none that is known here."""
    ours: list[LaunchRecords] = []
    others: list[LaunchRecords] = []
    for found in launches:
        profile = found.passed("profile")
        if profile is not None:
            (ours if extracted.comparable(study, found) else others).append(found)
    if ours and others:
        first = others[0]
        yield (
            f"launches of different versions in one table: {counted(len(others), 'profile')} extracted by"
            f" other readers than the rest (first {first.cell['id']} {first.launch})"
        )


def facts(found: LaunchRecords) -> dict[str, str]:
    """Versions that a launch was measured with: code, libraries, driver, GPUs, SGLang, NCCL."""
    launch = found.records.get("launch") or {}
    out = {name: str(v) for name, v in sorted((launch.get("versions") or {}).items())}
    out["driver"] = str(launch.get("driver"))
    out["GPUs"] = json.dumps(sorted(str(g.get("name")) for g in launch.get("gpus") or []))
    out |= server_facts(found.gate or {})
    return out


def server_facts(gate: Mapping[str, Any]) -> dict[str, str]:
    """SGLang's and NCCL's own versions, as the gate saw them."""
    said = {
        "SGLang": (of_stage(gate, "arguments") or {}).get("version"),
        "NCCL": ", ".join((of_stage(gate, "nccl") or {}).get("versions") or ()),
    }
    return {what: str(version) for what, version in said.items() if version}
