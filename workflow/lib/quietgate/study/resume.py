"""What a new run keeps and what it must redo: stale and failed records are set aside, never deleted.

Snakemake cannot do this by itself: changed params and `ancient` inputs cancel each other, and without its
metadata an edited config gives "Nothing to be done". So before the graph is built, every record whose digest
is not the config's is moved away together with everything downstream of it; what is missing is then made.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quietgate.errors import BadInput
from quietgate.files import digest, read_json, sha256
from quietgate.study.cells import Launch
from quietgate.study.description import differs
from quietgate.study.earlier import STUDY
from quietgate.study.stages import (
    ALL,
    BENCHMARK,
    EXTRACT,
    RELEASE,
    Stage,
    chain,
    figures_digest,
    launch_folder,
    stage_digest,
    tables_digest,
)
from quietgate.study.study import Study

SET_ASIDE = ".set-aside"


@dataclass(frozen=True)
class Redo:
    """A launch that must be redone from `stage` on, or a study-level product when `launch` is None.

    Attributes:
        why: for a person: what changed, or that it failed.
        files: what is in the way, relative to the results folder.
    """

    launch: Launch | None
    stage: str
    why: str
    files: tuple[Path, ...]

    def __str__(self) -> str:
        where = f"{self.launch.cell.id} {self.launch.id}" if self.launch else "study"
        return f"{where}, from {self.stage} on: {self.why}"


def plan_redo(study: Study, results: Path, reach: Mapping[Launch, Stage] | None = None) -> list[Redo]:
    """Everything present that the config no longer vouches for, in run order; reads only.

    Args:
        reach: the last stage that is made of each launch (see `targets`), by default of all the last one. A
            failure beyond it stays, as every failure does where the config says so or only what is measured
            counts. What is stale is found whatever is made.
    """
    if not study.config["retry_failed"] or study.only_measured:
        reach = {}
    elif reach is None:
        reach = dict.fromkeys(study.launches, chain(study)[-1])
    old = read_json(results / STUDY)
    before = old.get("config") if isinstance(old, dict) else None
    then = _study_of(before, study.basedir)
    redo = []
    for launch in study.launches:
        found = _first_bad(study, results, launch, reach.get(launch))
        if found:
            stage, why = found
            if why == CHANGED and before and not _asked_the_same(then, study, launch, stage):
                why = _what_changed(before, study.config) or why
            files = tuple(_downstream(study, results, launch, stage))
            redo.append(Redo(launch, stage.name, why, files))
        redo += _dropped(study, results, launch)
    redo += _study_products(study, results)
    return redo


def takes_server(redo: list[Redo]) -> bool:
    """Whether a server must be started to make again what is in `redo`."""
    return any(item.launch and item.stage != EXTRACT.name and item.why != DROPPED for item in redo)


def all_measured(study: Study, results: Path) -> bool:
    """Whether there is a record of everything in the study that takes a server."""
    return all(measured(study, results, launch) for launch in study.launches)


def collected(study: Study, results: Path) -> bool:
    """Whether the tables stand, so that figures are drawn without the records of launches."""
    stale = {item.stage for item in _study_products(study, results)}
    return (results / "tables/tables.json").exists() and not stale & {STUDY, "tables/tables.json"}


def measured(study: Study, results: Path, launch: Launch) -> bool:
    """Whether all of a launch that takes a server is there; of one that failed, all up to its failure."""
    folder = launch_folder(results, launch)
    for stage in chain(study):
        path = folder / stage.record
        if stage.needs_server and not path.exists():
            return False
        record = read_json(path)
        if isinstance(record, dict) and record.get("status") == "failed":
            return True  # what follows is skipped, without a server
    return True


CHANGED = "made under another configuration or version"
DROPPED = "no longer part of the study"
# What a config that lacks keys of today, or has others, ends in.
_OLDER_SCHEMA = (BadInput, KeyError, TypeError, ValueError, AttributeError)


def _first_bad(study: Study, results: Path, launch: Launch, upto: Stage | None) -> tuple[Stage, str] | None:
    """From where on a launch must be redone, and why; a failure counts up to the stage `upto`."""
    folder = launch_folder(results, launch)
    stages = chain(study)
    repeated = stages[: stages.index(upto) + 1] if upto else ()
    measured: dict[str, Any] = {}
    for i, stage in enumerate(stages):
        path = folder / stage.record
        if not path.exists():
            # A server stage that is redone alone would leave its server without an end on record.
            if stage.needs_server and any((folder / s.record).exists() for s in stages[i + 1 :]):
                return stage, f"{stage.record} is missing under later records"
            continue
        record = read_json(path)
        if not isinstance(record, dict):
            return stage, f"{stage.record} is not readable"
        if record.get("digest") != stage_digest(study, launch.cell, stage):
            return stage, CHANGED
        if record.get("status") == "passed":
            problem = _incomplete(folder, stage, record)
            if problem:
                return stage, problem
            if stage is BENCHMARK:
                measured = record
            other_life = measured and record.get("instance") != measured.get("instance")
            if stage in (RELEASE, EXTRACT) and other_life:
                return stage, f"{stage.record} is of another server life than {BENCHMARK.record}"
        elif stage in repeated:
            failure = record.get("failure")
            reason = failure.get("reason") if isinstance(failure, dict) else None
            return stage, f"{record.get('status')}: {reason or 'no reason recorded'}"
    return None


def _incomplete(folder: Path, stage: Stage, record: dict[str, Any]) -> str | None:
    """What is gone of a stage that passed: files beside its record, the gate of its server life."""
    if not all((folder / f).exists() for f in stage.files):
        return f"{stage.record} is there but not all that belongs to it"
    requests = record.get("requests_sha256")
    if requests and sha256(folder / "requests.jsonl") != requests:
        return "requests.jsonl is not the file that was written"
    if stage.measures and not (folder / "instances" / str(record.get("instance")) / "gate.json").exists():
        return f"{stage.record} was measured on a server life whose gate is gone"
    return None


def _downstream(study: Study, results: Path, launch: Launch, first: Stage) -> Iterator[Path]:
    stages = chain(study)
    for stage in stages[stages.index(first) :]:
        yield from _present(results, launch, stage)


def _present(results: Path, launch: Launch, stage: Stage) -> Iterator[Path]:
    folder = launch_folder(results, launch)
    for name in (stage.record, *stage.files):
        if (folder / name).exists():
            yield (folder / name).relative_to(results)


def _dropped(study: Study, results: Path, launch: Launch) -> Iterator[Redo]:
    """Records of stages that the study no longer has."""
    for stage in ALL:
        files = tuple(_present(results, launch, stage)) if stage not in chain(study) else ()
        if files:
            yield Redo(launch, stage.name, DROPPED, files)


def _study_products(study: Study, results: Path) -> Iterator[Redo]:
    checks = (
        (STUDY, study_digest(study), (STUDY,)),
        ("tables/tables.json", tables_digest(study), ("tables",)),
        ("figures/figures.json", figures_digest(study), ("figures", "report.html")),
        ("check.json", tables_digest(study), ("check.json",)),
    )
    for record_name, wanted, products in checks:
        record = read_json(results / record_name)
        present = tuple(Path(p) for p in products if (results / p).exists())
        if not present:
            continue
        why = _stale(results, record, wanted)
        if record_name == STUDY and not why and (key := differs(record, study)):
            why = f"its {key} is not what the config gives"
        if why:
            yield Redo(None, record_name, why, present)


def _stale(results: Path, record: Any, wanted: str) -> str | None:
    """Why a record of the whole study, or what it lists, does not stand; None where it does."""
    if not isinstance(record, dict):
        return "incomplete"
    if record.get("digest") != wanted:
        return CHANGED
    try:
        listed = _listed(record)
    except (KeyError, TypeError, AttributeError):
        return "damaged"
    if not all((results / f).exists() for f in listed):
        return "a file that it lists is gone"
    if any(sha256(results / f) != written for f, written in listed.items()):
        return "a file that it lists was changed"
    return None


def _listed(record: dict[str, Any]) -> dict[str, str]:
    """The files that a record of tables or figures says it made, with the SHA-256 of each."""
    tables = {f"tables/{t['name']}.csv": t["sha256"] for t in record.get("tables", ())}
    figures = record.get("figures", ())
    return tables | {f"figures/{f['name']}.{ext}": s for f in figures for ext, s in f["files"].items()}


def study_digest(study: Study) -> str:
    """What study.json depends on: the whole resolved config, the digests of its cells, what is left out."""
    cells = {c.id: study.digests(c) for c in study.launched}
    left_out = [[a.cell, a.block] for a in study.left_out]
    return digest(study.config, cells, *([left_out] if left_out else []))


def _study_of(config: Any, basedir: str) -> Study | None:
    """The study of an earlier config; None where there was none, or one of an older schema."""
    try:
        return Study(config, basedir=basedir) if config else None
    except _OLDER_SCHEMA:
        return None


def _asked_the_same(then: Study | None, study: Study, launch: Launch, stage: Stage) -> bool:
    """Whether an earlier study asks for the same record as now: then other code made the one there."""
    if then is None:
        return False
    try:
        digest_then = stage_digest(then, launch.cell, stage)
    except _OLDER_SCHEMA:
        return False
    return digest_then == stage_digest(study, launch.cell, stage)


def _what_changed(before: dict[str, Any], now: dict[str, Any]) -> str | None:
    changed = list(differing_keys(before, now))
    if not changed:
        return None
    return "changed: " + ", ".join(changed[:4]) + (", ..." if len(changed) > 4 else "")


def differing_keys(a: Any, b: Any, prefix: str = "") -> Iterator[str]:
    """Dotted keys under which two configs differ."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in dict.fromkeys([*a, *b]):
            yield from differing_keys(a.get(key), b.get(key), f"{prefix}.{key}" if prefix else key)
    elif a != b:
        yield prefix


def set_aside(redo: list[Redo], results: Path) -> Path | None:
    """Move what is in the way to results/<study>/.set-aside/<time>/; returns that folder, or None."""
    moves = [f for r in redo for f in r.files]
    if not moves:
        return None
    stamp = dt.datetime.now(dt.UTC).strftime("%Y%m%dT%H%M%S.%f")
    target = results / SET_ASIDE / stamp
    for file in moves:
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        (results / file).rename(target / file)
    return target
