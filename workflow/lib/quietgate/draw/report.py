"""report.html: one file that answers the study's question, for a browser without a network."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2

from quietgate.analyse import machines, surroundings
from quietgate.draw import captions
from quietgate.draw import report_rows as rows
from quietgate.draw.drawn import Material, NotDrawn
from quietgate.draw.frames import Row, each
from quietgate.draw.report_words import FILTERS
from quietgate.draw.values import over_grid
from quietgate.files import read_json, write_atomic
from quietgate.wording import counted

TEMPLATE = "report.html.j2"
# Figures wider than this many points are given the whole width of the page.
_WIDE_PT = 300


def write(
    results_dir: Path, study: Mapping[str, Any], statistics: Mapping[str, Any] | None, out: Path
) -> None:
    """Write the report of the results in `results_dir` to `out`.

    Args:
        study: study.json.
        statistics: tables/statistics.json; without it the report gives numbers and claims nothing.
    """
    root = Path(results_dir)
    material = Material.read(root / "tables", study, statistics, None)
    found = read_json(root / "tables" / "tables.json") or {}
    figures = read_json(root / "figures" / "figures.json") or {"figures": [], "not_drawn": []}
    launched = machines.launches(root, study)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= FILTERS
    page = environment.get_template(TEMPLATE).render(
        study=study,
        title=study["config"].get("title") or study["study"],
        left_out=len(study.get("left_out", ())),
        answer=answer(material, statistics),
        profiles=rows.profiles(material),
        published=figures.get("published", []),
        refusals=[r["text"] for r in (statistics or {}).get("refusals", [])],
        claims=(statistics or {}).get("claims", []),
        moves=(statistics or {}).get("moves", []),
        optimum=rows.optimum(material, statistics),
        levels=(statistics or {}).get("levels", []),
        method=((statistics or {}).get("settings") or {}).get("method"),
        figures=[_figure(root / "figures", f) for f in figures["figures"]],
        not_drawn=figures["not_drawn"],
        cells=rows.cells(material),
        axes=material.axes,
        comparisons=rows.comparisons(material, statistics),
        variation=rows.variation(material),
        within=rows.within(material),
        timer_cost=rows.timer_cost(material),
        all_reduce=rows.all_reduce(material),
        failures=rows.failures(material),
        drifts=[_text(d) for d in found.get("drifts", [])],
        agreement=[_text(a) for a in found.get("agreement", []) if not _same(a)],
        agreeing=sum(_same(a) for a in found.get("agreement", [])),
        refused=found.get("refused", []),
        warnings=[*study.get("warnings", []), *map(_text, found.get("warnings", []))],
        machine=[*rows.machine(study, launched), *surroundings.facts(material.tables.get("surroundings"))],
        server=rows.server(study, launched),
        tables=found.get("tables", []),
    )
    write_atomic(Path(out), page)


def answer(material: Material, statistics: Mapping[str, Any] | None) -> list[str]:
    """The answer in three sentences: best cell, whether the optimum moved, what stays open and why."""
    if statistics and statistics.get("answer"):
        return [str(s) for s in statistics["answer"]]
    try:
        grid = over_grid(material, "decode_tokens_per_s", material.lowest)
    except NotDrawn as e:
        return [f"Nothing was measured: {e}.", "Whether the optimum moves cannot be said.", ""]
    known = grid[(grid["kind"] == "cell") & grid["value"].notna()]
    # A profile that is not proved to have done anything is no reason to call its cell the fastest.
    base = next(c["nccl"] for c in material.study["cells"] if c["id"] == material.study["reference"])
    proved = known[(known["nccl"] == base) | ~known["cell"].map(material.hollow).astype(bool)]
    among = proved if len(proved) else known
    best = each(among.loc[[among["value"].idxmax()]])[0]
    return [
        captions.join(
            f"The highest median was measured for {best['cell']}: {best['value']:.1f} decode tok/s at"
            f" {counted(material.lowest, 'stream')}.",
            captions.not_proved(material, ""),
        ),
        "Whether the best number of steps moves between NCCL profiles was not tested.",
        "No statistics were computed, so nothing is claimed.",
    ]


def _text(finding: Any) -> str:
    """A finding in one line."""
    if isinstance(finding, Mapping):
        return str(finding.get("text") or json.dumps(finding, ensure_ascii=False))
    return str(finding)


def _same(finding: Any) -> bool:
    return isinstance(finding, Mapping) and bool(finding.get("same"))


def _figure(folder: Path, entry: Mapping[str, Any]) -> Row:
    """A figure as a data URI, with its width in points as drawn."""
    svg = (folder / f"{entry['name']}.svg").read_bytes()
    head = svg[:2000].decode(errors="replace")
    width = head.partition('width="')[2].partition("pt")[0]
    points = float(width) if width.replace(".", "", 1).isdigit() else 0.0
    return {
        **entry,
        "uri": f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}",
        "heading": captions.heading(str(entry["title"])),
        "wide": points > _WIDE_PT,
        "id": str(entry["name"]).replace("_", "-"),
    }
