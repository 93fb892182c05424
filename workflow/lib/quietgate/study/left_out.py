"""Launches that a study waits for no longer: `only_measured` finishes it with what was measured."""

from __future__ import annotations

from pathlib import Path

from quietgate.errors import BadInput
from quietgate.study.epochs import Asked
from quietgate.study.resume import measured, plan_redo, takes_server
from quietgate.study.study import Study


def leave_out(study: Study, results: Path) -> None:
    """Leave out of `study` what is not measured; BadInput where nothing is."""
    study.left_out = unmeasured(study, results)
    if not study.launches:
        raise BadInput(
            f"only_measured: {results} has no launch with all its records as this config asks for them:"
            " there is nothing to finish"
        )


def unmeasured(study: Study, results: Path) -> tuple[Asked, ...]:
    """The launches that would take a server to finish: what `only_measured` leaves out. Failed ones stay."""
    stale = {x.launch for x in plan_redo(study, results, reach={}) if takes_server([x])}
    return tuple(
        Asked(x.cell.id, x.block, x.epoch)
        for x in study.asked_for
        if x in stale or not measured(study, results, x)
    )


def sentence(study: Study) -> str:
    """Which launches are not waited for, in words."""
    names = ", ".join(f"{a.cell} l{a.block}" for a in study.left_out)
    return f"{len(study.left_out)} of {len(study.asked_for)} launches left out, not measured: {names}"
