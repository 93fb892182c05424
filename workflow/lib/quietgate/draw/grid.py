"""Figures of the whole grid against its reference: speed-up of each cell, and what a profile gains."""

from __future__ import annotations

import math
import textwrap
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from quietgate.analyse.claims import UNKNOWN_VARIATION, axis_words
from quietgate.draw import captions
from quietgate.draw.drawn import Drawn, Material, NotDrawn
from quietgate.draw.frames import each
from quietgate.draw.lines import beside, failure_glyphs, legend, page
from quietgate.draw.style import COLUMN_IN, GREY, PAGE_IN, figure, whole_numbers
from quietgate.draw.values import failure_of, gone, over_grid, panels, per_launch
from quietgate.wording import counted

METRIC = "decode_tokens_per_s"


def speed_up(material: Material) -> Drawn:
    """Every cell's decode speed as a ratio to the reference cell, as a table of colours and numbers."""
    frame = _ratios(material)
    if len(frame) < 2:
        raise NotDrawn("the grid has one cell only")
    keys = ["nccl", *material.axes]
    rows = list(dict.fromkeys(tuple(r[k] for k in keys) for r in each(frame)))
    steps = material.steps
    wide = len(steps) > 5
    made, axes = figure(PAGE_IN if wide else COLUMN_IN, 0.75 + 0.42 * len(rows))
    axis = axes[0][0]
    logs = np.log(frame["ratio"].dropna().to_numpy(dtype=float))
    limit = max(0.02, float(np.abs(logs).max()) if len(logs) else 0.02)
    colours, norm = matplotlib.colormaps["PuOr_r"], Normalize(-1.15 * limit, 1.15 * limit)
    for row in each(frame):
        y, x = rows.index(tuple(row[k] for k in keys)), steps.index(row["steps"])
        if row["status"] == "failed":
            axis.add_patch(Rectangle((x, y), 1, 1, fc="white", ec="0.6", hatch="////", lw=0.5))
            first, _, words = gone(row["failure_class"]).partition(": ")
            small = max(map(len, words.split()), default=0) > 9
            told = textwrap.fill(words or first, 11 if small else 9, break_long_words=False)
            axis.text(
                x + 0.5, y + 0.5, f"{first}:\n{told}" if words else told,
                ha="center", va="center", fontsize=6 if small else 7,
                bbox={"fc": "white", "ec": "none", "pad": 0.6},
            )  # fmt: skip
            continue
        colour = colours(norm(math.log(row["ratio"]))) if row["ratio"] == row["ratio"] else (1, 1, 1, 1)
        axis.add_patch(Rectangle((x, y), 1, 1, fc=colour, ec="white", lw=1.0))
        dark = 0.3 * colour[0] + 0.59 * colour[1] + 0.11 * colour[2] < 0.5
        axis.text(
            x + 0.5, y + 0.5, _cell_text(row, material), ha="center", va="center", fontsize=7.5,
            color="white" if dark else "black", weight="bold" if row["claim"] else "normal",
        )  # fmt: skip
    axis.set_xlim(0, len(steps))
    axis.set_ylim(len(rows), 0)
    axis.set_xticks([i + 0.5 for i in range(len(steps))], [str(s) for s in steps])
    axis.set_yticks([i + 0.5 for i in range(len(rows))], [_row_label(material, r) for r in rows])
    axis.grid(False)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    axis.set_xlabel("speculative steps")
    reference = next(c for c in material.study["cells"] if c["id"] == material.study["reference"])
    caption = captions.join(
        f"Decode tok/s at {counted(material.lowest, 'stream')} divided by that of the reference cell"
        f" {reference['id']} (marked ref); orange is faster, purple slower.",
        _claim_sentence(frame),
        "Not compared: no block on one machine with the reference."
        if (frame["ratio"].isna() & (frame["status"] != "failed")).any()
        else "",
        captions.not_measured(material, "hatched"),
        captions.not_proved(material, ""),
    )
    return Drawn("speed_up", "Speed-up over the reference cell", caption, made, frame)


def _ratios(material: Material) -> pd.DataFrame:
    """Ratio of every cell to the reference: from the study's comparisons, else of the cells' values."""
    grid = over_grid(material, METRIC, material.lowest)
    cells = grid[grid["kind"] == "cell"].drop(columns=["kind", "launch", "low", "high"])
    base = cells.loc[cells["cell"] == material.study["reference"], "value"]
    if base.empty or base.isna().all():
        raise NotDrawn(f"no launch of the reference cell {material.study['reference']} passed")
    compared = {row["cell"]: row for row in _contrasts(material, "reference")}
    reference, plain = material.study["reference"], float(base.iloc[0])
    rows = []
    for row in each(cells):
        found = compared.get(row["cell"], {})
        # A cell that the statistics could not compare ran on another machine: no ratio of its own value.
        alone = compared and row["cell"] != reference
        row["ratio"] = found.get("ratio", math.nan if alone else row["value"] / plain)
        for name in ("ratio_low", "ratio_high", "level", "family", "verdict"):
            row[name] = found.get(name)
        row["claim"] = bool(found.get("claim", False))
        rows.append(row)
    return pd.DataFrame(rows)


