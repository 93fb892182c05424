"""Two studies of one grid, say on two machines or with two releases of SGLang, side by side."""

from __future__ import annotations

import contextlib
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from quietgate.analyse import tables
from quietgate.analyse.launch_records import LaunchRecords
from quietgate.errors import BadInput
from quietgate.gate.drift import effective_of
from quietgate.share import mixture, verify
from quietgate.share.archive import opened, shown
from quietgate.share.ratios import Ratio, ratios
from quietgate.share.study_record import read_study
from quietgate.study.resume import differing_keys
from quietgate.wording import counted

METRIC = "decode_tokens_per_s"
# What differs between any two runs and says nothing.
_ALWAYS_DIFFERS = re.compile(r"(?:.*_)?(?:port|seed|ipc_name|addr|launch_command|startup_time)|host|port")
_ABSENT = "absent"


@dataclass
class _Side:
    """One study.

    Attributes:
        facts: versions and machine, each with the values over its launches.
    """

    study: Mapping[str, Any]
    cells: pd.DataFrame
    launches: list[LaunchRecords]
    facts: dict[str, set[str]]
    problems: int


def compare(a: Path, b: Path) -> Iterator[str]:
    """Ratios b over a per cell, then what differed; a line each. BadInput where the grids share no cell."""
    with contextlib.ExitStack() as stack:
        sides = [_read(stack.enter_context(opened(path))) for path in (a, b)]
        for line in _lines(sides[0], sides[1], a, b):
            yield shown(line)


def _read(root: Path) -> _Side:
    report = verify.check(root)
    if not report.readable:
        raise BadInput("\n".join(f"{shown(root)}/{line}" for line in report.problems))
    study = read_study(root)
    launches = tables.read_all(root, study)
    facts: defaultdict[str, set[str]] = defaultdict(set)
    for found in launches:
        if found.passed("benchmark") is not None:
            for name, value in mixture.facts(found).items():
                facts[name].add(value)
    host = study["host"]
    for name in ("processor", "cores", "memory_mib", "kernel"):
        if host.get(name) is not None:
            facts[f"host {name}"].add(str(host[name]))
    return _Side(study, tables.collect(launches, study)["cells"], launches, dict(facts), len(report.problems))


def _lines(a: _Side, b: _Side, path_a: Path, path_b: Path) -> Iterator[str]:
    ids_a, ids_b = ([c["id"] for c in side.study["cells"]] for side in (a, b))
    common = [c for c in ids_a if c in ids_b]
    if not common:
        raise BadInput(f"{shown(path_a)} and {shown(path_b)}: no cell in common; compare studies of one grid")
    yield f"A: {path_a} ({a.study['study']}, {counted(len(ids_a), 'cell')})"
    yield f"B: {path_b} ({b.study['study']}, {counted(len(ids_b), 'cell')})"
    for name, side in (("A", a), ("B", b)):
        if side.problems:
            wrong = counted(side.problems, "problem")
            yield f"note: {name} has {wrong}; `python -m quietgate verify` tells which"
    for name, only in (("A", set(ids_a) - set(ids_b)), ("B", set(ids_b) - set(ids_a))):
        if only:
            yield f"only in {name}: {', '.join(sorted(only))}"
    yield ""
    yield from _ratio_lines(a, b, common)
    yield ""
    yield "Environment that differs (A -> B):"
    yield from _or_none(_environment(a, b))
    yield "Configuration that differs (A -> B):"
    yield from _or_none(_config(a.study["config"], b.study["config"]))
    yield "Effective server arguments that differ in the same cell (A -> B):"
    yield from _or_none(_arguments(a, b, common))


def _or_none(lines: Iterator[str]) -> Iterator[str]:
    some = False
    for line in lines:
        some = True
        yield f"  {line}"
    if not some:
        yield "  none"


