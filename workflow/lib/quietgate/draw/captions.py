"""Sentences that several captions share: n, intervals, what failed, what was not proved."""

from __future__ import annotations

import pandas as pd

from quietgate.draw.drawn import Material

METRICS = {
    "decode_tokens_per_s": "decode tok/s",
    "request_tokens_per_s": "request tok/s",
    "output_tokens_per_s": "output tok/s, all streams",
    "tokens_per_cycle": "tokens per cycle",
    "cycle_ms": "cycle time (ms)",
}


def streams(count: int) -> str:
    """A number of streams in words."""
    return "1 stream" if count == 1 else f"{count} streams"


def launches(frame: pd.DataFrame) -> str:
    """n and interval of the cells in a frame of `values.over_grid`."""
    cells = frame[(frame["kind"] == "cell") & (frame["launches"] > 0)]
    fewest, most = int(cells["launches"].min()), int(cells["launches"].max())
    n = f"n = {most} launches per cell" if fewest == most else f"n = {fewest} to {most} launches per cell"
    if most == 1:
        return "n = 1 launch per cell: the variation from launch to launch is unknown, so there is no interval."
    dots = "Small dots: launches (the median of each launch's passes)"
    if cells["low"].notna().any():
        return (
            f"{n}. {dots}; markers and bars: mean over launches, adjusted for blocks, and its 95 %"
            " interval from the residual pooled over all cells (not corrected for the number of cells)."
        )
    return f"{n}. {dots}; markers: their median. No interval: too few launches."


def not_measured(material: Material) -> str:
    """Which cells and launches failed, by class; "" when all passed."""
    bad = material.cells[material.cells["status"] != "passed"]
    if bad.empty:
        return ""
    measured = set(material.passed["cell"])
    gone, partly = [], []
    for cell, rows in bad.groupby("cell", sort=False):
        words = ", ".join(dict.fromkeys(str(c) for c in rows["failure_class"]))
        if cell in measured:
            partly.append(f"{rows['launch'].nunique()} of {cell} ({words})")
        else:
            gone.append(f"{cell} ({words})")
    text = ""
    if gone:
        text += f"Failed cells, drawn as x: {'; '.join(gone)}."
    if partly:
        text += f"{' ' if gone else ''}Launches that failed and are left out: {'; '.join(partly)}."
    return text


def not_proved(material: Material) -> str:
    """Which profiles are drawn hollow and why; "" when all are confirmed."""
    sentences = []
    words = {
        "not_exercised": "not exercised (NCCL did nothing here that the profile could change)",
        "contradicted": "contradicted by NCCL's own log",
        "unknown": "not proved to have reached the ranks",
    }
    for verdict, why in words.items():
        names = [
            p
            for p in material.profiles
            if verdict in {material.verdicts.get(c["id"]) for c in material.study["cells"] if c["nccl"] == p}
        ]
        if names:
            profile = "profile" if len(names) == 1 else "profiles"
            sentences.append(
                f"Hollow markers: {profile} {', '.join(names)} {why};"
                " a difference between profiles is not theirs."
            )
    return " ".join(sentences)


def join(*sentences: str) -> str:
    """The sentences that say something, as one text."""
    return " ".join(s for s in sentences if s)
