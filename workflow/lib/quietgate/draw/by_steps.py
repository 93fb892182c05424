"""Figures over the number of speculative steps, one line per NCCL profile."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from quietgate.draw import captions
from quietgate.draw.drawn import Drawn, Material
from quietgate.draw.style import COLUMN_IN, GREY, PAGE_IN, figure, whole_numbers
from quietgate.draw.values import over_grid, panels

_DODGE = 0.14
# Launches stand beside their cell's marker, or it would hide them.
_BESIDE = 0.13
_FAILED = ("x", "+", "1", "2", "3", "4")


def decode_tokens_per_s(material: Material) -> Drawn:
    """Decode speed of one stream against steps: the study's number."""
    return _speed(material, "decode_tokens_per_s", marks=False)


def request_tokens_per_s(material: Material) -> Drawn:
    """Speed of whole requests, as a hand-run study quotes it, with its published numbers as marks."""
    return _speed(material, "request_tokens_per_s", marks=True)


def _speed(material: Material, metric: str, marks: bool) -> Drawn:
    streams = material.lowest
    frame = over_grid(material, metric, streams)
    shown = _marks(material) if marks else pd.DataFrame()
    made, axes = _page(material, frame)
    for axis, (label, part) in zip(axes, panels(material, frame), strict=False):
        lines(axis, material, part)
        for row in shown.to_dict("records"):
            _mark(axis, material, row)
        axis.set_title(label)
        axis.set_xlabel("speculative steps")
        axis.set_ylabel(captions.METRICS[metric])
        whole_numbers(axis, material.steps)
        failures(axis, material, part)
    handles = legend_handles(material)
    if len(shown):
        handles.append(Line2D([], [], ls="", marker="*", mfc="none", mec="black", ms=7, label="published"))
    legend(made, handles + failure_handles(frame))
    definition = {
        "decode_tokens_per_s": "tokens after the first chunk over the time from first to last chunk",
        "request_tokens_per_s": "all tokens over the time from request to last chunk, prefill included",
    }[metric]
    caption = captions.join(
        f"{captions.METRICS[metric].capitalize()} ({definition}; median over the requests of a pass) at"
        f" {captions.streams(streams)} against speculative steps; 0 steps: no speculation.",
        captions.launches(frame),
        _mark_sentence(shown),
        captions.not_measured(material),
        captions.not_proved(material),
    )
    frame = pd.concat([frame, shown], ignore_index=True) if len(shown) else frame
    what = "Decode speed" if metric == "decode_tokens_per_s" else "Request speed"
    return Drawn(metric, f"{what} by steps and NCCL profile", caption, made, frame)


def tokens_per_cycle(material: Material) -> Drawn:
    """How many tokens a cycle yields, under its ceiling of steps + 1."""
    streams = material.lowest
    frame = over_grid(material, "tokens_per_cycle", streams)
    made, axes = _page(material, frame)
    steps = np.array(material.steps)
    for axis, (label, part) in zip(axes, panels(material, frame), strict=False):
        axis.plot(steps, steps + 1, color=GREY, lw=0.8, ls=(0, (2, 2)))
        lines(axis, material, part)
        top = float(part["value"].max())
        axis.set_ylim(0, min(max(steps) + 1, 1.6 * top) + 0.3)
        axis.set_title(label)
        axis.set_xlabel("speculative steps")
        axis.set_ylabel("tokens per cycle")
        whole_numbers(axis, material.steps)
        failures(axis, material, part)
    ceiling = Line2D([], [], color=GREY, lw=0.8, ls=(0, (2, 2)), label="ceiling: steps + 1")
    legend(made, [*legend_handles(material), ceiling, *failure_handles(frame)])
    caption = captions.join(
        f"Tokens per cycle, (completion tokens - 1) / verify passes, at {captions.streams(streams)};"
        " 1 without speculation. Dashed: the ceiling, every drafted token accepted.",
        captions.launches(frame),
        captions.not_measured(material),
        captions.not_proved(material),
    )
    return Drawn("tokens_per_cycle", "Tokens per cycle by steps and NCCL profile", caption, made, frame)


