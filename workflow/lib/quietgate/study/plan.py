"""What a run would do: cells, order, exact commands, what is kept and what is redone, and why; reads only."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from quietgate import gpus
from quietgate.study import command, left_out, typical
from quietgate.study.cells import Cell, Launch
from quietgate.study.resume import measured, plan_redo
from quietgate.study.stages import EXTRACT, chain, launch_folder
from quietgate.study.study import Study
from quietgate.study.warnings import warnings
from quietgate.wording import counted

# Assumed where nothing was measured yet: a launch with boot, gate, passes and stop on the default study.
_UNKNOWN_LAUNCH_S = 60.0
_UNKNOWN_LAUNCH_BYTES = 3_000_000


def lines(study: Study, results: Path, detail: bool = True, problems: Sequence[str] = ()) -> Iterator[str]:
    """The plan as text, line by line.

    Args:
        results: results/<study>; need not exist.
        detail: also print the full command of every cell, not only of the reference.
        problems: what a run on this machine would refuse; the first of the warnings.
    """
    yield from _head(study)
    yield ""
    yield "Cells (what differs from the reference is marked):"
    reference = study.resolved(study.reference)
    for cell in study.launched:
        mark = "  <- reference" if cell.id == study.reference.id else ""
        mark += "" if cell.timers else "  <- no cell of the grid: shows what the timers cost"
        yield f"  {cell.id}{mark}"
        for difference in _differences(reference, study.resolved(cell)):
            yield f"      {difference}"
    for cell in study.launched if detail else (study.reference,):
        yield ""
        yield from command_lines(study, cell)
    yield ""
    yield from _state(study, results)
    notes = [*problems, *study_warnings(study)]
    if notes:
        yield ""
        yield "Warnings:"
        yield from (f"  - {note}" for note in notes)


def study_warnings(study: Study) -> list[str]:
    """What is inert or dangerous in this study, each with the reason, without repeats."""
    found: dict[str, None] = {}
    linked = gpus.nvlink() if command.device(study.config) == "cuda" else None
    for cell in study.cells:
        resolved = study.resolved(cell)
        for process in resolved["processes"]:
            facts = {
                "argv": process["argv"],
                "env": process["env"],
                "steps": study.config["grid"]["steps"],
                "device": command.device(study.config),
                "profile": cell.nccl,
                "nvlink": linked,
                "unset": process["unset"],
                "workflow_env": resolved["workflow_env"],
            }
            for note in warnings(facts):
                found.setdefault(note)
    return list(found)


def _head(study: Study) -> Iterator[str]:
    config = study.config
    yield f"Study {study.name} ({study.source})" + (f": {config['title']}" if config["title"] else "")
    yield (
        f"{counted(len(study.launched), 'cell')} x {counted(config['replicates'], 'launch')}"
        f" = {counted(len(study.asked_for), 'launch')}; "
        f"per launch {counted(config['benchmark']['repeats'], 'repeat')} at concurrency "
        + ", ".join(map(str, sorted(config["benchmark"]["concurrency"])))
    )
    if study.left_out:
        yield left_out.sentence(study)
    yield f"Order (seed {config['seed']}, randomised complete blocks):"
    for block, launches in itertools.groupby(study.launches, key=lambda x: x.block):
        found = list(launches)
        later = f" (epoch {found[0].epoch})" if found[0].epoch > 1 else ""
        yield f"  l{block}{later}: " + ", ".join(x.cell.id for x in found)


def command_lines(study: Study, cell: Cell) -> Iterator[str]:
    """The exact command of a cell in its two layers, as shell text with one token group per line."""
    resolved = study.resolved(cell)
    yield f"Command of {cell.id}"
    for number, process in enumerate(resolved["processes"]):
        if len(resolved["processes"]) > 1:
            yield f"  process {number}"
        yield "  the study's own layer:"
        yield from (f"    {name}={shlex.quote(value)}" for name, value in process["env"].items())
        yield from (f"    unset {name}" for name in process["unset"])
        yield "    " + " ".join(map(quoted, process["argv"]))
    yield "  added by the workflow, to measure and to prove:"
    yield from (f"    {name}={shlex.quote(v)}" for name, v in resolved["workflow_env"].items())
    yield "    " + " ".join(map(quoted, resolved["workflow_argv"]))
    for flag, (value, why) in command.pins(study.config, study.config["server"]["args"]).items():
        yield f"    ({' '.join(command.tokens({flag: value}))} in every cell: {why})"


def quoted(token: str) -> str:
    """A token as shell text; a leading ~ stays open, it is expanded at launch."""
    if token.startswith("~/"):
        return "~/" + shlex.quote(token[2:])
    return shlex.quote(token)


def _differences(a: dict[str, Any], b: dict[str, Any]) -> Iterator[str]:
    for left, right in zip(a["processes"], b["processes"], strict=True):
        for name in dict.fromkeys([*left["env"], *right["env"]]):
            if left["env"].get(name) != right["env"].get(name):
                new = right["env"].get(name)
                yield f"{name}={shlex.quote(new)}" if new is not None else f"without {name}"
        for name in right["unset"]:
            if name not in left["unset"]:
                yield f"unset {name}"
        flags_a, flags_b = _grouped(left["argv"]), _grouped(right["argv"])
        yield from (f"with    {f}" for f in flags_b if f not in flags_a)
        yield from (f"without {f}" for f in flags_a if f not in flags_b)


def _grouped(argv: list[str]) -> list[str]:
    """Tokens with each flag and its values as one string."""
    groups: list[str] = []
    for token in argv:
        if token.startswith("--") or not groups:
            groups.append(quoted(token))
        else:
            groups[-1] += " " + quoted(token)
    return groups


def _state(study: Study, results: Path) -> Iterator[str]:
    found = plan_redo(study, results)
    redo = {r.launch: r for r in found if r.launch}
    new: list[Launch] = []
    kept: list[Launch] = []
    unfinished: list[Launch] = []
    for launch in study.launches:
        present = _present(study, results, launch)
        if launch in redo:
            continue
        (new if present == 0 else kept if present == len(chain(study)) else unfinished).append(launch)
    yield f"Kept {len(kept)}, new {len(new)}, unfinished {len(unfinished)}, stale {len(redo)}"
    for launch in unfinished:
        yield f"  unfinished: {launch.cell.id} {launch.id}"
    for launch, item in redo.items():
        yield f"  stale: {launch.cell.id} {launch.id}, from {item.stage} on: {item.why}"
    for item in found:
        if item.launch is None:
            yield f"  stale: {item.stage}: {item.why}"
    extra = sorted(_foreign(study, results))
    if extra:
        yield f"  left alone, no longer in the grid: {', '.join(extra)}"
    again = [*unfinished, *(x for x, item in redo.items() if item.stage == EXTRACT.name)]
    offline = [x for x in again if measured(study, results, x)]
    todo = len(new) + len(unfinished) + len(redo) - len(offline)
    seconds, size, source = _typical(study, results)
    yield (
        f"To do: {counted(todo, 'launch')}, about {todo * seconds / 60:.0f} min and "
        f"{todo * size / 1e6:.0f} MB ({source})"
        + (f"; {len(offline)} to extract again, without a server" if offline else "")
    )


def _present(study: Study, results: Path, launch: Launch) -> int:
    folder = launch_folder(results, launch)
    return sum((folder / stage.record).exists() for stage in chain(study))


def _foreign(study: Study, results: Path) -> Iterator[str]:
    cells = results / "cells"
    known = {f"{x.cell.id}/{x.id}" for x in study.asked_for}
    if cells.is_dir():
        for folder in cells.glob("*/l*"):
            name = f"{folder.parent.name}/{folder.name}"
            if name not in known:
                yield name


def _typical(study: Study, results: Path) -> tuple[float, float, str]:
    some = typical.sample(typical.ended(study, results))
    seconds = typical.middle([typical.seconds(study, results, x) for x in some])
    size = typical.middle([_bytes_below(launch_folder(results, x)) for x in some])
    if seconds is None or size is None:
        return _UNKNOWN_LAUNCH_S, _UNKNOWN_LAUNCH_BYTES, "a guess: nothing was measured yet"
    return seconds, size, "from the launches already there"


def _bytes_below(folder: Path) -> float:
    return float(sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()))