def _contrasts(material: Material, *kinds: str) -> list[dict[str, Any]]:
    """The study's comparisons of these kinds at the lowest concurrency, of the first epoch that has them."""
    frame = material.tables.get("contrasts")
    if frame is None or "kind" not in frame:
        return []
    frame = frame[frame["kind"].isin(kinds) & (frame["concurrency"] == material.lowest)]
    return each(frame.sort_values("epoch", kind="stable").drop_duplicates(["kind", "cell"]))


def _cell_text(row: dict[str, Any], material: Material) -> str:
    if row["ratio"] != row["ratio"]:
        return "not\ncompared"
    text = f"{row['ratio']:.2f}{'*' if row['claim'] else ''}"
    return f"{text}\nref" if row["cell"] == material.study["reference"] else text


def _row_label(material: Material, key: tuple[Any, ...]) -> str:
    named = list(map(axis_words, material.axes, key[1:]))
    return "\n".join([textwrap.fill(material.profile_label(key[0]), 20), *named])


def _claim_sentence(frame: pd.DataFrame) -> str:
    known = frame[frame["level"].notna() & frame["ratio_low"].notna()]
    if known.empty:
        return "No comparison is claimed: too few launches to know how launches vary."
    level, family = float(known["level"].iloc[0]), int(known["family"].iloc[0])
    counts = frame.loc[frame["launches"] > 0, "launches"]
    few, most = int(counts.min()), int(counts.max())
    many = f"{most}" if few == most else f"{few} to {most}"
    return (
        f"Bold with *: a difference is claimed (joint {100 * level:.3g} % interval over"
        f" {counted(family, 'comparison')} leaves out 1, and so without any single launch;"
        f" n = {many} launches per cell)."
    )


def interaction(material: Material) -> Drawn:
    """What each profile gains over the reference's profile, by steps: flat if steps and profile add up."""
    base = next(c for c in material.study["cells"] if c["id"] == material.study["reference"])
    others = [p for p in material.profiles if p != base["nccl"]]
    if not others:
        raise NotDrawn("the grid has one NCCL profile only")
    frame = _gains(material, base, others)
    means = frame[frame["kind"] == "cell"]
    if means["ratio"].isna().all():
        raise NotDrawn("no number of steps was measured under two NCCL profiles in one block")
    made, axes = page(material, frame)
    glyphs = failure_glyphs(frame)
    for axis, (label, part) in zip(axes, panels(material, frame), strict=False):
        axis.axhline(1.0, color=GREY, lw=0.8)
        for i, nccl in enumerate(others):
            x = 0.16 * (i - (len(others) - 1) / 2)
            _gain_line(axis, material, part[part["nccl"] == nccl], x, glyphs)
        axis.set_title(label)
        axis.set_xlabel("speculative steps")
        axis.set_ylabel("ratio of decode tok/s")
        whole_numbers(axis, material.steps)
    handles = [
        Line2D(
            [], [],
            color=material.looks[n].colour, ls=material.looks[n].line, marker=material.looks[n].marker,
            mfc=material.looks[n].colour if material.profile_label(n) == n else "white",
            label=f"{material.profile_label(n)} / {base['nccl']}",
        )
        for n in others
    ]  # fmt: skip
    legend(made, handles, _lost(material, means))
    noise = material.nothing_exercised
    caption = captions.join(
        f"Decode tok/s at {counted(material.lowest, 'stream')} under a profile divided by that under"
        f" {base['nccl']} at the same steps; 1: no difference.",
        "No profile did anything, so that both sides are the same configuration: distances from 1 show how"
        " two measurements of it differ, and nothing of the profiles."
        if noise
        else "A level line means that steps and profile act independently.",
        _interval_sentence(means),
        "" if noise else _interaction_sentence(material),
        captions.not_measured(material),
        captions.not_proved(material),
    )
    title = (
        "The same configuration measured twice" if noise else "Do steps and NCCL profile act independently?"
    )
    return Drawn("interaction", title, caption, made, frame)


def _lost(material: Material, means: pd.DataFrame) -> pd.DataFrame:
    """The cells, of either side, whose failure left a ratio out: a row each, as the legend wants them."""
    lost = means.dropna(subset=["failed_cell"]).drop_duplicates("failed_cell")
    cells = {c["id"]: c for c in material.study["cells"]}
    for name in ("nccl", "steps"):
        lost = lost.assign(**{name: [cells[cell][name] for cell in lost["failed_cell"]]})
    return lost


