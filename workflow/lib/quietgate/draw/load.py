"""Throughput over the number of concurrent streams, and where speculation stops paying."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from quietgate.draw import captions
from quietgate.draw.drawn import Drawn, Material, NotDrawn
from quietgate.draw.frames import each, groups
from quietgate.draw.lines import legend, steps_handles
from quietgate.draw.style import GREY, PAGE_IN, figure, steps_looks
from quietgate.draw.values import over_grid, panels

METRIC = "output_tokens_per_s"


def concurrency(material: Material) -> Drawn:
    """Throughput over streams, and its ratio to no speculation with the crossover where that falls to 1."""
    frame = over_grid(material, METRIC)
    frame = frame[frame["kind"] == "cell"].drop(columns=["kind", "launch"])
    levels = sorted(int(c) for c in frame["concurrency"].unique())
    if len(levels) < 2:
        raise NotDrawn("one concurrency level only")
    frame = _with_ratio(material, frame)
    parts = [
        (", ".join(w for w in (material.profile_label(nccl), label) if w), part[part["nccl"] == nccl])
        for label, part in panels(material, frame)
        for nccl in material.profiles
    ]
    parts = [(label, part) for label, part in parts if part["value"].notna().any()]
    against = bool(frame.loc[frame["steps"] > 0, "ratio_to_0_steps"].notna().any())
    made, axes = figure(
        PAGE_IN, 0.6 + 1.75 * len(parts), len(parts), 2 if against else 1, sharex=True, sharey="col"
    )
    for row, (label, part) in zip(axes, parts, strict=True):
        row[0].set_title(label, loc="left")
        _lines(row[0], material, part, "value")
        row[0].set_ylabel("output tok/s, all streams")
        if against:
            row[1].axhline(1.0, color=GREY, lw=0.8)
            _lines(row[1], material, part, "ratio_to_0_steps")
            row[1].set_ylabel("ratio to 0 steps")
            # Logarithmic, as the crossover is interpolated: the mark lies where the line crosses.
            row[1].set_yscale("log")
            for value in part["crossover_streams"].dropna().unique():
                row[1].plot(value, 1.0, "|", color="black", ms=7, mew=1.2, zorder=5)
    axes[0][0].set_ylim(bottom=0)
    if against:
        # Once all panels are drawn: they share the scale.
        ticks = _ratio_ticks(*axes[0][1].get_ylim())
        axes[0][1].yaxis.set_major_locator(FixedLocator(ticks))
        axes[0][1].yaxis.set_minor_locator(NullLocator())
        axes[0][1].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    for axis in axes[-1]:
        axis.set_xlabel("concurrent streams")
        axis.set_xscale("log", base=2)
        axis.xaxis.set_major_locator(FixedLocator(levels))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.set_xticklabels([str(v) for v in levels])
        axis.set_xlim(levels[0] / 1.15, levels[-1] * 1.15)
    legend(made, steps_handles(steps_looks(material.steps), material.steps))
    caption = captions.join(
        "Output tok/s (all completion tokens over the wall time of the pass) against the number of"
        " closed-loop streams, one line per number of speculative steps.",
        "Right: the ratio to 0 steps of the same profile; where a line crosses 1, speculation stops paying"
        " (vertical mark, interpolated on log axes)."
        if against
        else "",
        _crossover_sentence(frame) if against else "",
        captions.launches(frame, dots=False),
        captions.apart(material, "without a ratio"),
        captions.not_measured(material, ""),
        captions.not_proved(material, ""),
    )
    return Drawn("concurrency", "Throughput by number of streams", caption, made, frame)


def _ratio_ticks(low: float, high: float) -> list[float]:
    """At most seven round ratios from `low` to `high`, 1 among them wherever it is inside."""
    for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5):
        found = [
            round(1 + k * step, 2) for k in range(math.ceil((low - 1) / step), int((high - 1) / step) + 1)
        ]
        found = [value for value in found if low <= value <= high and value > 0]
        if len(found) <= 7:
            return found
    powers = range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)
    return [2.0**k for k in powers]


def _with_ratio(material: Material, frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with each value over that of 0 steps, else alike; and every cell's crossover."""
    base = [row for row in each(frame) if row["steps"] == 0]
    exact = {(r["nccl"], r["concurrency"], *(r[a] for a in material.axes)): r for r in base}
    # Axes that exist only under speculation share one cell without it.
    shared = {(r["nccl"], r["concurrency"]): r for r in reversed(base)}
    ratios = []
    for row in each(frame):
        key = (row["nccl"], row["concurrency"])
        plain = exact.get((*key, *(row[a] for a in material.axes)), shared.get(key))
        # A ratio across machines or epochs would be one between these.
        if plain is None or {row["cell"], plain["cell"]} & set(material.apart):
            ratios.append(math.nan)
        else:
            ratios.append(row["value"] / plain["value"])
    frame = frame.assign(ratio_to_0_steps=ratios)
    crossovers = {
        cell: crossover(part["concurrency"].tolist(), part["ratio_to_0_steps"].tolist())
        for cell, part in groups(frame[frame["steps"] > 0].sort_values("concurrency"), "cell")
    }
    found = [crossovers.get(c) for c in frame["cell"]]
    return frame.assign(crossover_streams=np.array(found, dtype=float))


def crossover(streams: list[int], ratios: list[float]) -> float | None:
    """The number of streams at which the ratio last falls to 1, log-interpolated; None if it never does."""
    known = [(s, r) for s, r in zip(streams, ratios, strict=True) if r == r]
    found = None
    for (s0, r0), (s1, r1) in itertools.pairwise(known):
        if r0 > 1 >= r1:
            share = math.log(r0) / (math.log(r0) - math.log(r1))
            found = math.exp(math.log(s0) + share * (math.log(s1) - math.log(s0)))
    return found


def _lines(axis: Axes, material: Material, part: pd.DataFrame, column: str) -> None:
    looks = steps_looks(material.steps)
    for one, line in groups(part.sort_values("concurrency"), "steps"):
        line = line[line[column].notna()]
        if line.empty or (column == "ratio_to_0_steps" and one == 0):
            continue
        look = looks[int(one)]
        axis.plot(
            line["concurrency"], line[column],
            marker=look.marker, ms=3, lw=0.9, color=look.colour, ls=look.line,
            mfc="white" if material.hollow(line["cell"].iloc[0]) else look.colour,
        )  # fmt: skip


def _crossover_sentence(frame: pd.DataFrame) -> str:
    """Where each cell's line crosses 1, and which cells lie on one side of it at every level."""
    crossing, above, below = [], [], []
    for cell, rows in groups(
        frame[(frame["steps"] > 0) & frame["ratio_to_0_steps"].notna()], "cell", sort=False
    ):
        where = float(rows["crossover_streams"].iloc[0])
        if where > 0:
            crossing.append(f"{cell} {where:#.2g}" if where < 10 else f"{cell} {where:.0f}")
        elif (rows["ratio_to_0_steps"] > 1).all():
            above.append(str(cell))
        elif (rows["ratio_to_0_steps"] < 1).all():
            below.append(str(cell))
    return captions.join(
        f"Crossovers (streams): {', '.join(crossing)}."
        if crossing
        else "No line falls to 1 within the streams measured.",
        f"Above 1 at every level: {', '.join(above)}." if above else "",
        f"Below 1 at every level: {', '.join(below)}." if below else "",
    )
