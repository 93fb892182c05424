"""report.html: one file that answers the study's question, for a browser without a network."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup, escape

from quietgate.analyse import machines
from quietgate.analyse.claims import axis_words
from quietgate.draw import captions
from quietgate.draw.drawn import Material, NotDrawn
from quietgate.draw.frames import Row, each
from quietgate.draw.values import failure_of, over_grid
from quietgate.files import read_json, write_atomic

TEMPLATE = "report.html.j2"
# Figures wider than this many points are given the whole width of the page.
_WIDE_PT = 300

_COLUMNS = ("decode_tokens_per_s", "request_tokens_per_s", "tokens_per_cycle", "cycle_ms")


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
    environment.filters |= {
        "number": number,
        "words": _words,
        "json": _pretty,
        "prose": _prose,
        "axis": axis_words,
    }
    page = environment.get_template(TEMPLATE).render(
        study=study,
        title=study["config"].get("title") or study["study"],
        answer=answer(material, statistics),
        profiles=_profiles(material),
        published=figures.get("published", []),
        refusals=[r["text"] for r in (statistics or {}).get("refusals", [])],
        claims=(statistics or {}).get("claims", []),
        moves=(statistics or {}).get("moves", []),
        optimum=_optimum(material, statistics),
        levels=(statistics or {}).get("levels", []),
        method=((statistics or {}).get("settings") or {}).get("method"),
        figures=[_figure(root / "figures", f) for f in figures["figures"]],
        not_drawn=figures["not_drawn"],
        cells=_cells(material),
        axes=material.axes,
        comparisons=_comparisons(material, statistics),
        within=_within(material),
        timer_cost=_timer_cost(material),
        all_reduce=_all_reduce(material),
        failures=_failures(material),
        drifts=[_text(d) for d in found.get("drifts", [])],
        agreement=[_text(a) for a in found.get("agreement", []) if not _same(a)],
        agreeing=sum(_same(a) for a in found.get("agreement", [])),
        refused=found.get("refused", []),
        warnings=[*study.get("warnings", []), *map(_text, found.get("warnings", []))],
        machine=_machine(study, launched),
        server=_server(study, launched),
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
    counted = proved if len(proved) else known
    best = each(counted.loc[[counted["value"].idxmax()]])[0]
    return [
        captions.join(
            f"The highest median was measured for {best['cell']}: {best['value']:.1f} decode tok/s at"
            f" {captions.streams(material.lowest)}.",
            captions.not_proved(material, ""),
        ),
        "Whether the best number of steps moves between NCCL profiles was not tested.",
        "No statistics were computed, so nothing is claimed.",
    ]


def number(value: Any, digits: int = 4) -> str:
    """A number with that many significant digits and no exponent; "" for none."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)) or value is pd.NA:
        return ""
    if isinstance(value, int) or value == 0:
        return str(value)
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{decimals}f}"


def _words(value: Any) -> str:
    """A class or verdict as a person reads it."""
    return "" if value is None or value != value else str(value).replace("_", " ")


def _prose(text: str, lead: bool = False) -> Markup:
    """A sentence for a person: `code` as code, and with `lead` what comes before its first full stop bold."""
    made = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text)))
    if lead:
        made = re.sub(r"^.*?\.(?=\s[A-Z]|$)", lambda found: f"<strong>{found[0]}</strong>", made)
    return Markup(made)


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False)


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


def _profiles(material: Material) -> list[Row]:
    """Each NCCL profile: what it sets, the weakest verdict on it, and why."""
    config = material.study["config"]
    gate = material.tables.get("gate")
    found = []
    for nccl in material.profiles:
        cells = [c["id"] for c in material.study["cells"] if c["nccl"] == nccl]
        verdicts = {material.verdicts[c] for c in cells if c in material.verdicts}
        verdict = next(
            (v for v in ("contradicted", "unknown", "not_exercised") if v in verdicts),
            "confirmed" if verdicts else "not measured",
        )
        why = ""
        if verdict == "not_exercised" and material.on_cpu:
            why = "no NCCL on this device"
        elif gate is not None and len(gate):
            told = gate[gate["cell"].isin(cells) & (gate["name"] == "nccl")]["why"].dropna()
            why = str(told.iloc[0]) if len(told) else ""
        profile = config.get("nccl_profiles", {}).get(nccl, {})
        found.append(
            {
                "name": nccl,
                "note": profile.get("note", ""),
                "set": profile.get("set", {}),
                "unset": profile.get("unset", []),
                "verdict": verdict,
                "why": why,
            }
        )
    return found


