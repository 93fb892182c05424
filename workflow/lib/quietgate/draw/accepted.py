"""Figures of what the draft model is worth: acceptance by position, and the cost of a drafted token."""

from __future__ import annotations

import math
import textwrap
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from quietgate.analyse.claims import axis_words
from quietgate.draw import captions
from quietgate.draw.cycle import SOURCES
from quietgate.draw.drawn import Drawn, Material, NotDrawn
from quietgate.draw.frames import each, groups
from quietgate.draw.lines import legend, legend_handles, points, steps_handles
from quietgate.draw.style import COLUMN_IN, PAGE_IN, Look, figure, steps_looks, whole_numbers
from quietgate.study import command
from quietgate.wording import counted

FEWEST_FOR_A_FIT = 3
ALL_PROFILES = ""


def acceptance(material: Material) -> Drawn:
    """How often each drafted position is accepted, one line per number of steps."""
    table = material.table(
        "positions",
        "no request has a histogram of accepted drafts (no speculation, or SGLang before 0.5.9)",
    )
    frame = _positions(material, table[table["concurrency"] == material.lowest])
    keys = ["nccl", *material.axes]
    parts = (
        groups(frame, *keys, sort=False)
        if material.axes
        else [((key,), part) for key, part in groups(frame, "nccl", sort=False)]
    )
    parts.sort(key=lambda p: material.profiles.index(p[0][0]))
    columns = 2 if len(parts) == 4 else min(len(parts), 3)
    rows = math.ceil(len(parts) / columns)
    made, axes = figure(PAGE_IN if columns > 1 else COLUMN_IN, 0.3 + 2.2 * rows, rows, columns, sharey=True)
    looks, last = steps_looks(material.steps), int(frame["position"].max())
    for axis, (key, part) in zip(axes.flat, parts, strict=False):
        for one, line in groups(part, "steps"):
            look = looks[int(one)]
            axis.plot(line["position"], line["accepted"], marker=look.marker, color=look.colour, lw=0.9, ms=3)
        named = map(axis_words, material.axes, key[1:])
        label = ", ".join([material.profile_label(str(key[0])), *named])
        axis.set_title(textwrap.fill(label, 90 // columns))
        axis.set_xlabel("drafted position")
        whole_numbers(axis, range(1, last + 1))
        axis.set_xlim(1 - 0.05 * last, last + 0.05 * last)
    for spare in list(axes.flat)[len(parts) :]:
        spare.set_axis_off()
    top = float(frame["accepted"].max())
    axes[0][0].set_ylim(0, 1.02 if top > 0.8 else min(1.02, 1.1 * top))
    legend(made, steps_handles(looks, sorted(int(s) for s in frame["steps"].unique())))
    for row in axes:
        row[0].set_ylabel("share of cycles accepted")
    caption = captions.join(
        "Share of cycles in which the draft at a position was accepted (with all before it), at"
        f" {counted(material.lowest, 'stream')}, from the servers' own histograms over all timed requests."
        " One plus the sum over a line is its tokens per cycle; all at 1 would be the ceiling, steps + 1.",
        f"Cycles per line: {int(frame.groupby('cell')['cycles'].first().min())} or more.",
        captions.not_measured(material, ""),
        captions.not_proved(material, ""),
    )
    return Drawn("acceptance", "Acceptance of drafted tokens by position", caption, made, frame)


def _positions(material: Material, table: pd.DataFrame) -> pd.DataFrame:
    """Shares over all launches of a cell, weighted by their cycles."""
    if table.empty:
        raise NotDrawn("no histogram of accepted drafts at the lowest concurrency")
    table = table.assign(got=table["accepted"] * table["cycles"])
    keys = ["cell", "steps", "nccl", *material.axes, "position"]
    sums = table.groupby(keys, sort=False, dropna=False)[["got", "cycles"]].sum().reset_index()
    sums["accepted"] = (sums["got"] / sums["cycles"]).astype(float)
    return sums.drop(columns="got")


def verify_cost(material: Material) -> Drawn:
    """Target-verify time against the tokens it verifies, and what one more drafted token costs."""
    stages = material.table("stages", "no launch has a profile of its cycles")
    timed = stages[stages["verify_ms"].notna()]
    if timed["steps"].nunique() < 2:
        raise NotDrawn("verify times of fewer than two numbers of steps")
    axes_of = {c["id"]: c["axes"] for c in material.study["cells"]}
    frame = timed[["cell", "steps", "nccl", *material.axes, "launch", "verify_ms", "verify_source"]].copy()
    frame.insert(
        5,
        "verify_tokens",
        [_verified(material, int(r["steps"]), axes_of[r["cell"]]) for r in each(timed)],
    )
    plain = stages[(stages["steps"] == 0) & stages["decode_ms"].notna()]
    made, axes = figure(COLUMN_IN, 2.5)
    axis = axes[0][0]
    for nccl, look in material.looks.items():
        mine, one = frame[frame["nccl"] == nccl], plain[plain["nccl"] == nccl]
        if len(one):
            axis.plot(
                [1] * len(one), one["decode_ms"], look.marker, mfc="none", mec=look.colour, ms=5, mew=0.8
            )
        if len(mine):
            points(axis, material, look, mine, "verify_tokens", "verify_ms")
    fits = _fits(material, frame[~frame["cell"].isin(material.apart)])
    x = np.array([1.0, float(frame["verify_tokens"].max())])
    for fit in fits:
        look = material.looks.get(fit["nccl"], Look("black", "", "-"))
        y = fit["ms_at_no_token"] + fit["ms_per_drafted_token"] * x
        axis.plot(x, y, color=look.colour, ls=look.line, lw=0.9, zorder=1)
    # Markers have a size: the largest must not be cut at the top of the panel.
    axis.set_ylim(0, 1.1 * max(float(frame["verify_ms"].max()), *plain["decode_ms"].astype(float), 0.0))
    axis.set_xlabel("tokens verified per cycle")
    axis.set_ylabel("target verify (ms)")
    whole_numbers(axis, [1, *sorted(frame["verify_tokens"].unique())])
    handles = legend_handles(material)
    lines = {fit["nccl"] for fit in fits}
    for handle, nccl in zip(handles, material.looks, strict=True):
        if nccl not in lines:
            handle.set_linestyle("")
    if ALL_PROFILES in lines:
        handles.append(Line2D([], [], color="black", lw=0.9, label="fit over all profiles"))
    if len(plain):
        handles.append(
            Line2D([], [], ls="", marker="o", mfc="none", mec="black", ms=5, label="decode forward, 0 steps")
        )
    legend(made, handles)
    if fits:
        by_profile = {fit["nccl"]: fit for fit in fits}
        whole = by_profile.get(ALL_PROFILES, {})
        for name in ("ms_per_drafted_token", "ms_at_no_token"):
            frame[name] = [by_profile.get(str(nccl), whole).get(name) for nccl in frame["nccl"]]
    caption = captions.join(
        f"Target-verify time per cycle at {counted(material.lowest, 'stream')} against the tokens verified"
        " (drafted tokens + 1), one marker per launch; larger open markers: a decode forward without"
        " speculation, not part of the fit.",
        _fit_sentence(fits, frame["nccl"].nunique()),
        captions.apart(material, "not part of the fit"),
        f"Source: {_sources(timed['verify_source'])}.",
        captions.not_measured(material, ""),
        captions.not_proved(material),
    )
    return Drawn("verify_cost", "What a drafted token costs to verify", caption, made, frame)


def _fits(material: Material, frame: pd.DataFrame) -> list[dict[str, Any]]:
    """A straight line per profile, or one over all where no profile did anything.

    Two numbers of verified tokens always lie on a line, so that its slope would be no finding.
    """
    parts = [(ALL_PROFILES, frame)] if _together(material) else groups(frame, "nccl", sort=False)
    found = []
    for nccl, mine in parts:
        if mine["verify_tokens"].nunique() < FEWEST_FOR_A_FIT:
            continue
        slope, start = np.polyfit(mine["verify_tokens"].astype(float), mine["verify_ms"].astype(float), 1)
        found.append({"nccl": nccl, "ms_per_drafted_token": float(slope), "ms_at_no_token": float(start)})
    return sorted(found, key=lambda fit: [*material.profiles, ALL_PROFILES].index(fit["nccl"]))


def _together(material: Material) -> bool:
    return material.nothing_exercised and len(material.profiles) > 1


def _fit_sentence(fits: list[dict[str, Any]], profiles: int) -> str:
    none = f"needs {FEWEST_FOR_A_FIT} different numbers of verified tokens"
    if not fits:
        return f"No line is fitted: that {none}."
    told = ", ".join(
        f"{fit['ms_per_drafted_token']:.2g} ms"
        + (" over all profiles" if fit["nccl"] == ALL_PROFILES else f" under {fit['nccl']}")
        for fit in fits
    )
    less = f" A fit {none}; a profile without a line has fewer." if 0 < len(fits) < profiles else ""
    less = "" if fits[0]["nccl"] == ALL_PROFILES else less
    return f"Line: least squares; a drafted token costs {told}.{less}"


def _verified(material: Material, steps: int, axes: dict[str, Any]) -> int:
    """Tokens that one verify pass of the cell looks at."""
    config = material.study["config"]
    for name, value in axes.items():
        flag = str(config["grid"]["axes"][name].get("flag", "")).replace("_", "-")
        if flag == "speculative-num-draft-tokens" and value is not None:
            return int(value)
    return command.draft_tokens(dict(config), steps)


def _sources(column: pd.Series) -> str:
    return ", ".join(SOURCES.get(str(s), str(s)) for s in column.dropna().unique())
