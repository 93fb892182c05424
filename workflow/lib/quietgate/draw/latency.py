"""The distributions of the requests' latencies at every number of streams."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from quietgate.analyse.claims import axis_words
from quietgate.draw import captions
from quietgate.draw.drawn import Drawn, Material, NotDrawn
from quietgate.draw.frames import each, groups
from quietgate.draw.lines import legend
from quietgate.draw.style import PAGE_IN, categories, figure
from quietgate.wording import counted

_PERCENTILES = (5, 25, 50, 75, 95)
_LATENCIES = (
    ("ttft_ms", "time to first\ntoken (ms)"),
    ("ms_per_token", "time per output\ntoken (ms)"),
    ("end_to_end_s", "end to end (s)"),
)


def latency(material: Material) -> Drawn:
    """Distributions of the requests' latencies at every concurrency, by steps and profile."""
    table = material.table("requests", "no timed request was recorded")
    table = table[table["ok"].astype(bool)]
    table = table.assign(
        ttft_ms=1000 * table["ttft_s"].astype(float),
        ms_per_token=1000 / table["decode_tokens_per_s"].astype(float),
    )
    levels = sorted(int(c) for c in table["concurrency"].unique())
    frame = _percentiles(material, table[table["concurrency"].isin(levels)])
    kinds = _kinds(material)
    # Upright labels at the foot take the height of the longest.
    foot_in = 0.06 * max(map(len, kinds.values())) if material.axes else 0.0
    made, axes = figure(
        PAGE_IN,
        0.6 + foot_in + 1.45 * len(levels),
        len(levels),
        len(_LATENCIES),
        sharex=True,
    )
    gone = [c for c in material.study["cells"] if c["id"] not in set(frame["cell"])]
    count = len(material.profiles)
    width = 0.8 / count
    places = {
        c["id"]: list(kinds).index((c["steps"], *c["axes"].values()))
        + width * (material.profiles.index(c["nccl"]) - (count - 1) / 2)
        for c in material.study["cells"]
    }
    for r, level in enumerate(levels):
        for c, (name, label) in enumerate(_LATENCIES):
            axis = axes[r][c]
            here = frame[(frame["quantity"] == name) & (frame["concurrency"] == level)]
            _boxes(axis, material, here, places, 0.85 * width)
            for cell in gone:
                foot = axis.get_xaxis_transform()
                axis.plot(places[cell["id"]], 0.04, "kx", ms=3.5, mew=1.0, transform=foot, clip_on=False)
            axis.set_title(counted(level, "stream"))
            axis.set_ylabel(label)
            axis.set_ylim(bottom=0)
            categories(axis, list(kinds.values()), rotation=90 if material.axes else 0)
    for axis in axes[-1]:
        axis.set_xlabel("speculative steps")
    handles: list[Any] = [
        Patch(
            fc="white" if material.profile_label(n) != n else material.looks[n].colour,
            ec="0.15" if material.profile_label(n) == n else material.looks[n].colour, lw=0.5,
            hatch=_hatch(material, n),
            label=material.profile_label(n),
        )
        for n in material.profiles
    ]  # fmt: skip
    if gone:
        handles.append(Line2D([], [], ls="", marker="x", color="black", ms=4, mew=1.0, label="failed cell"))
    legend(made, handles)
    few, most = int(frame["requests"].min()), int(frame["requests"].max())
    many = f"{most}" if few == most else f"{few} to {most}"
    caption = captions.join(
        "Latencies of the timed requests of all launches: box from the 25th to the 75th percentile with the"
        f" median, whiskers from the 5th to the 95th; {many} requests per box. Time per"
        " output token is the decode time after the first chunk over its tokens. Requests of one launch are"
        " not independent: the spread is not the uncertainty of a cell.",
        captions.apart(material, "not comparable with the other boxes"),
        captions.not_measured(material),
        captions.not_proved(material, "Open boxes"),
    )
    return Drawn("latency", "Latency distributions by number of streams", caption, made, frame)


def _percentiles(material: Material, table: pd.DataFrame) -> pd.DataFrame:
    keys = ["cell", "steps", "nccl", *material.axes, "concurrency"]
    rows = []
    for key, part in groups(table, *keys, sort=False):
        for name, _ in _LATENCIES:
            values = part[name].astype(float).dropna()
            if values.empty:
                continue
            points = np.percentile(values, _PERCENTILES)
            row = dict(zip(keys, key, strict=True)) | {"quantity": name, "requests": len(values)}
            rows.append(row | {f"p{p}": float(v) for p, v in zip(_PERCENTILES, points, strict=True)})
    if not rows:
        raise NotDrawn("no timed request has latencies")
    return pd.DataFrame(rows)


def _boxes(
    axis: Axes, material: Material, frame: pd.DataFrame, places: dict[str, float], width: float
) -> None:
    for row in each(frame):
        look, x = material.looks[row["nccl"]], places[row["cell"]]
        open_ = material.hollow(row["cell"])
        axis.vlines(x, row["p5"], row["p95"], color=look.colour, lw=0.8, zorder=2)
        axis.bar(
            x, row["p75"] - row["p25"], width, row["p25"], fc="white" if open_ else look.colour,
            ec=look.colour if open_ else "0.15", lw=0.5, hatch=_hatch(material, row["nccl"]), zorder=3,
        )  # fmt: skip
        # White around the black, or the median drowns in a dark box.
        for colour, thick in (("white", 2.4), ("black", 1.0)):
            axis.hlines(row["p50"], x - width / 2, x + width / 2, color=colour, lw=thick, zorder=4)


def _hatch(material: Material, nccl: str) -> str:
    return ("", "////", "....", "xxxx", "----")[material.profiles.index(nccl) % 5]


def _kinds(material: Material) -> dict[tuple[Any, ...], str]:
    """The places on the x axis, steps within the other axes, and their labels."""
    found: dict[tuple[Any, ...], str] = {}
    for cell in sorted(material.study["cells"], key=lambda c: int(c["steps"])):
        label = ", ".join([str(cell["steps"]), *map(axis_words, cell["axes"], cell["axes"].values())])
        found.setdefault((cell["steps"], *cell["axes"].values()), label)
    return found