def _ratio_lines(a: _Side, b: _Side, common: list[str]) -> Iterator[str]:
    found = {
        m: ratios((a.cells, a.study), (b.cells, b.study), m) for m in (METRIC, "cycle_ms", "tokens_per_cycle")
    }
    main = found[METRIC]
    others = [{(r.cell, r.concurrency): r.value for r in found[m]} for m in ("cycle_ms", "tokens_per_cycle")]
    if not main:
        yield "No cell was measured in both."
        return
    yield f"Decode tok/s, B over A; intervals hold jointly (95 %) for all {len(main)} ratios:"
    width = max(len(r.cell) for r in main)
    head = f"  {'cell':<{width}}  streams  launches        A        B  ratio  {'interval':<16}"
    yield head + "  cycle ms  tokens/cycle"
    for one in main:
        extra = [other.get((one.cell, one.concurrency)) for other in others]
        told = "  ".join(
            f"{v:>{n}.3f}" if v is not None else " " * n for v, n in zip(extra, (8, 12), strict=True)
        )
        yield (
            f"  {one.cell:<{width}}  {one.concurrency:>7}  {one.launches[0]:>3} / {one.launches[1]:<2}"
            f" {one.a:>8.2f} {one.b:>8.2f}  {one.value:>5.3f}  {_interval(one):<16}  {told}"
        )
    measured = {r.cell for r in main}
    missing = [c for c in common if c not in measured]
    if missing:
        yield f"  not measured in both: {', '.join(missing)}"
    if any(r.low is None for r in main):
        yield "  no interval: one launch per cell, so the variation from launch to launch is unknown"


def _interval(one: Ratio) -> str:
    return "none" if one.low is None or one.high is None else f"{one.low:.3f} to {one.high:.3f}"


def _environment(a: _Side, b: _Side) -> Iterator[str]:
    for name in sorted(a.facts.keys() | b.facts.keys()):
        old, new = (", ".join(sorted(side.facts.get(name, {_ABSENT}))) for side in (a, b))
        if old != new:
            yield f"{name}: {old} -> {new}"


def _config(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[str]:
    for dotted in sorted(differing_keys(a, b)):
        old, new = (_brief(_at(config, dotted)) for config in (a, b))
        yield f"{dotted}: {old} -> {new}"


def _at(config: Any, dotted: str) -> Any:
    """The value of a dotted key; keys may hold dots themselves, so the longest that fits is followed."""
    if not dotted or not isinstance(config, Mapping):
        return config
    for key in sorted(config, key=len, reverse=True):
        if dotted == key or dotted.startswith(f"{key}."):
            return _at(config[key], dotted[len(key) + 1 :])
    return None


def _arguments(a: _Side, b: _Side, common: list[str]) -> Iterator[str]:
    effective = [_effective(side) for side in (a, b)]
    grouped: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
    for cell in common:
        if cell not in effective[0] or cell not in effective[1]:
            continue
        old, new = effective[0][cell], effective[1][cell]
        for name in sorted(old.keys() | new.keys()):
            if _ALWAYS_DIFFERS.fullmatch(name):
                continue
            if old.get(name) != new.get(name) or (name in old) != (name in new):
                values = [_brief(e[name]) if name in e else _ABSENT for e in (old, new)]
                grouped[name, values[0], values[1]].append(cell)
    for (name, x, y), cells in grouped.items():
        where = "every cell" if len(cells) == len(common) else ", ".join(cells[:3])
        more = f" and {len(cells) - 3} more" if len(cells) not in (len(common), 1, 2, 3) else ""
        yield f"{name}: {x} -> {y} ({where}{more})"


def _effective(side: _Side) -> dict[str, Mapping[str, Any]]:
    """Cell -> effective arguments of its first launch that has them."""
    out: dict[str, Mapping[str, Any]] = {}
    for found in side.launches:
        gate = found.gates.get(found.instance or "") or found.records.get("gate")
        effective = effective_of(gate) if gate else None
        if effective:
            out.setdefault(found.cell["id"], effective)
    return out


def _brief(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= 80 else text[:77] + "..."
