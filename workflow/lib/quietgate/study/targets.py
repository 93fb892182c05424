"""How far the targets of a run take each launch: a failure is set aside only where this run would repeat it.

The names are those of `workflow/rules`. What is not known here makes nothing again, so that a failure stays.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from quietgate.study.cells import Launch
from quietgate.study.stages import Stage, chain, launch_folder
from quietgate.study.study import Study

# `share` and `figures` are not among them: they show failures as they are.
WHOLE_STUDY = frozenset({"all", "measured", "collect", "plot", "report_page", "check"})
PRODUCTS = ("tables/tables.json", "figures/figures.json", "report.html", "check.json")


def reach(
    study: Study,
    results: Path,
    targets: Iterable[str],
    until: Iterable[str] = (),
    omit_from: Iterable[str] = (),
) -> dict[Launch, Stage]:
    """The last stage that a run makes of each launch, were all of its records missing.

    Args:
        results: the study's results, relative to the folder of the run as in the rules.
        targets: rules and files, as Snakemake was given them.
        until, omit_from: rules that the run does not go beyond, or stops before; files here change nothing.

    Returns:
        Launches of which nothing is made are not in it.
    """
    stages = chain(study)
    end = _end([stage.name for stage in stages], set(until), set(omit_from))
    asked = {os.path.relpath(t) for t in targets if t and not Path(t).is_absolute()}
    products = {os.path.relpath(results / name) for name in PRODUCTS}
    everything = bool(asked & (WHOLE_STUDY | products))
    found = {}
    for launch in study.launches:
        folder = os.path.relpath(launch_folder(results, launch))
        made = [s for s in stages if everything or asked & {f"{folder}/{name}" for name in _outputs(s)}]
        upto = min(stages.index(made[-1]), end) if made else -1
        if upto >= 0:
            found[launch] = stages[upto]
    return found


def _outputs(stage: Stage) -> tuple[str, ...]:
    """What can be asked for by name: the folder of traces is no rule's output."""
    return (stage.record, *(name for name in stage.files if Path(name).suffix))


def _end(names: list[str], until: set[str], omit_from: set[str]) -> int:
    """The index of the last of the stages that a run may make; -1 for none."""
    end = len(names) - 1
    if until and until <= set(names):
        end = max(map(names.index, until))
    return min([end, *(names.index(name) - 1 for name in omit_from if name in names)])
