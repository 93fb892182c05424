"""The rows of report.html's lists and tables, one function for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from quietgate.analyse import machines
from quietgate.analyse.launches import VERDICTS
from quietgate.draw.drawn import Material, NotDrawn
from quietgate.draw.frames import Row, each
from quietgate.draw.values import failure_of, over_grid
from quietgate.study.plan import quoted
from quietgate.wording import counted

_COLUMNS = ("decode_tokens_per_s", "request_tokens_per_s", "tokens_per_cycle", "cycle_ms")


def profiles(material: Material) -> list[Row]:
    """Each NCCL profile: what it sets, the weakest verdict on it, and why."""
    config = material.study["config"]
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
        else:
            why = _why(material, cells, verdict)
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


def _why(material: Material, cells: Sequence[str], verdict: str) -> str:
    """What the first gate that says so gives as the reason of a verdict on a profile; "" where none does."""
    gate = material.tables.get("gate")
    if gate is None or gate.empty:
        return ""
    told = gate[gate["cell"].isin(cells) & (gate["name"] == "nccl") & gate["why"].notna()]
    if verdict in VERDICTS and verdict != "unknown":
        life = ["cell", "launch", "instance"]
        told = told.merge(material.passed.loc[material.passed["nccl_verdict"] == verdict, life])
    return str(told["why"].iloc[0]) if len(told) else ""


def cells(material: Material) -> list[Row]:
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


def comparisons(material: Material, statistics: Mapping[str, Any] | None) -> list[Row]:
    """Every cell against the reference at the lowest concurrency, best first."""
    rows = (statistics or {}).get("contrasts", [])
    found = [r for r in rows if r["kind"] == "reference" and r["concurrency"] == _lowest(material)]
    return sorted(found, key=lambda r: (-r["ratio"], r["cell"]))


def optimum(material: Material, statistics: Mapping[str, Any] | None) -> list[Row]:
    """The distribution of the best number of steps per profile, at the lowest concurrency."""
    rows = (statistics or {}).get("optimum", [])
    return [r for r in rows if r["concurrency"] == _lowest(material)]


def _lowest(material: Material) -> int | None:
    try:
        return material.lowest
    except NotDrawn:
        return None


def failures(material: Material) -> list[Row]:
    """What went wrong in which launch."""
    frame = material.tables.get("failures")
    return [] if frame is None else each(frame)


def within(material: Material) -> list[Row]:
    """How well each launch's own speed is known, at the lowest concurrency."""
    frame = material.tables.get("within")
    if frame is None or frame.empty:
        return []
    return each(frame[frame["concurrency"] == _lowest(material)])


def variation(material: Material) -> list[Row]:
    """Which part of a cycle carries the variation from launch to launch, where any cell has several."""
    frame = material.tables.get("variation")
    return [] if frame is None else each(frame)


def timer_cost(material: Material) -> list[str]:
    """What the server's timers change at each number of streams, a sentence each."""
    frame = material.tables.get("timer_cost")
    return [] if frame is None else [str(text) for text in frame["text"]]


def all_reduce(material: Material) -> list[Row]:
    """The timed all-reduces of each launch that was checked, where any was."""
    frame = material.tables.get("all_reduce")
    return [] if frame is None else each(frame)


def machine(study: Mapping[str, Any], launched: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """The machines that the launches ran on, then what study.json says of the run as a whole."""
    git, host = study.get("git") or {}, study.get("host") or {}
    found = []
    for name, values in machines.distinct(launched).items():
        several = len(values) > 1
        told = [
            f"{value} ({counted(len(places), 'launch')})" if several else value
            for value, places in values.items()
        ]
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


def server(study: Mapping[str, Any], launched: Sequence[Mapping[str, Any]]) -> list[str]:
    """Each server process as launched, as shell text: of the reference cell, else of any."""
    mine = [record for record in launched if record["cell"] == study["reference"]]
    record = next(iter([*mine, *launched]), {})
    return [
        " ".join([*(f"{k}={quoted(v)}" for k, v in p["env"].items()), *map(quoted, p["argv"])])
        for p in (record.get("server") or {}).get("processes", [])
    ]
