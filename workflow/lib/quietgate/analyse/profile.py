"""profile.json: where the time of one launch went, by every source that can tell.

The sources are set side by side, compared where two of them measure the same quantity, and the best
one is taken for each quantity, by name. What is in the cycle but in no stage (sampling, tree
building, the scheduler, gaps) is the difference, and is printed as that.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from quietgate.analyse import time_sources
from quietgate.analyse.source_comparisons import comparisons
from quietgate.analyse.time_sources import NO_SPECULATION, QUANTITIES, STAGES, Source, tokens_per_cycle
from quietgate.errors import BadInput
from quietgate.files import read_json
from quietgate.gate.evidence import of_stage
from quietgate.inspect.trace import ranks

ORDER = ("device_timer", "cycle_timer", "trace", "requests")


def profile(launch_dir: Path, steps: int) -> dict[str, Any]:
    """The own fields of profile.json from a launch's other records and traces.

    A record or trace that is absent, failed or damaged costs what only it could tell, with the
    reason; BadInput is raised only where nothing is left (no timed pass).
    """
    folder = Path(launch_dir)
    benchmark = read_json(folder / "benchmark.json") or {}
    passes = [p for p in benchmark.get("passes", []) if p["status"] == "passed"]
    if not passes:
        raise BadInput(f"{folder / 'benchmark.json'}: no timed pass that passed; nothing to profile")
    stages = read_json(folder / "stages.json") or {}
    found, why = _read_traces(folder)
    cycle_files = sorted(folder.glob(f"instances/{benchmark.get('instance')}/cycles*.jsonl"))
    lowest = min(p["concurrency"] for p in passes)
    single = [p for p in passes if p["concurrency"] == lowest]
    windows = stages.get("windows", [])
    sources: dict[str, Source] = {
        "device_timer": time_sources.device_timer(
            [w for w in windows if w["concurrency"] == lowest], steps, _sglang_version(folder)
        ),
        "trace": time_sources.trace(found, why, steps),
        "requests": time_sources.requests(single),
    }
    timer = time_sources.cycle_timer(cycle_files, [w for w in windows if w["concurrency"] == lowest], steps)
    if timer is not None:
        sources["cycle_timer"] = timer
    timed_cycle = sources["requests"]["cycle_ms"]
    profiler = _profiler(found, why, timed_cycle)
    best = _best(sources, profiler["cycle_ms"], steps)
    requests = _requests(folder / "requests.jsonl", lowest)
    return {
        "steps": steps,
        "concurrency": lowest,
        "tokens_per_cycle": tokens_per_cycle(single, steps),
        "sources": sources,
        "best": best,
        "not_in_any_stage": _rest(best, steps),
        "comparisons": comparisons(sources, single, windows, requests, lowest, steps),
        "windows": _rows(passes, windows, sources, profiler["cycle_ms"], lowest, steps),
        "profiler": profiler,
        "communication": _communication(found, why),
        "acceptance": _acceptance(requests, steps),
        "trace": found,
    }


def _read_traces(folder: Path) -> tuple[dict[str, Any] | None, str | None]:
    capture = read_json(folder / "capture.json")
    if capture is None:
        return None, "no profiler pass (capture is off)"
    if capture.get("status") != "passed":
        reason = (capture.get("failure") or {}).get("reason", "no reason given")
        return None, f"the profiler pass {capture.get('status')}: {reason}"
    names = [f["name"] for f in capture["trace_files"]]
    if not names:
        return None, "the profiler pass left no trace"
    try:
        return ranks.read([folder / "trace" / name for name in names]), None
    except BadInput as e:
        return None, str(e).splitlines()[0]


def _sglang_version(folder: Path) -> str | None:
    """The server's own version, as the gate or the launch recorded it."""
    version = (of_stage(read_json(folder / "gate.json") or {}, "arguments") or {}).get("version")
    if version is None:
        version = ((read_json(folder / "launch.json") or {}).get("versions") or {}).get("sglang")
    return version if isinstance(version, str) else None


def _requests(path: Path, concurrency: int) -> list[dict[str, Any]]:
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return []
    found = [line for text in lines if (line := _line(text)) is not None]
    return [
        r for r in found if r.get("phase") == "timed" and r.get("ok") and r.get("concurrency") == concurrency
    ]


