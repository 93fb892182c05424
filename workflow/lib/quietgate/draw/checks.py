"""Figures that check the study itself: did the machine drift, and do its numbers agree."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from quietgate.draw import captions
from quietgate.draw.drawn import Drawn, Material, NotDrawn
from quietgate.draw.frames import each
from quietgate.draw.lines import legend, legend_handles, points
from quietgate.draw.style import COLUMN_IN, GREY, PAGE_IN, figure
from quietgate.draw.values import per_launch
from quietgate.wording import counted

METRIC = "decode_tokens_per_s"


def drift(material: Material) -> Drawn:
    """Every launch against its cell's mean, over the time of the study; the reference is the sentinel."""
    frame = _off_mean(material)
    reference = material.study["reference"]
    made, axes = figure(PAGE_IN, 2.4)
    axis = axes[0][0]
    axis.axhline(0.0, color=GREY, lw=0.8)
    for nccl, look in material.looks.items():
        mine = frame[(frame["nccl"] == nccl) & (frame["cell"] != reference)]
        points(axis, material, look, mine, "hours", "off_percent")
    sentinel = frame[frame["cell"] == reference].sort_values("hours")
    axis.plot(sentinel["hours"], sentinel["off_percent"], "*-", color="black", ms=8, lw=1.0, zorder=5)
    for start in frame.groupby(["epoch", "block"])["hours"].min().iloc[1:]:
        axis.axvline(start, color="0.8", lw=0.6, ls=(0, (1, 2)), zorder=0)
    axis.set_xlabel("start of the timed passes (hours since the first)")
    axis.set_ylabel("decode tok/s,\noff the cell's mean (%)")
    axis.set_xlim(left=min(0.0, axis.get_xlim()[0]))
    star = Line2D([], [], color="black", marker="*", ms=8, lw=1.0, label=f"reference cell {reference}")
    profiles = legend_handles(material)
    for handle in profiles:
        handle.set_linestyle("")
    legend(made, [*profiles, star] if len(sentinel) else profiles)
    slope = _slope(frame)
    moved = f"Least squares over all launches: {slope:+.2f} % over the study" if slope is not None else ""
    caption = captions.join(
        f"Decode tok/s of each launch at {counted(material.lowest, 'stream')} against the geometric mean of"
        " its cell's launches on the same machine, when it was measured; dotted: a new block begins. The"
        " reference cell (stars) is the sentinel.",
        f"{moved}; blocks take such a drift out of the comparisons." if moved else "",
        captions.not_measured(material, ""),
        captions.not_proved(material),
    )
    return Drawn("drift", "Did the machine drift during the study?", caption, made, frame)


def _off_mean(material: Material) -> pd.DataFrame:
    values = per_launch(material, METRIC)
    values = values[values["concurrency"] == material.lowest]
    alike = ["epoch", "machine", "cell"]
    counts = values.groupby(alike)["launch"].transform("size")
    values = values[counts > 1]
    if values.empty:
        raise NotDrawn("one launch per cell and machine: nothing shows how launches vary over time")
    first = material.passed.drop_duplicates(["cell", "launch"]).set_index(["cell", "launch"])["started_at"]
    started = pd.to_datetime([first[k] for k in zip(values["cell"], values["launch"], strict=True)], utc=True)
    hours = (started - started.min()).total_seconds() / 3600
    mean = values.groupby(alike)["log_value"].transform("mean")
    nccl = {c["id"]: c["nccl"] for c in material.study["cells"]}
    frame = values[["cell", "launch", "epoch", "block", "value"]].assign(
        nccl=[nccl[c] for c in values["cell"]],
        hours=np.asarray(hours, dtype=float),
        off_percent=100 * np.expm1((values["log_value"] - mean).astype(float)),
    )
    return frame.sort_values(["hours", "cell"], kind="stable", ignore_index=True)


def _slope(frame: pd.DataFrame) -> float | None:
    """Percent over the whole study of a straight line through all launches."""
    span = float(frame["hours"].max())
    if span <= 0 or len(frame) < 6:
        return None
    return float(np.polyfit(frame["hours"], frame["off_percent"], 1)[0] * span)


def predicted(material: Material) -> Drawn:
    """Decode speed as tokens per cycle over cycle time predicts it, against what was measured."""
    rows = material.passed[material.passed["concurrency"] == material.lowest]
    keys = ["cell", "steps", "nccl", *material.axes, "launch"]
    names = [METRIC, "tokens_per_cycle", "cycle_ms"]
    numbers = rows[keys].assign(**{n: pd.to_numeric(rows[n]) for n in names})
    frame = numbers.groupby(keys, sort=False, dropna=False)[names].median().reset_index().dropna(subset=names)
    if frame.empty:
        raise NotDrawn("no launch has tokens per cycle and cycle time")
    frame["predicted_tokens_per_s"] = 1000 * frame["tokens_per_cycle"] / frame["cycle_ms"]
    frame["difference_percent"] = 100 * (frame["predicted_tokens_per_s"] / frame[METRIC] - 1)
    made, axes = figure(COLUMN_IN, 2.6)
    axis = axes[0][0]
    both = frame[[METRIC, "predicted_tokens_per_s"]]
    low, high = float(both.min().min()), float(both.max().max())
    margin = max(0.06 * (high - low), 0.01 * high)
    ends = [low - margin, high + margin]
    axis.plot(ends, ends, color=GREY, lw=0.8)
    for nccl, look in material.looks.items():
        mine = frame[frame["nccl"] == nccl]
        points(axis, material, look, mine, "predicted_tokens_per_s", METRIC)
    axis.set_xlabel("predicted: tokens per cycle / cycle time (tok/s)")
    axis.set_ylabel("measured decode tok/s")
    axis.set_xlim(*ends)
    axis.set_ylim(*ends)
    axis.set_aspect("equal")
    handles = legend_handles(material)
    for handle in handles:
        handle.set_linestyle("")
    legend(made, handles)
    off = frame["difference_percent"].abs()
    worst = each(frame)[int(off.to_numpy().argmax())]
    caption = captions.join(
        "Tokens per cycle over cycle time (sums over all requests of a pass) against the median decode tok/s"
        f" of the requests at {counted(material.lowest, 'stream')}; one marker per launch, grey: equal. A"
        " check of the arithmetic, not a result.",
        f"Median difference {off.median():.2g} %,"
        f" largest {off.max():.2g} % ({worst['cell']} {worst['launch']}).",
        captions.not_measured(material, ""),
        captions.not_proved(material),
    )
    return Drawn("predicted", "Predicted against measured speed", caption, made, frame)
