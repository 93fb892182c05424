"""All figures of a study, drawn from its tables alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from quietgate.draw import accepted, by_steps, checks, cycle, grid, latency, load, transfer
from quietgate.draw.drawn import Drawn, Material, NotDrawn
from quietgate.draw.save import EXTENSIONS, save
from quietgate.draw.style import house_style

# In the order of the report.
FIGURES: dict[str, Callable[[Material], Drawn]] = {
    "decode_tokens_per_s": by_steps.decode_tokens_per_s,
    "request_tokens_per_s": by_steps.request_tokens_per_s,
    "speed_up": grid.speed_up,
    "interaction": grid.interaction,
    "tokens_per_cycle": by_steps.tokens_per_cycle,
    "acceptance": accepted.acceptance,
    "cycle_stages": cycle.cycle_stages,
    "verify_cost": accepted.verify_cost,
    "transfer": transfer.transfer,
    "concurrency": load.concurrency,
    "latency": latency.latency,
    "drift": checks.drift,
    "predicted": checks.predicted,
}


def draw_all(
    tables_dir: Path,
    out_dir: Path,
    study: Mapping[str, Any],
    statistics: Mapping[str, Any] | None = None,
    reference: Path | None = None,
) -> dict[str, Any]:
    """Draw every figure that the tables have data for into `out_dir`.

    Args:
        study: study.json.
        statistics: tables/statistics.json.
        reference: CSV of published observations to draw as marks.

    Returns:
        The record `figures`; what was not drawn is listed with the reason, and what follows from the
        published observations is told as `published`.
    """
    material = Material.read(tables_dir, study, statistics, reference)
    figures, not_drawn = [], []
    out_dir.mkdir(parents=True, exist_ok=True)
    for name, draw in FIGURES.items():
        with house_style():
            try:
                drawn = draw(material)
            except NotDrawn as e:
                not_drawn.append({"name": name, "why": str(e)})
                for extension in EXTENSIONS:
                    (out_dir / f"{name}.{extension}").unlink(missing_ok=True)
                continue
            files = save(drawn, out_dir)
        figures.append({"name": name, "title": drawn.title, "caption": drawn.caption, "files": files})
    record: dict[str, Any] = {
        "schema": "quietgate/figures/1",
        "study": study["study"],
        "digest": study["digest"],
        "figures": figures,
        "not_drawn": not_drawn,
    }
    if material.derived:
        record["published"] = [one.as_dict() for one in material.derived]
    return record
