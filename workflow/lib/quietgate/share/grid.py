"""The cells and launches that the config asks for are those that study.json lists."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from quietgate import records
from quietgate.analyse.launch_records import launched_cells
from quietgate.errors import BadInput
from quietgate.share.archive import shown
from quietgate.study import Study
from quietgate.study.earlier import launches_of
from quietgate.wording import counted


def problems(study: records.Record) -> Iterator[str]:
    """One line for each cell, launch or reference that is not the config's."""
    try:
        # Which cell is launched without timers is kept from a study's earlier epochs.
        history = tuple(itertools.chain(*launches_of(study)))
        asked = Study(study["config"], "study.json", history=history)
        cells = {c.id: c for c in asked.cells}
        mine_untimed = asked.about_untimed or {}
    except (BadInput, KeyError, TypeError, ValueError, AttributeError) as e:
        yield f"study.json: config: does not make a grid ({shown(repr(e))[:100]})"
        return
    listed = {c["id"]: c for c in study["cells"]}
    yield from (f"study.json: cell {c} of the config's grid is missing" for c in cells if c not in listed)
    for cell_id, cell in listed.items():
        mine = cells.get(cell_id)
        if mine is None:
            yield f"study.json: cell {cell_id} is not in the config's grid"
        elif (mine.steps, mine.nccl, mine.axes) != (cell["steps"], cell["nccl"], cell["axes"]):
            yield f"study.json: cell {cell_id} is not what its name says"
    if asked.reference.id != study["reference"]:
        yield f"study.json: reference is {study['reference']}, the config's is {asked.reference.id}"
    untimed = study.get("untimed") or {}
    for name, words in (("id", "the cell without timers"), ("twin", "its twin"), ("timers", "its timers")):
        if untimed.get(name) != mine_untimed.get(name):
            yield (
                f"study.json: untimed: {words}: {str(untimed.get(name))[:100]},"
                f" the config's: {mine_untimed.get(name)}"
            )
            break
    launches: dict[str, int] = dict.fromkeys((c["id"] for c in launched_cells(study)), 0)
    for launch in (*study["launches"], *study.get("left_out", ())):
        launches[launch["cell"]] += 1
    wanted = study["config"].get("replicates")
    for cell_id, count in launches.items():
        if isinstance(wanted, int) and count < wanted:
            yield f"study.json: {counted(count, 'launch')} of {cell_id} listed, the config asks for {wanted}"


def notes(study: records.Record) -> Iterator[str]:
    """A study that was finished without some launches is whole, but whoever reads it should know."""
    listed, left_out = launches_of(study)
    if left_out:
        first = f"{left_out[0].cell} l{left_out[0].block}"
        asked = len(listed) + len(left_out)
        yield f"not measured: {counted(len(left_out), 'launch')} of {asked} asked for, the first: {first}"
