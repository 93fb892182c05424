"""What the gates of a study say together: drifts, agreement of texts, NCCL's choices by profile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from quietgate import records
from quietgate.gate import agreement, choices, drift

Finding = dict[str, Any]


def findings(gates: Sequence[records.Record], study: Mapping[str, Any]) -> dict[str, list[Any]]:
    """{"drifts", "agreement", "warnings"}: each finding with its `text` for a person.

    Args:
        gates: the passed gates of the server lives that were measured, in run order.
    """
    declared = drift.declared_arguments(study["config"])
    drifts = [{**d, "text": drift.describe(d)} for d in drift.drift(gates, declared)]
    return {
        "drifts": drifts,
        "agreement": list(_agreement(gates, study)),
        "warnings": [
            *choices.sentences(gates, study["cells"], study["config"]["benchmark"]["concurrency"]),
            *map(drift.describe, drift.consequences(gates, declared)),
        ],
    }


def _agreement(gates: Sequence[records.Record], study: Mapping[str, Any]) -> Iterator[Finding]:
    """The greedy texts of each speculative cell's first launch against its baseline's."""
    first: dict[str, records.Record] = {}
    for record in gates:
        first.setdefault(record["cell"], record)
    for cell in study["cells"]:
        base = agreement.baseline_of(cell, study["cells"]) if cell["steps"] else None
        if base is None or cell["id"] not in first or base["id"] not in first:
            continue
        for found in agreement.agreement(first[cell["id"]], first[base["id"]]):
            place = f"{cell['id']} against {base['id']}, prompt {found['prompt_id']}"
            if found["same"]:
                text = f"{place}: the same {found['length']} {found['compared']}"
            else:
                text = (
                    f"{place}: {found['compared']} differ first at {found['first_difference']} "
                    f"({found['here']!r} instead of {found['there']!r})"
                )
            yield {"cell": cell["id"], "baseline": base["id"], **found, "text": text}