def lines(axis: Axes, material: Material, frame: pd.DataFrame) -> None:
    """A line per profile with cell markers, intervals and launch dots; broken where a cell failed."""
    cells, launches = frame[frame["kind"] == "cell"], frame[frame["kind"] == "launch"]
    for nccl, look in material.looks.items():
        x = dodge(material, nccl)
        mine = cells[cells["nccl"] == nccl].sort_values("steps")
        dots = launches[launches["nccl"] == nccl]
        if len(dots) > len(mine[mine["launches"] > 0]):
            beside = x + (-_BESIDE if x < 0 else _BESIDE)
            axis.plot(dots["steps"] + beside, dots["value"], ".", ms=2, color=look.colour, zorder=2)
        at = mine["steps"].to_numpy(dtype=float) + x
        axis.plot(at, mine["value"], color=look.colour, ls=look.line, zorder=3)
        known = mine[mine["low"].notna()]
        axis.vlines(known["steps"] + x, known["low"], known["high"], color=look.colour, lw=1.3, zorder=3)
        for row in mine[mine["value"].notna()].to_dict("records"):
            fill = "white" if material.hollow(row["cell"]) else look.colour
            axis.plot(row["steps"] + x, row["value"], look.marker, color=look.colour, mfc=fill, zorder=4)


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
    glyphs = _glyphs(frame)
    for row in failed.to_dict("records"):
        look = material.looks[row["nccl"]]
        axis.plot(
            row["steps"] + dodge(material, row["nccl"]), 0.035, glyphs[row["failure_class"]],
            color=look.colour, ms=5, mew=1.3, transform=axis.get_xaxis_transform(), clip_on=False, zorder=5,
        )  # fmt: skip


def failure_handles(frame: pd.DataFrame) -> list[Line2D]:
    """Legend entries of failed cells: one per class and profile, naming the steps."""
    failed = frame[(frame["kind"] == "cell") & (frame["status"] == "failed")]
    handles = []
    for kind, glyph in _glyphs(frame).items():
        for nccl, rows in failed[failed["failure_class"] == kind].groupby("nccl", sort=False):
            steps = sorted(rows["steps"].unique())
            where = f"{', '.join(str(s) for s in steps)} steps" if len(steps) < 4 else f"{len(steps)} cells"
            label = f"failed: {str(kind).replace('_', ' ')} ({nccl}, {where})"
            handles.append(Line2D([], [], ls="", marker=glyph, color="black", mew=1.3, label=label))
    return handles


def _glyphs(frame: pd.DataFrame) -> dict[str, str]:
    """A mark per failure class."""
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


def legend(made: Figure, handles: list[Any]) -> None:
    """The legend above the panels, in as many columns as the width takes."""
    longest = max(len(str(h.get_label())) for h in handles)
    per_row = max(1, int(made.get_figwidth() / (0.056 * longest + 0.45)))
    made.legend(handles=handles, loc="outside upper left", ncols=min(per_row, len(handles)), borderaxespad=0.2)


def _page(material: Material, frame: pd.DataFrame) -> tuple[Figure, list[Axes]]:
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


def _marks(material: Material) -> pd.DataFrame:
    """Published request speeds of profiles and steps that this study has, as rows of the frame."""
    if material.marks is None:
        return pd.DataFrame()
    found = material.marks
    found = found[found["quantity"].str.startswith("request_tokens_per_s")]
    found = found[found["nccl"].isin(material.profiles) & found["steps"].isin(material.steps)]
    return pd.DataFrame(
        {
            "kind": "published",
            "cell": None,
            "steps": found["steps"].astype(int),
            "nccl": found["nccl"],
            "value": found["value"].astype(float),
            "status": found["quantity"].str.removeprefix("request_tokens_per_s").str.strip("_") + found["note"],
        }
    ).reset_index(drop=True)


def _mark(axis: Axes, material: Material, row: dict[str, Any]) -> None:
    look = material.looks[row["nccl"]]
    x = row["steps"] + dodge(material, row["nccl"])
    axis.plot(x, row["value"], "*", ms=7, mfc="none", mec=look.colour, zorder=5)


def _mark_sentence(shown: pd.DataFrame) -> str:
    if shown.empty:
        return ""
    return (
        "Stars: numbers published from a hand-run study (single runs, spread unknown), shown for comparison"
        " only and not part of any result."
    )
