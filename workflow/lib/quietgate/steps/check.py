"""Rule `check`: the study's last word; fails the run when any launch did not pass."""

from __future__ import annotations

import sys
from pathlib import Path

from quietgate import records
from quietgate.files import read_json
from quietgate.share.seal import seal
from quietgate.steps.place import FROZEN
from quietgate.study import Study
from quietgate.study.stages import chain, launch_folder, tables_digest
from quietgate.wording import counted


def main(record: str, log: str) -> None:
    """Run the rule: exit status 1 and one line per failed launch, or the record `check`."""
    root = Path(record).parent
    study = Study.thaw(root / FROZEN)
    lines = problems(study, root)
    Path(log).write_text("".join(f"{line}\n" for line in lines) or "every launch passed\n", encoding="utf-8")
    if lines:
        print(*lines, sep="\n", file=sys.stderr)
        then = "the next run repeats what failed" if study.config["retry_failed"] else "retry_failed is off"
        print(f"{counted(len(lines), 'problem')}; {then}", file=sys.stderr)
        sys.exit(1)
    records.write(
        Path(record),
        {
            "schema": "quietgate/check/1",
            "study": study.name,
            "digest": tables_digest(study),
            "launches": len(study.launches),
        },
    )
    seal(root)


def problems(study: Study, root: Path) -> list[str]:
    """One line per launch that did not pass, and per drift when the study is strict."""
    lines = []
    for launch in study.launches:
        folder = launch_folder(root, launch)
        for stage in chain(study):
            record = read_json(folder / stage.record) or {"status": "missing"}
            if record["status"] != "passed":
                failure = record.get("failure") or {"class": "missing", "reason": "no record"}
                lines.append(
                    f"{launch.cell.id} {launch.id}: {stage.name} {record['status']} "
                    f"({failure['class']}): {failure['reason']}"
                )
                break
    tables = read_json(root / "tables" / "tables.json") or {}
    if study.config["strict"]:
        lines += [f"drift: {_drift(d)}" for d in tables.get("drifts", [])]
    return lines


def _drift(drift: object) -> str:
    if isinstance(drift, dict):
        return str(drift.get("text") or drift)
    return str(drift)
