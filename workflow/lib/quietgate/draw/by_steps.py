"""Figures over the number of speculative steps, one line per NCCL profile."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from quietgate.draw import captions
from quietgate.draw.drawn import Drawn, Material
from quietgate.draw.frames import each
from quietgate.draw.lines import dodge, failures, legend, legend_handles, lines, page
from quietgate.draw.style import GREY, whole_numbers
from quietgate.draw.values import noisy, over_grid, panels
from quietgate.wording import counted


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
    made, axes = page(material, frame)
    for axis, (label, part) in zip(axes, panels(material, frame), strict=False):
        lines(axis, material, part)
        for row in each(shown):
            _mark(axis, material, row)
        axis.set_title(label)
        axis.set_xlabel("speculative steps")
        axis.set_ylabel(captions.METRICS[metric])
        whole_numbers(axis, material.steps)
        failures(axis, material, part)
    handles = legend_handles(material)
    if len(shown):
        handles.append(
            Line2D([], [], ls="", marker="*", mfc="none", mec="black", ms=7, label="published (hand-run)")
        )
    legend(made, handles, frame)
    definition = {
        "decode_tokens_per_s": "tokens after the first chunk over the time from first to last chunk",
        "request_tokens_per_s": "all tokens over the time from request to last chunk, prefill included",
    }[metric]
    caption = captions.join(
        f"{captions.METRICS[metric].capitalize()} ({definition}; median over the requests of a pass) at"
        f" {counted(streams, 'stream')} against speculative steps; 0 steps: no speculation.",
        captions.launches(frame, noisy=noisy(material, metric, streams)),
        captions.apart(material),
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
    made, axes = page(material, frame)
    steps = np.array([material.steps[0], material.steps[-1] + 0.3])
    top = float(frame["value"].max())
    for axis, (label, part) in zip(axes, panels(material, frame), strict=False):
        axis.plot(steps, steps + 1, color=GREY, lw=0.8, ls=(0, (2, 2)))
        lines(axis, material, part)
        axis.set_ylim(0, min(max(steps) + 1, 1.6 * top) + 0.3)
        axis.set_title(label)
        axis.set_xlabel("speculative steps")
        axis.set_ylabel("tokens per cycle")
        whole_numbers(axis, material.steps)
        failures(axis, material, part)
    ceiling = Line2D([], [], color=GREY, lw=0.8, ls=(0, (2, 2)), label="ceiling: steps + 1")
    legend(made, [*legend_handles(material), ceiling], frame)
    caption = captions.join(
        f"Tokens per cycle, (completion tokens - 1) / verify passes, at {counted(streams, 'stream')};"
        " 1 without speculation. Dashed: the ceiling, every drafted token accepted.",
        captions.launches(frame, noisy=noisy(material, "tokens_per_cycle", streams)),
        captions.apart(material),
        captions.not_measured(material),
        captions.not_proved(material),
    )
    return Drawn("tokens_per_cycle", "Tokens per cycle by steps and NCCL profile", caption, made, frame)


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
            "note": [f", {note}" if note else "" for note in found["note"]],
        }
    ).reset_index(drop=True)


def _mark(axis: Axes, material: Material, row: dict[str, Any]) -> None:
    look = material.looks[row["nccl"]]
    x = row["steps"] + dodge(material, row["nccl"])
    axis.plot(x, row["value"], "*", ms=7, mfc="none", mec=look.colour, zorder=5)


def _mark_sentence(shown: pd.DataFrame) -> str:
    if shown.empty:
        return ""
    told = ", ".join(
        f"{r['value']:g} ({counted(r['steps'], 'step')}, {r['nccl']}{r['note']})" for r in each(shown)
    )
    return (
        f"Stars: numbers published from a hand-run study, {told}; single runs of unknown spread, shown for"
        " comparison only and no part of any result."
    )