def _gain_line(axis: Axes, material: Material, part: pd.DataFrame, x: float, glyphs: dict[str, str]) -> None:
    """One profile's ratios over steps, with intervals, the ratios inside blocks, and what failed."""
    mine, dots = part[part["kind"] == "cell"].sort_values("steps"), part[part["kind"] == "block"]
    if mine.empty:
        return
    look = material.looks[str(mine["nccl"].iloc[0])]
    if len(dots) > len(mine):
        axis.plot(dots["steps"] + x, dots["ratio"], ".", ms=2, color=look.colour, transform=beside(axis, 1))
    axis.plot(mine["steps"] + x, mine["ratio"], color=look.colour, ls=look.line)
    known = mine[mine["ratio_low"].notna()]
    axis.vlines(known["steps"] + x, known["ratio_low"], known["ratio_high"], color=look.colour, lw=1.2)
    for row in each(mine):
        if row["status"] == "failed":
            axis.plot(
                row["steps"] + x, 0.035, glyphs[row["failure_class"]],
                color=look.colour, ms=5, mew=1.3, transform=axis.get_xaxis_transform(), clip_on=False,
            )  # fmt: skip
            continue
        hollow = material.hollow(row["cell"]) or material.hollow(row["against"])
        fill = "white" if hollow else look.colour
        axis.plot(row["steps"] + x, row["ratio"], look.marker, color=look.colour, mfc=fill, zorder=4)


def _gains(material: Material, base: dict[str, Any], others: list[str]) -> pd.DataFrame:
    """Ratio to the cell with the same steps and axes under the base profile: means, and block by block."""
    compared = {r["cell"]: r for r in _contrasts(material, "profile", "reference")}
    launches = per_launch(material, METRIC)
    launches = launches[launches["concurrency"] == material.lowest]
    # A launch repeated later can be the second of its cell in a block.
    together = launches.groupby(["machine_block", "block", "cell"])["value"].median().reset_index()
    values = {(r["machine_block"], r["cell"]): (r["block"], r["value"]) for r in each(together)}
    place = {(c["nccl"], c["steps"], *c["axes"].values()): c for c in material.study["cells"]}
    measured = set(launches["cell"])
    rows = []
    for cell in material.study["cells"]:
        plain = place.get((base["nccl"], cell["steps"], *cell["axes"].values()))
        if cell["nccl"] not in others or plain is None:
            continue
        row = {"cell": cell["id"], "steps": cell["steps"], "nccl": cell["nccl"], **cell["axes"]}
        row["against"] = plain["id"]
        ratios = [
            (block, value / values[number, plain["id"]][1])
            for (number, name), (block, value) in values.items()
            if name == cell["id"] and (number, plain["id"]) in values
        ]
        found = compared.get(cell["id"])
        lost = next((c for c in (cell["id"], plain["id"]) if c not in measured), None)
        if lost:
            failure = {"status": "failed", "failed_cell": lost, "failure_class": failure_of(material, lost)}
            rows.append({"kind": "cell"} | row | failure)
        elif found is not None and found["against"] == plain["id"]:
            rows.append({"kind": "cell"} | row | {n: found[n] for n in ("ratio", "ratio_low", "ratio_high")})
        elif ratios:
            rows.append({"kind": "cell"} | row | {"ratio": float(np.median([r for _, r in ratios]))})
        rows += [{"kind": "block"} | row | {"block": block, "ratio": r} for block, r in ratios]
    names = ["ratio", "ratio_low", "ratio_high"]
    columns = ["kind", "cell", "steps", "nccl", *material.axes, "against", "block", *names]
    columns += ["status", "failed_cell", "failure_class"]
    frame = pd.DataFrame(rows, columns=columns)
    for name in names:
        frame[name] = pd.to_numeric(frame[name])
    frame["block"] = frame["block"].astype("Int64")
    return frame


def _interval_sentence(means: pd.DataFrame) -> str:
    if means["ratio_low"].notna().any():
        return (
            "Markers and bars: block-adjusted ratio with its joint interval over the comparisons of its"
            " family; small dots: ratios inside single blocks."
        )
    return "No interval: the variation from launch to launch is unknown."


def _interaction_sentence(material: Material) -> str:
    rows = _contrasts(material, "interaction")
    rows = [r for r in rows if r["verdict"] != UNKNOWN_VARIATION]  # without an interval nothing was tested
    if not rows:
        return ""
    claimed = sum(bool(r["claim"]) for r in rows)
    return f"{counted(len(rows), 'interaction')} (ratios of ratios) tested, {claimed} claimed."
