"""What an NCCL profile changes where it acts: the target's pass of a cycle, and NCCL's transfer in it."""

from __future__ import annotations

import pandas as pd

from quietgate.draw import captions
from quietgate.draw.cycle import SOURCES
from quietgate.draw.drawn import Drawn, Material, NotDrawn
from quietgate.draw.lines import failures, legend, legend_handles, lines
from quietgate.draw.style import PAGE_IN, figure, whole_numbers
from quietgate.draw.values import over_grid, panels
from quietgate.wording import counted

TARGET, TRANSFER = "target_ms", "nccl_transfer_ms"
LABELS = {TARGET: "target verify (ms)", TRANSFER: "NCCL transfer in it (ms)"}


def transfer(material: Material) -> Drawn:
    """The target's pass and NCCL's transfer in it by steps, one line per profile."""
    cells = material.cells
    if TRANSFER not in cells or cells[TRANSFER].isna().all():
        raise NotDrawn("no trace has collectives of NCCL over several ranks")
    streams = material.lowest
    frames = {metric: _known(material, over_grid(material, metric, streams)) for metric in (TARGET, TRANSFER)}
    parts = {metric: panels(material, frame) for metric, frame in frames.items()}
    count = len(parts[TARGET])
    made, axes = figure(PAGE_IN, 0.45 + 2.15 * count, count, 2)
    for column, (metric, label) in enumerate(LABELS.items()):
        for row, (panel, part) in enumerate(parts[metric]):
            axis = axes[row][column]
            lines(axis, material, part)
            axis.set_ylim(0, 1.05 * axis.get_ylim()[1])
            axis.set_title(panel)
            axis.set_xlabel("speculative steps")
            axis.set_ylabel(label)
            whole_numbers(axis, material.steps)
            failures(axis, material, part)
    frame = pd.concat([f.assign(metric=metric) for metric, f in frames.items()], ignore_index=True)
    legend(made, legend_handles(material), frames[TARGET])
    caption = captions.join(
        f"Left: time of the target's pass of a cycle at {counted(streams, 'stream')} (verify; at 0 steps the"
        f" decode forward), {_sources(material)}.",
        "Right: of it, NCCL moving data, from the profiler's traces: of every collective the shortest kernel"
        " over the ranks, summed per pass; the rest of each kernel is waiting for the other ranks.",
        captions.launches(frames[TARGET]),
        captions.not_measured(material),
        captions.not_proved(material),
    )
    return Drawn("transfer", "Verify and NCCL's transfer by steps and profile", caption, made, frame)


def _known(material: Material, frame: pd.DataFrame) -> pd.DataFrame:
    """Without the cells that were measured and have no such number: they did not fail."""
    measured = frame["cell"].isin(set(material.passed["cell"]))
    return frame[frame["value"].notna() | ~measured].reset_index(drop=True)


def _sources(material: Material) -> str:
    stages = material.table("stages", "no launch has a profile of its cycles")
    used = pd.concat([stages[f"{stage}_source"] for stage in ("verify", "decode")]).dropna()
    return "from " + " and ".join(SOURCES.get(s, s) for s in dict.fromkeys(used))
