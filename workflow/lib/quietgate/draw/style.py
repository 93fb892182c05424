"""How every figure looks: size, type, colours, and one look per NCCL profile wherever it appears.

Figures are drawn at the width they are printed at (one column 3.33 in, a page 7 in) and never scaled.
Nothing depends on the machine: matplotlib's own defaults and its own font, no dates, fixed identifiers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

COLUMN_IN = 3.33
PAGE_IN = 7.0
GREY = "0.45"

# Okabe & Ito (2008): distinct under every common colour-vision deficiency; yellow is too light for lines.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*")
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (7, 2)), (0, (1, 2)))

RC: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "0.9",
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.0,
    "lines.markersize": 3.8,
    "hatch.linewidth": 0.5,
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "figure.dpi": 100,
    "savefig.dpi": 300,
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "pdf.use14corefonts": False,
    # Glyphs as outlines: the same picture on every reader's machine, whatever fonts it has.
    "svg.fonttype": "path",
    "svg.hashsalt": "quietgate",
    "path.simplify": False,
}


@contextlib.contextmanager
def house_style() -> Iterator[None]:
    """Draw and save inside this: our settings over matplotlib's defaults, never the user's own."""
    with matplotlib.rc_context():
        matplotlib.style.use(["default", RC])
        yield


@dataclass(frozen=True)
class Look:
    """How one NCCL profile is drawn."""

    colour: str
    marker: str
    line: Any


def steps_looks(steps: Sequence[int]) -> dict[int, Look]:
    """A look per number of steps, for figures with one line for each; no speculation is black."""
    colours = matplotlib.colormaps["cividis"]
    found = {}
    for i, one in enumerate(steps):
        colour = "black" if one == 0 else to_hex(colours(0.75 * i / max(1, len(steps) - 1)))
        found[one] = Look(colour, MARKERS[i % len(MARKERS)], "--" if one == 0 else "-")
    return found


def looks(profiles: Sequence[str]) -> dict[str, Look]:
    """A look per profile, by its place in the study, so that it is the same in every figure."""
    count = len(COLOURS)
    return {
        name: Look(COLOURS[i % count], MARKERS[i % len(MARKERS)], LINES[(i + i // count) % count])
        for i, name in enumerate(profiles)
    }


@dataclass(frozen=True)
class StageLook:
    """How one part of a cycle is drawn; hatches tell them apart without colour."""

    label: str
    colour: str
    hatch: str


STAGES = {
    "draft_ms": StageLook("draft", "#E69F00", "////"),
    "verify_ms": StageLook("target verify", "#56B4E9", ""),
    "decode_ms": StageLook("decode forward (0 steps)", "#0072B2", "...."),
    "extend_ms": StageLook("draft extend", "#009E73", "xxxx"),
    "other_ms": StageLook("not in any stage", "0.85", ""),
}


def figure(
    width_in: float, height_in: float, rows: int = 1, columns: int = 1, **kwargs: Any
) -> tuple[Figure, Any]:
    """A figure at its final size and a rows x columns array of axes; no global state."""
    made = Figure(figsize=(width_in, height_in), layout="constrained")
    axes = made.subplots(rows, columns, squeeze=False, **kwargs)
    return made, axes


def categories(axes: Axes, labels: Sequence[str], rotation: float = 0) -> None:
    """Ticks at 0, 1, ... for bars and boxes, which stay narrow however few they are."""
    axes.set_xticks(range(len(labels)), list(labels), rotation=rotation)
    middle, half = (len(labels) - 1) / 2, max(len(labels), 4) / 2 + 0.1
    axes.set_xlim(middle - half, middle + half)


def whole_numbers(axes: Axes, values: Sequence[int]) -> None:
    """Ticks at the measured values only."""
    shown = sorted(set(values))
    axes.xaxis.set_major_locator(FixedLocator(shown))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([str(v) for v in shown])
