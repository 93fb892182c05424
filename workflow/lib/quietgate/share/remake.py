"""Tables, figures and report made again from nothing but a study's records."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quietgate import records
from quietgate.analyse.collect import collect
from quietgate.files import read_json, write_atomic
from quietgate.share.archive import shown

# Copies of files that the config names somewhere on the machine of whoever measured.
INPUTS = "inputs"
OBSERVATIONS = f"{INPUTS}/reference_observations.csv"
PROMPTS = f"{INPUTS}/prompts.jsonl"
ARCHIVE = "archive.json"


def observations_of(root: Path, study: Mapping[str, Any]) -> Path | None:
    """The published observations that the figures are drawn with, or None.

    An archive has its own copy; a path that it names on this machine is not followed.
    """
    if (root / OBSERVATIONS).is_file():
        return root / OBSERVATIONS
    named = study["config"].get("reference_observations")
    if named and not (root / ARCHIVE).exists() and Path(named).is_file():
        return Path(named)
    return None


def remake(root: Path, out: Path) -> list[str]:
    """Make tables, figures and report.html of the records in `root` into `out` (which may be `root`).

    BadInput where the records do not make a study. Digests in the records `tables` and `figures` are
    taken over: they name the config that was run, which is not made again.

    Returns:
        What could not be made as it was, one line each.
    """
    # Imported here: drawing takes seconds to load.
    from quietgate.draw import report
    from quietgate.draw.figures import draw_all

    study = records.read(root / "study.json", "study")
    if out != root:
        out.mkdir(parents=True, exist_ok=True)
        write_atomic(out / "study.json", (root / "study.json").read_bytes())
        if not (out / "cells").is_symlink():
            (out / "cells").symlink_to((root / "cells").resolve(), target_is_directory=True)
    tables = collect(root, out / "tables")
    records.write(out / "tables/tables.json", {**tables, "digest": _digest(root / "tables/tables.json")})
    statistics = read_json(out / "tables/statistics.json")
    marks = observations_of(root, study)
    drawn = draw_all(out / "tables", out / "figures", study, statistics, marks)
    records.write(out / "figures/figures.json", {**drawn, "digest": _digest(root / "figures/figures.json")})
    report.write(out, study, statistics, out / "report.html")
    if study["config"].get("reference_observations") and marks is None:
        named = shown(study["config"]["reference_observations"])
        return [f"drawn without the published observations: {named} did not come with the results"]
    return []


def _digest(record: Path) -> str:
    found = read_json(record)
    digest = found.get("digest") if isinstance(found, dict) else None
    return digest if isinstance(digest, str) else "0" * 16