def _cells(material: Material) -> list[Row]:
    """One row per cell at the lowest concurrency: values, interval, launches, failure."""
    asked: dict[str, int] = {}
    for launch in material.study["launches"]:
        asked[launch["cell"]] = asked.get(launch["cell"], 0) + 1
    try:
        grids = {name: over_grid(material, name, material.lowest) for name in _COLUMNS}
    except NotDrawn:
        grids = {}
    by_metric = {
        name: {r["cell"]: r for r in each(grid[grid["kind"] == "cell"])} for name, grid in grids.items()
    }
    rows = []
    for cell in material.study["cells"]:
        row: Row = {"cell": cell, "asked": asked.get(cell["id"], 0), "launches": 0, "failure": None}
        for name in _COLUMNS:
            found = by_metric.get(name, {}).get(cell["id"], {})
            row[name] = found.get("value")
            if name == "decode_tokens_per_s":
                row |= {n: found.get(n) for n in ("low", "high")} | {"launches": found.get("launches", 0)}
        if not row["launches"]:
            row["failure"] = failure_of(material, cell["id"])
        row["reference"] = cell["id"] == material.study["reference"]
        rows.append(row)
    return rows


def _comparisons(material: Material, statistics: Mapping[str, Any] | None) -> list[Row]:
    """Every cell against the reference at the lowest concurrency, best first."""
    rows = (statistics or {}).get("contrasts", [])
    found = [r for r in rows if r["kind"] == "reference" and r["concurrency"] == _lowest(material)]
    return sorted(found, key=lambda r: (-r["ratio"], r["cell"]))


def _optimum(material: Material, statistics: Mapping[str, Any] | None) -> list[Row]:
    """The distribution of the best number of steps per profile, at the lowest concurrency."""
    rows = (statistics or {}).get("optimum", [])
    return [r for r in rows if r["concurrency"] == _lowest(material)]


def _lowest(material: Material) -> int | None:
    try:
        return material.lowest
    except NotDrawn:
        return None


def _failures(material: Material) -> list[Row]:
    frame = material.tables.get("failures")
    return [] if frame is None else each(frame)


def _within(material: Material) -> list[Row]:
    """How well each launch's own speed is known, at the lowest concurrency."""
    frame = material.tables.get("within")
    if frame is None or frame.empty:
        return []
    return each(frame[frame["concurrency"] == _lowest(material)])


def _timer_cost(material: Material) -> list[str]:
    """What the server's timers change at each number of streams, a sentence each."""
    frame = material.tables.get("timer_cost")
    return [] if frame is None else [str(text) for text in frame["text"]]


def _all_reduce(material: Material) -> list[Row]:
    """The timed all-reduces of each launch that was checked, where any was."""
    frame = material.tables.get("all_reduce")
    return [] if frame is None else each(frame)


def _machine(study: Mapping[str, Any], launched: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """The machines that the launches ran on, then what study.json says of the run as a whole."""
    git, host = study.get("git") or {}, study.get("host") or {}
    found = []
    for name, values in machines.distinct(launched).items():
        several = len(values) > 1
        told = [f"{value} ({_launches(places)})" if several else value for value, places in values.items()]
        found.append((name, "; ".join(told)))
    versions: dict[str, list[str]] = {}
    for record in launched or [study]:
        for name, value in (record.get("versions") or {}).items():
            if value not in versions.setdefault(name, []):
                versions[name].append(str(value))
    where = f" on {host['name']}" if host.get("name") else ""
    changed = " with changes" if git.get("modified") else ""
    facts = [
        *found,
        ("versions", ", ".join(f"{name} {' and '.join(v)}" for name, v in versions.items())),
        ("commit", f"{git.get('commit') or 'unknown'}{changed}"),
        ("study.json written", f"{study.get('written_at')}{where}"),
        ("seed of the run order", str(study.get("seed"))),
    ]
    return [(name, value) for name, value in facts if value]


def _launches(places: Sequence[str]) -> str:
    return "1 launch" if len(places) == 1 else f"{len(places)} launches"


def _server(study: Mapping[str, Any], launched: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Command and environment of the server processes, as launched: of the reference cell, else of any."""
    mine = [record for record in launched if record["cell"] == study["reference"]]
    record = next(iter([*mine, *launched]), {})
    return list((record.get("server") or {}).get("processes", []))
