"""Sentences that several captions share: n, intervals, what failed, what was not proved."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from quietgate.draw.drawn import Material

VERDICTS = {
    "not_exercised": "not exercised (NCCL did nothing here that the profile could change)",
    "contradicted": "contradicted by NCCL's own log",
    "unknown": "not proved to have reached the ranks",
}

METRICS = {
    "decode_tokens_per_s": "decode tok/s",
    "request_tokens_per_s": "request tok/s",
    "output_tokens_per_s": "output tok/s, all streams",
    "tokens_per_cycle": "tokens per cycle",
    "cycle_ms": "cycle time (ms)",
}


def launches(frame: pd.DataFrame, dots: bool = True, noisy: Sequence[str] = ()) -> str:
    """n and interval of the cells in a frame of `values.over_grid`.

    Args:
        frame: the cells.
        dots: launches are drawn too.
        noisy: cells that scatter more than the others (`values.noisy`).
    """
    cells = frame[frame["launches"] > 0]
    cells = cells[cells["kind"] == "cell"] if "kind" in cells else cells
    fewest, most = int(cells["launches"].min()), int(cells["launches"].max())
    n = f"n = {most} launches per cell" if fewest == most else f"n = {fewest} to {most} launches per cell"
    if most == 1:
        unknown = "the variation from launch to launch is unknown, so there is no interval"
        return f"n = 1 launch per cell: {unknown}."
    small = "small dots: launches (the median of each launch's passes); " if dots else ""
    if cells["low"].notna().any():
        bars = (
            ", with its 95 % interval (bars) from the residual pooled over all cells, not corrected for the"
            " number of cells"
        )
        if noisy:
            bars += f"; {' and '.join(noisy)}, whose launches scatter more: from its own, where that is wider"
        return f"{n}; {small}markers: mean over launches, adjusted for blocks{bars if dots else ''}."
    return f"{n}; {small}markers: their median. No interval: too few launches."


def not_measured(material: Material, drawn_as: str = "drawn as x") -> str:
    """Which cells and launches failed, by class; "" when all passed."""
    bad = material.cells[material.cells["status"] != "passed"]
    if bad.empty:
        return ""
    measured = set(material.passed["cell"])
    gone, partly = [], []
    for cell, rows in bad.groupby("cell", sort=False):
        words = ", ".join(dict.fromkeys(str(c).replace("_", " ") for c in rows["failure_class"]))
        if cell in measured:
            partly.append(f"{rows['launch'].nunique()} of {cell} ({words})")
        else:
            gone.append(f"{cell} ({words})")
    how = f", {drawn_as}" if drawn_as else ""
    return join(
        f"Failed cells{how}: {'; '.join(gone)}." if gone else "",
        f"Launches that failed and are left out: {'; '.join(partly)}." if partly else "",
    )


def not_proved(material: Material, drawn_as: str = "Hollow markers") -> str:
    """Which profiles are drawn hollow and why; "" when all are confirmed."""
    sentences = []
    for verdict, meaning in VERDICTS.items():
        why = meaning
        if verdict == "not_exercised" and material.on_cpu:
            why = "not exercised (no NCCL on this device)"
        names = [
            p
            for p in material.profiles
            if verdict in {material.verdicts.get(c["id"]) for c in material.study["cells"] if c["nccl"] == p}
        ]
        if names:
            profile = "profile" if len(names) == 1 else "profiles"
            named = f"{drawn_as}: {profile}" if drawn_as else profile.capitalize()
            so = ""
            if verdict == "not_exercised" and len(names) > 1:
                so = ": cells that differ only by them are the same configuration, their difference noise"
            elif len(material.profiles) > 1:
                so = "; a difference between profiles is not theirs"
            sentences.append(f"{named} {', '.join(names)} {why}{so}.")
    return join(*sentences)


def apart(material: Material, so: str = "not joined to the others") -> str:
    """Which cells were measured where or when the others were not; "" when there are none."""
    places: dict[str, list[str]] = {}
    for cell, where in material.apart.items():
        places.setdefault(where, []).append(cell)
    told = "; ".join(f"{where}: {', '.join(cells)}" for where, cells in places.items())
    return f"Measured {told}; {so}, as their difference may not be the cells'." if told else ""


def join(*sentences: str) -> str:
    """The sentences that say something, as one text."""
    return " ".join(s for s in sentences if s)


def heading(title: str) -> str:
    """A title as the first sentence of its caption."""
    return title if title.endswith("?") else f"{title}."
