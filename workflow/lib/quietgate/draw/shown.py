"""How figures are filed in Snakemake's own report: category and labels. No drawing library is loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from quietgate.files import read_json

# One for each of `figures.FIGURES`, which is in the same order.
CATEGORIES = {
    "decode_tokens_per_s": "Speed",
    "request_tokens_per_s": "Speed",
    "speed_up": "Speed",
    "interaction": "Speed",
    "tokens_per_cycle": "Speculation",
    "acceptance": "Speculation",
    "cycle_stages": "Where the time goes",
    "verify_cost": "Where the time goes",
    "transfer": "Where the time goes",
    "concurrency": "Load",
    "latency": "Load",
    "drift": "Checks of the study",
    "predicted": "Checks of the study",
}


def category(wildcards: Any) -> str:
    """The category of the figure that `wildcards` name."""
    return CATEGORIES[wildcards.figure]


def labels(figures_dir: Path) -> Callable[[Any], Mapping[str, str]]:
    """A function from `wildcards` to what the report's list says of their figure."""

    def of(wildcards: Any) -> Mapping[str, str]:
        record = read_json(figures_dir / "figures.json") or {"figures": []}
        titles = {entry["name"]: entry["title"] for entry in record["figures"]}
        number = list(CATEGORIES).index(wildcards.figure) + 1
        return {"no.": str(number), "figure": titles.get(wildcards.figure, wildcards.figure)}

    return of
