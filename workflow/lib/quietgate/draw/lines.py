"""Lines over steps or streams, one per NCCL profile, and the legend that explains them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import ScaledTranslation, Transform

from quietgate.draw.drawn import Material
from quietgate.draw.frames import each, groups
from quietgate.draw.style import COLUMN_IN, PAGE_IN, Look, figure
from quietgate.draw.values import gone, panels
from quietgate.wording import counted

_DODGE = 0.14
# Launches stand beside their cell's marker (in points), or it would hide them.
_BESIDE = 4.5
# Height of one more row of a legend.
_ROW_IN = 0.15
_FAILED = ("x", "+", "1", "2", "3", "4")


def lines(axis: Axes, material: Material, frame: pd.DataFrame) -> None:
    """A line per profile with cell markers, intervals and launch dots; broken where a cell failed."""
    cells, launches = frame[frame["kind"] == "cell"], frame[frame["kind"] == "launch"]
    for nccl, look in material.looks.items():
        x = dodge(material, nccl)
        mine = cells[cells["nccl"] == nccl].sort_values("steps")
        dots = launches[launches["nccl"] == nccl]
        if len(dots) > len(mine[mine["launches"] > 0]):
            axis.plot(
                dots["steps"] + x, dots["value"], ".", ms=2, color=look.colour, zorder=2,
                transform=beside(axis, -1 if x < 0 else 1),
            )  # fmt: skip
        at = mine["steps"].to_numpy(dtype=float) + x
        joined = ~mine["cell"].isin(material.apart).to_numpy()
        axis.plot(at[joined], mine["value"][joined], color=look.colour, ls=look.line, zorder=3)
        known = mine[mine["low"].notna()]
        axis.vlines(known["steps"] + x, known["low"], known["high"], color=look.colour, lw=1.3, zorder=3)
        for row in each(mine[mine["value"].notna()]):
            fill = "white" if material.hollow(row["cell"]) else look.colour
            axis.plot(row["steps"] + x, row["value"], look.marker, color=look.colour, mfc=fill, zorder=4)


def points(axis: Axes, material: Material, look: Look, frame: pd.DataFrame, x: str, y: str) -> None:
    """One small marker per row, hollow where the row's cell is."""
    hollow = frame["cell"].map(material.hollow).astype(bool)
    for some, fill in ((frame[~hollow], look.colour), (frame[hollow], "white")):
        axis.plot(some[x], some[y], look.marker, color=look.colour, mfc=fill, ms=3, mew=0.7)


def beside(axis: Axes, side: int) -> Transform:
    """Data coordinates moved a few points to the left (-1) or right (1)."""
    made = axis.get_figure(root=True)
    assert made is not None
    return axis.transData + ScaledTranslation(side * _BESIDE / 72, 0, made.dpi_scale_trans)


def dodge(material: Material, nccl: str) -> float:
    """How far a profile's markers stand beside their step, so that equal values stay visible."""
    count = len(material.profiles)
    return _DODGE * (material.profiles.index(nccl) - (count - 1) / 2) / max(1.0, count / 3)


def failures(axis: Axes, material: Material, frame: pd.DataFrame) -> None:
    """A mark at the foot of the axis for every cell without a result; its class is in the legend."""
    failed = frame[(frame["kind"] == "cell") & (frame["status"] == "failed")]
    if failed.empty:
        return
    low, high = axis.get_ylim()
    if low > 0:
        axis.set_ylim(low - 0.08 * (high - low), high)
    glyphs = failure_glyphs(frame)
    for row in each(failed):
        look = material.looks[row["nccl"]]
        axis.plot(
            row["steps"] + dodge(material, row["nccl"]), 0.035, glyphs[row["failure_class"]],
            color=look.colour, ms=5, mew=1.3, transform=axis.get_xaxis_transform(), clip_on=False, zorder=5,
        )  # fmt: skip


def failure_handles(frame: pd.DataFrame) -> list[Line2D]:
    """Legend entries of failed cells: one per class and profile, naming the steps."""
    failed = frame[(frame["kind"] == "cell") & (frame["status"] == "failed")]
    handles = []
    for kind, glyph in failure_glyphs(frame).items():
        for nccl, rows in groups(failed[failed["failure_class"] == kind], "nccl", sort=False):
            steps = sorted(rows["steps"].unique())
            where = f"{', '.join(str(s) for s in steps)} steps" if len(steps) < 4 else f"{len(steps)} cells"
            where = "1 step" if steps == [1] else where
            label = f"{gone(kind)} ({nccl}, {where})"
            handles.append(Line2D([], [], ls="", marker=glyph, color="black", mew=1.3, label=label))
    return handles


def steps_handles(looks: Mapping[int, Look], steps: Sequence[int]) -> list[Line2D]:
    """One entry per number of steps, for figures with a line for each."""
    return [
        Line2D(
            [], [], color=looks[s].colour, ls=looks[s].line, marker=looks[s].marker, ms=3,
            label=counted(s, "step"),
        )
        for s in steps
    ]  # fmt: skip


def failure_glyphs(frame: pd.DataFrame) -> dict[str, str]:
    """A mark per failure class that the frame's cells have."""
    failed = frame[(frame["kind"] == "cell") & (frame["status"] == "failed")]
    return dict(zip(sorted(failed["failure_class"].unique()), _FAILED * 9, strict=False))


def legend_handles(material: Material) -> list[Line2D]:
    """One entry per profile, hollow where any of its cells is."""
    handles = []
    for nccl, look in material.looks.items():
        label = material.profile_label(nccl)
        fill = look.colour if label == nccl else "white"
        handles.append(
            Line2D([], [], color=look.colour, ls=look.line, marker=look.marker, mfc=fill, label=label)
        )
    return handles


def legend(made: Figure, handles: Sequence[Any], frame: pd.DataFrame | None = None) -> None:
    """The legend above the panels, failed cells of a frame below them, in as many columns as fit.

    The figure grows with their rows, so that many entries leave the panels their height.
    """
    below = [] if frame is None else failure_handles(frame)
    made.legend(handles=list(handles), loc="outside upper left", ncols=_fit(made, handles), borderaxespad=0.2)
    if below:
        made.legend(handles=below, loc="outside lower left", ncols=_fit(made, below), borderaxespad=0.2)
    more = sum(math.ceil(len(some) / _fit(made, some)) - 1 for some in (handles, below) if some)
    made.set_figheight(made.get_figheight() + _ROW_IN * more)


def _fit(made: Figure, handles: Sequence[Any]) -> int:
    """How many entries fit beside each other, by the longest label."""
    longest = max(len(str(h.get_label())) for h in handles)
    return min(len(handles), max(1, int(made.get_figwidth() / (0.056 * longest + 0.45))))


def page(material: Material, frame: pd.DataFrame) -> tuple[Figure, list[Axes]]:
    """One panel in a column, or up to three beside each other on a page."""
    count = len(panels(material, frame))
    columns = min(count, 3)
    rows = math.ceil(count / columns)
    wide = PAGE_IN if count > 1 or len(material.steps) > 14 else COLUMN_IN
    made, axes = figure(wide, 0.35 + 2.15 * rows, rows, columns, sharey=True)
    flat = list(axes.flat)
    for spare in flat[count:]:
        spare.set_axis_off()
    return made, flat[:count]