def _line(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except ValueError:  # collect refuses a file that is not the one measured
        return None
    return found if isinstance(found, dict) else None


def _profiler(found: dict[str, Any] | None, why: str | None, timed: float | None) -> dict[str, Any]:
    """The cycle under the profiler against the timed one: how much the profiler stretches."""
    under = found["cycle_ms"] if found else None
    stretch = under / timed if under and timed else None
    reason = None
    if stretch is None:
        reason = why or ("the trace holds no two cycles in a row" if not under else "no timed cycle")
    return {"cycle_ms": under, "timed_cycle_ms": timed, "stretch": stretch, "why": reason}


def _best(sources: dict[str, Source], traced_cycle: float | None, steps: int) -> dict[str, Any]:
    """Each quantity from the best source that has it; `traced_cycle` is the profiler's own cycle."""
    scale, unscaled = _scale(sources, traced_cycle, steps)
    chosen: dict[str, Any] = {}
    for name in QUANTITIES:
        entry: dict[str, Any] = {"value": None, "source": None, "why": None}
        for source in ORDER:
            value = sources.get(source, {}).get(name)
            if value is None:
                continue
            if source == "trace" and sources[source]["kind"] == "spans":
                if scale is None:
                    continue
                # Spans of a CPU trace are as stretched as their cycle is.
                value, source = value * scale, "trace_scaled"
            entry = {"value": value, "source": source, "why": None}
            break
        if entry["value"] is None:
            skipped = unscaled if sources["trace"][name] is not None else None
            entry["why"] = "; ".join(filter(None, (_why(sources, name), skipped)))
        chosen[name] = entry
    # The requests time whole cycles between chunks; a per-cycle timer sees the worker's part alone.
    if sources["requests"]["cycle_ms"] is not None:
        value = sources["requests"]["cycle_ms"]
        chosen["cycle_ms"] = {"value": value, "source": "requests", "why": None}
    return chosen


def _scale(
    sources: dict[str, Source], traced_cycle: float | None, steps: int
) -> tuple[float | None, str | None]:
    """The timed cycle over the profiler's, or None and why its spans cannot be scaled by it."""
    timed = sources["requests"]["cycle_ms"]
    if not timed or not traced_cycle:
        return None, "no cycle to scale the profiler's spans by"
    names = STAGES if steps else ("decode_ms",)
    total = sum(sources["trace"][name] or 0.0 for name in names)
    if total > traced_cycle:
        return None, (
            f"the profiler's spans sum to {total:.3g} ms in cycles of {traced_cycle:.3g} ms: "
            "too uneven to scale"
        )
    return timed / traced_cycle, None


def _why(sources: dict[str, Source], name: str) -> str:
    reasons = [sources[s]["why"].get(name) for s in ORDER[:3] if s in sources]
    return "; ".join(dict.fromkeys(r for r in reasons if r)) or "not measured"


def _rest(best: dict[str, Any], steps: int) -> dict[str, Any]:
    """The cycle less its stages; what it contains depends on which stages were seen."""
    names = STAGES if steps else ("decode_ms",)
    seen = {n: best[n]["value"] for n in names if best[n]["value"] is not None}
    cycle = best["cycle_ms"]["value"]
    if cycle is None or not seen:
        return {"value_ms": None, "share": None, "without": list(names), "why": "nothing to sum"}
    rest = cycle - sum(seen.values())
    without = [n for n in names if n not in seen]
    return {"value_ms": rest, "share": rest / cycle, "without": without, "why": None}


def _rows(
    passes: list[dict[str, Any]],
    windows: list[dict[str, Any]],
    sources: dict[str, Source],
    traced_cycle: float | None,
    lowest: int,
    steps: int,
) -> list[dict[str, Any]]:
    """One row per timed pass: stages by the best source that saw this pass or this concurrency."""
    rows = []
    for one in passes:
        key = (one["concurrency"], one["repeat"])
        mine = [w for w in windows if (w["concurrency"], w["repeat"]) == key]
        own = dict(sources) if one["concurrency"] == lowest else {}
        # What was measured over this very pass goes before what stands for the launch.
        own["device_timer"] = time_sources.device_timer(mine, steps, None)
        own["requests"] = time_sources.requests([one])
        own.setdefault("trace", time_sources.empty("the profiler pass ran at one stream"))
        best = _best(own, traced_cycle, steps)
        rows.append(
            {"concurrency": one["concurrency"], "repeat": one["repeat"]}
            | {name: best[name]["value"] for name in QUANTITIES}
            | {"other_ms": _rest(best, steps)["value_ms"]}
            | {"tokens_per_cycle": tokens_per_cycle([one], steps)}
            | {"sources": {n: best[n]["source"] for n in QUANTITIES if best[n]["source"]}}
        )
    return rows


def _communication(found: dict[str, Any] | None, why: str | None) -> dict[str, Any]:
    """Communication per cycle and its two halves; a share of one rank alone is never the answer."""
    if found is None:
        return {"share": None, "why": why}
    one = found["communication"]
    stage = "verify" if "verify" in found["spans"] else "decode"
    span = found["spans"].get(stage, {})
    return {
        "share": one["share"],
        "share_by_rank": one["share_by_rank"],
        "transfer_ms": one["transfer_ms"],
        "waiting_ms": one["waiting_ms"],
        "in_stage": stage if span else None,
        "transfer_ms_per_span": span.get("transfer_ms_per_span"),
        "waiting_ms_per_span": span.get("waiting_ms_per_span"),
        "steady": {name: span.get("steady", {}).get(name) for name in ("transfer_ms", "waiting_ms")},
        "by_class": one["by_class"],
        "by_kernel": one["by_kernel"],
        "why": one["why"],
    }


def _acceptance(requests: list[dict[str, Any]], steps: int) -> dict[str, Any]:
    """How often each drafted position is accepted, from the histograms of the timed requests."""
    if not steps:
        return {"by_position": None, "cycles": 0, "why": NO_SPECULATION}
    histograms = [h for r in requests if (h := _histogram(r.get("spec") or {}))]
    if not histograms:
        why = "no histogram in the requests' meta_info (SGLang has one from 0.5.9)"
        return {"by_position": None, "cycles": 0, "why": why}
    length = max(len(h) for h in histograms)
    counts = [sum(h[i] for h in histograms if i < len(h)) for i in range(length)]
    cycles = sum(counts)
    if not cycles:
        return {"by_position": None, "cycles": 0, "why": "the histograms are empty"}
    return {
        "by_position": [sum(counts[k:]) / cycles for k in range(1, length)],
        "cycles": cycles,
        "why": None,
    }


def _histogram(spec: dict[str, Any]) -> list[int] | None:
    """Cycles by number of accepted drafts, under its name of any release."""
    for name in ("spec_correct_drafts_histogram", "spec_accept_histogram"):
        if isinstance(spec.get(name), list):
            return list(spec[name])
    return None
