"""What the launches of a study cost: hours that servers lived, times the GPUs they held."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quietgate.analyse.launch_records import launched_cells
from quietgate.files import read_json
from quietgate.gate.plan import expected_ranks
from quietgate.study import command


def hours(root: Path, study: Mapping[str, Any]) -> dict[str, float]:
    """Cell -> hours that its servers lived, from launch to end, over all its launches."""
    out = {cell["id"]: 0.0 for cell in launched_cells(study)}
    for asked in study["launches"]:
        folder = root / "cells" / asked["cell"] / asked["launch"]
        began = _time(read_json(folder / "launch.json"), "started_at")
        ended = _time(read_json(folder / "exit.json"), "ended_at")
        if began and ended and ended > began:
            out[asked["cell"]] += (ended - began).total_seconds() / 3600
    return out


def gpus(root: Path, study: Mapping[str, Any]) -> int:
    """GPUs that each server held: one per rank, none where it ran on a CPU."""
    if command.device(study["config"]) == "cpu":
        return 0
    for asked in study["launches"]:
        record = read_json(root / "cells" / asked["cell"] / asked["launch"] / "launch.json") or {}
        processes = (record.get("server") or {}).get("processes")
        if processes:
            return expected_ranks(processes[0]["argv"])
    return 1


def machine(root: Path, study: Mapping[str, Any]) -> tuple[list[str], str]:
    """Where the servers ran, by the launches' own records: names of GPUs, name of the processor.

    study.json names the machine that finished the study, which may be another one.
    """
    names: set[str] = set()
    processor = ""
    for asked in study["launches"]:
        record = read_json(root / "cells" / asked["cell"] / asked["launch"] / "launch.json") or {}
        names |= {str(gpu.get("name")) for gpu in record.get("gpus") or []}
        processor = processor or str((record.get("host") or {}).get("processor") or "")
    return sorted(names), processor or str(study["host"].get("processor"))


def _time(record: Any, name: str) -> dt.datetime | None:
    text = record.get(name) if isinstance(record, dict) else None
    try:
        return dt.datetime.fromisoformat(text.replace("Z", "+00:00")) if isinstance(text, str) else None
    except ValueError:
        return None
