"""Torch profiler traces of one or several ranks: where the GPU's time went.

`read(paths)` answers `inspect trace` and the workflow's `extract` alike.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from quietgate.errors import BadInput
from quietgate.inspect.trace import names
from quietgate.inspect.trace.rank import RankTrace, read_ranks
from quietgate.inspect.trace.split import split

# Below this a second process costs more than it saves.
POOL_BYTES = 16_000_000


def read(paths: Sequence[Path | str], processes: int | None = None) -> dict[str, Any]:
    """All ranks' traces in one answer; BadInput only if none of the files can be used.

    A cut or damaged file is named in `problems` and the other ranks are still used. Totals are over
    the ranks read; values per span are the mean over ranks; `ranks` has each rank's own.
    """
    files = [Path(p) for p in paths]
    if not files:
        raise BadInput("no trace file given")
    ranks, problems = _read_all(files, processes)
    if not ranks:
        raise BadInput("\n".join(problems))
    ranks.sort(key=lambda r: (r.summary["rank"] is None, r.summary["rank"], r.summary["file"]))
    ranks, copies = _once_each(ranks)
    problems += copies
    problems += dict.fromkeys(r.problem for r in ranks if r.problem)
    for part in sorted({str(r.summary["part"]) for r in ranks}):
        same = [r for r in ranks if str(r.summary["part"]) == part]
        for rank, result in zip(same, split([r.collectives for r in same]), strict=True):
            if rank.summary["kernels"]["count"] is None:
                result["why"] = "totals per kernel cannot tell transfer from waiting"
            rank.summary["communication"]["split"] = result
            for stage, values in result["by_stage"].items():
                span = rank.summary["spans"][stage]
                span["transfer_ms_per_span"] = values["transfer_ms"] / span["count"]
                span["waiting_ms_per_span"] = values["waiting_ms"] / span["count"]
                for half in ("transfer_ms", "waiting_ms"):
                    span["steady"][half] = values[f"steady_{half}"]
    summaries = [r.summary for r in ranks]
    world = next((s["world_size"] for s in summaries if s["world_size"]), None)
    seen = {s["rank"] for s in summaries}
    if isinstance(world, int) and len(files) > 1 and len(seen) < world:
        problems.append(f"{len(seen)} of {world} ranks have a readable trace")
    return {
        "ranks": summaries,
        "kernels": _totals(summaries),
        "communication": _communication(summaries),
        "spans": _spans(summaries),
        "cycle_ms": _median([s["cycle_ms"] for s in summaries]),
        "problems": problems,
    }


def _read_all(files: list[Path], processes: int | None) -> tuple[list[RankTrace], list[str]]:
    size = sum(f.stat().st_size for f in files if f.is_file())
    if processes is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        processes = min(2, cores) if size > POOL_BYTES else 1
    if processes < 2 or len(files) < 2:
        found = [_attempt(f) for f in files]
    else:
        # Largest first, so that the last one running is a small one.
        order = sorted(files, key=lambda f: f.stat().st_size if f.is_file() else 0, reverse=True)
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(min(processes, len(files)), mp_context=context) as pool:
            found = list(pool.map(_attempt, order))
    ranks = [rank for f in found if not isinstance(f, str) for rank in f]
    return ranks, sorted(f for f in found if isinstance(f, str))


def _attempt(path: Path) -> list[RankTrace] | str:
    try:
        return read_ranks(path)
    except BadInput as e:
        return str(e)
    except RecursionError:  # of the JSON decoder
        return f"{path}: values nested too deeply; is it a torch profiler trace?"


def _once_each(ranks: list[RankTrace]) -> tuple[list[RankTrace], list[str]]:
    """The traces without copies: one paired with itself would show a rank that never waits."""
    kept: list[RankTrace] = []
    problems: list[str] = []
    for rank in ranks:
        twin = next((k for k in kept if _same(k, rank)), None)
        if twin is None:
            kept.append(rank)
        else:
            problems.append(f"{rank.summary['file']}: the same trace as {twin.summary['file']}; counted once")
    return kept, problems


def _same(a: RankTrace, b: RankTrace) -> bool:
    one, other = ({k: v for k, v in r.summary.items() if k not in ("file", "json_mb")} for r in (a, b))
    return one == other and np.array_equal(a.collectives.start, b.collectives.start)


def _totals(summaries: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "count": _sum([s["kernels"]["count"] for s in summaries]),
        "ms": _sum([s["kernels"]["ms"] for s in summaries]),
    }


def _communication(summaries: list[dict[str, Any]]) -> dict[str, Any]:
    found = [s["communication"] for s in summaries]
    by_kernel: dict[str, Any] = {}
    by_class: dict[str, Any] = {}
    for one in found:
        for name, entry in one["by_kernel"].items():
            total = by_kernel.setdefault(name, entry | {"count": 0, "ms": 0.0})
            total["count"] = _plus(total["count"], entry["count"])
            total["ms"] += entry["ms"]
            for shape in ("grids", "blocks"):
                total[shape] = sorted({*total[shape], *entry[shape]})
        for name, entry in one["by_class"].items():
            total = by_class.setdefault(name, {"count": 0, "ms": 0.0})
            total["count"] = _plus(total["count"], entry["count"])
            total["ms"] += entry["ms"]
    ms, kernel_ms = _sum([c["ms"] for c in found]), _totals(summaries)["ms"]
    shares = [c["share"] for c in found if c["share"] is not None]
    halves = [c["split"] for c in found if c["split"]["transfer_ms"] is not None]
    return {
        "count": _sum([c["count"] for c in found]),
        "ms": ms,
        "share": ms / kernel_ms if ms is not None and kernel_ms else None,
        "share_by_rank": {"min": min(shares), "max": max(shares)} if shares else None,
        "transfer_ms": _median([h["transfer_ms"] for h in halves]),
        "waiting_ms": _sum([h["waiting_ms"] for h in halves]) if halves else None,
        "why": None if halves else found[0]["split"]["why"],
        "by_class": by_class,
        "by_kernel": by_kernel,
    }


def _spans(summaries: list[dict[str, Any]]) -> dict[str, Any]:
    """Per stage over the ranks: each rank's mean, averaged; steady values by their median."""
    stages: dict[str, Any] = {}
    for stage in names.STAGES:
        found = [s["spans"][stage] for s in summaries if stage in s["spans"]]
        if not found:
            continue
        stages[stage] = {"count": max(f["count"] for f in found)} | {
            name: _mean([f.get(name) for f in found])
            for name in (
                "kernel_ms_per_span",
                "communication_ms_per_span",
                "transfer_ms_per_span",
                "waiting_ms_per_span",
            )
        }
        stages[stage]["span_ms_median"] = _median([f["span_ms_median"] for f in found])
        stages[stage]["steady"] = {
            name: _median([f["steady"].get(name) for f in found])
            for name in (
                "kernel_ms",
                "communication_ms",
                "transfer_ms",
                "waiting_ms",
                "extent_ms",
                "replay_ms",
                "span_ms",
            )
        }
    return stages


def _plus(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b


def _sum(values: list[Any]) -> Any:
    known = [v for v in values if v is not None]
    return sum(known) if known else None


def _mean(values: list[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return fmean(known) if known else None


def _median(values: list[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return median(known) if known else None
