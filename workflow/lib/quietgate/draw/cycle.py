"""Figures of what a cycle is made of: its stages, and what a drafted token costs."""

from __future__ import annotations

import math
import textwrap
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.patches import Patch

from quietgate.draw import captions
from quietgate.draw.drawn import Drawn, Material, NotDrawn
from quietgate.draw.lines import legend
from quietgate.draw.style import COLUMN_IN, PAGE_IN, STAGES, categories, figure
from quietgate.draw.values import failure_of, gone, panels
from quietgate.wording import counted

SOURCES = {
    "device_timer": "SGLang's stage timer",
    "cycle_timer": "the per-cycle timer",
    "trace": "kernel time in the profiler's trace",
    "trace_scaled": "the profiler's spans, scaled to the timed cycle",
    "requests": "arithmetic from the timed requests",
}


def cycle_stages(material: Material) -> Drawn:
    """Cycle time as stacked stages, by steps, one panel per profile."""
    frame = _stage_means(material)
    parts = [
        (", ".join(w for w in (material.profile_label(nccl), label) if w), part[part["nccl"] == nccl])
        for label, part in panels(material, frame)
        for nccl in material.profiles
    ]
    parts = [(label, part) for label, part in parts if len(part)]
    columns = 3 if len(parts) in (3, 6) and len(material.steps) < 12 else min(2, len(parts))
    rows = math.ceil(len(parts) / columns)
    made, axes = figure(
        PAGE_IN if len(parts) > 1 else COLUMN_IN, 0.6 + 2.1 * rows, rows, columns, sharey=True
    )
    for spare in axes.flat[len(parts) :]:
        spare.set_axis_off()
    used: list[str] = []
    tallest = float(frame["cycle_ms"].max())
    for axis, (label, part) in zip(axes.flat, parts, strict=False):
        bars = part.reset_index(drop=True)
        foot = np.zeros(len(bars))
        for name, look in STAGES.items():
            height = bars[name].fillna(0.0).to_numpy(dtype=float)
            if not (height > 0).any():
                continue
            used += [name] if name not in used else []
            axis.bar(
                bars.index,
                height,
                0.78,
                foot,
                color=look.colour,
                hatch=look.hatch,
                ec="0.2",
                lw=0.4,
                zorder=2,
            )
            foot += np.maximum(height, 0.0)
        tallest = max(tallest, float(foot.max()))
        for i, row in bars[bars["status"] == "failed"].iterrows():
            axis.plot(i, 0.035, "kx", ms=5, mew=1.3, transform=axis.get_xaxis_transform(), zorder=5)
            # Beside its mark, from the foot of the panel up: a long class takes a second line.
            words = textwrap.fill(gone(row["failure_class"]), 24)
            axis.text(
                i, 0.08, words, rotation=90, ha="center", va="bottom", fontsize=7,
                transform=axis.get_xaxis_transform(),
            )  # fmt: skip
        categories(axis, [str(steps) for steps in bars["steps"]])
        axis.set_xlabel("speculative steps")
        axis.set_title(label)
    # Once all panels are drawn: a limit set before fixes the shared scale.
    axes[0][0].set_ylim(0, 1.05 * tallest)
    for row in axes:
        row[0].set_ylabel("cycle time (ms)")
    order = [n for n in STAGES if n in used]
    handles: list[Any] = [
        Patch(fc=STAGES[n].colour, hatch=STAGES[n].hatch, ec="0.2", lw=0.4, label=STAGES[n].label)
        for n in order
    ]
    if used == ["other_ms"]:
        handles[0].set_label("whole cycle (no stage was timed)")
    legend(made, handles)
    caption = captions.join(
        f"Time of one cycle at {counted(material.lowest, 'stream')}, split by stage (median over launches);"
        " at 0 steps a cycle is one decode forward.",
        _source_sentence(frame),
        "The top part is the cycle as the requests saw it less its stages: sampling, tree building, the"
        f" scheduler, gaps{_unseen(material)}.",
        captions.apart(material, "not comparable with the other bars"),
        captions.not_measured(material),
        captions.not_proved(material, ""),
    )
    return Drawn("cycle_stages", "Where the time of a cycle goes", caption, made, frame)


def _stage_means(material: Material) -> pd.DataFrame:
    """Median over launches of each stage, one row per cell, with its sources."""
    stages = material.table("stages", "no launch has a profile of its cycles")
    names = [n for n in STAGES if n in stages.columns]
    rows = []
    for cell in material.study["cells"]:
        row = {"cell": cell["id"], "steps": cell["steps"], "nccl": cell["nccl"], **cell["axes"]}
        mine = stages[stages["cell"] == cell["id"]]
        if mine.empty:
            status = "failed" if cell["id"] not in set(material.passed["cell"]) else "no profile"
            rows.append(
                row | {"launches": 0, "status": status, "failure_class": failure_of(material, cell["id"])}
            )
            continue
        values = {n: _median(mine[n]) for n in [*names, "cycle_ms"]}
        if values["cycle_ms"] is not None and values["other_ms"] is None:
            values["other_ms"] = values["cycle_ms"]
        sources = {f"{n[:-3]}_source": _first(mine[f"{n[:-3]}_source"]) for n in names if n != "other_ms"}
        rows.append(row | {"launches": len(mine), "status": "passed", **values, **sources})
    frame = pd.DataFrame(rows)
    for name in ("failure_class", *STAGES, "cycle_ms"):
        if name not in frame:
            frame[name] = None
    if frame["cycle_ms"].isna().all():
        raise NotDrawn("no launch has a cycle time")
    return frame.sort_values(["steps"], kind="stable", ignore_index=True)


def _median(values: pd.Series) -> float | None:
    numbers = pd.to_numeric(values).dropna()
    return float(numbers.median()) if len(numbers) else None


def _first(values: pd.Series) -> str | None:
    known = values.dropna()
    return str(known.iloc[0]) if len(known) else None


def _source_sentence(frame: pd.DataFrame) -> str:
    """Which source each stage was taken from."""
    by_source: dict[str, list[str]] = {}
    for name, look in STAGES.items():
        column = f"{name[:-3]}_source"
        for source in frame[column].dropna().unique() if column in frame else []:
            by_source.setdefault(str(source), []).append(look.label)
    if not by_source:
        return "No source told the stages of a cycle here, so each bar is whole."
    parts = [f"{', '.join(labels)} from {SOURCES.get(s, s)}" for s, labels in by_source.items()]
    return f"Sources: {'; '.join(parts)}; the whole cycle from {SOURCES['requests']}."


def _unseen(material: Material) -> str:
    """Which stages hide in the rest because nothing timed them."""
    stages = material.tables["stages"]
    unseen = sorted({w for words in stages["other_holds"].dropna() for w in str(words).split()})
    labels = {n[:-3]: look.label for n, look in STAGES.items()}
    names = [labels[w] for w in unseen if w in labels]
    return f", and, where nothing timed them, {', '.join(names)}" if names else ""
