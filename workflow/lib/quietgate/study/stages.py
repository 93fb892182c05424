"""The stages of a launch and of a study: which files each leaves, and what its record depends on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quietgate import versions
from quietgate.files import digest, source_digest
from quietgate.study.cells import Cell, Launch
from quietgate.study.study import Study

_PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True)
class Stage:
    """One step of a launch's chain.

    Attributes:
        name: the rule's name.
        record: its record's file name; the rest of `files` is written with it.
        needs_server: whether the step runs against a live server.
        measures: whether its record is only good together with the gate of the server life it names.
        lives: the folder of the process lives it runs on, each with its logs and its end.
    """

    name: str
    record: str
    files: tuple[str, ...] = ()
    needs_server: bool = True
    measures: bool = False
    lives: str = "instances"


ALL_REDUCE = Stage("all_reduce", "all_reduce.json", lives="all_reduce")
LAUNCH = Stage("launch", "launch.json")
GATE = Stage("gate", "gate.json")
BENCHMARK = Stage("benchmark", "benchmark.json", ("stages.json", "requests.jsonl"), measures=True)
CAPTURE = Stage("capture", "capture.json", ("trace",), measures=True)
RELEASE = Stage("release", "exit.json", ("server.log",))
EXTRACT = Stage("extract", "profile.json", needs_server=False)


ALL = (ALL_REDUCE, LAUNCH, GATE, BENCHMARK, CAPTURE, RELEASE, EXTRACT)


def chain(study: Study) -> tuple[Stage, ...]:
    """The stages of every launch of the study, in order."""
    off = [s for s in (ALL_REDUCE, CAPTURE) if not study.config.get(s.name, {}).get("enabled")]
    return tuple(s for s in ALL if s not in off)


def launch_folder(results: Path, launch: Launch) -> Path:
    """cells/<cell>/<launch> below the study's results."""
    return results / "cells" / launch.cell.id / launch.id


def live_folder(results: Path, launch: Launch) -> Path:
    """Where the lease of the launch keeps its private state."""
    return results / ".live" / launch.cell.id / launch.id


def stage_digest(study: Study, cell: Cell, stage: Stage) -> str:
    """What the stage's record of this cell depends on."""
    digests = study.digests(cell)
    match stage.name:
        case "all_reduce":
            concurrency = study.config["benchmark"]["concurrency"]
            settings = study.config["all_reduce"]
            return digest(digests["server"], settings, concurrency, versions.ALL_REDUCE)
        case "benchmark" | "capture":
            return digests[stage.name]
        case "extract":
            return profile_digest(digests, study.config["capture"])
        case _:
            return digests["server"]


def profile_digest(digests: dict[str, str], capture: dict[str, Any]) -> str:
    """What a profile depends on: the records it is extracted from and the readers' own sources."""
    analyse = _PACKAGE / "analyse"
    own = (analyse / f"{name}.py" for name in ("profile", "time_sources", "source_comparisons"))
    layer = source_digest(_PACKAGE / "inspect", *own)
    return digest(digests["benchmark"], digests["capture"], capture, layer)


def tables_digest(study: Study) -> str:
    """What the tables depend on besides the records themselves: the launches asked for and the analysis."""
    asked = [[x.cell.id, x.id, x.epoch, study.digests(x.cell)] for x in study.launches]
    layer = source_digest(_PACKAGE / "inspect", _PACKAGE / "analyse", _PACKAGE / "gate")
    return digest(asked, study.reference.id, study.config["strict"], layer)


def figures_digest(study: Study) -> str:
    """What figures and report depend on besides the tables: the drawing code, titles, reference marks."""
    marks = study.config["reference_observations"]
    return digest(
        tables_digest(study),
        study.config["title"],
        source_digest(_PACKAGE / "draw"),
        source_digest(Path(marks)) if marks and Path(marks).is_file() else marks,
    )
