"""From the records of a study to tidy tables: all that figures, statistics and reviewers read.

Rows come in grid order (cell, launch, concurrency, repeat) and floats in their shortest exact form, so
that the same records always give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from quietgate.analyse import machines, surroundings
from quietgate.analyse.launch_records import MISSING, ORDER, LaunchRecords, launched_cells, read_launch
from quietgate.analyse.request_lines import FIELDS, RequestLine, positions, read_requests
from quietgate.errors import BadInput
from quietgate.files import sha256, write_atomic
from quietgate.gate import choices

Study = Mapping[str, Any]
Row = dict[str, Any]

PASS_NUMBERS = (
    "decode_tokens_per_s",
    "request_tokens_per_s",
    "output_tokens_per_s",
    "tokens_per_cycle",
    "cycle_ms",
    "draft_ms",
    "verify_ms",
    "extend_ms",
    "other_ms",
    "ttft_s",
    "end_to_end_s",
)
# Taken from the profile, which knows the best source of each; the others are the pass's own.
STAGE_NUMBERS = ("draft_ms", "verify_ms", "extend_ms", "other_ms")
# Of the target's pass, with or without speculation; see `_of_target`.
TARGET_NUMBERS = ("target_ms", "nccl_transfer_ms")
STAGES = ("draft", "verify", "extend", "decode", "cycle")

# The columns of each table after cell, steps, nccl and the other axes.
COLUMNS: dict[str, tuple[str, ...]] = {
    "cells": (
        "launch", "concurrency", "repeat", "status", "failure_class", "nccl_verdict",
        *PASS_NUMBERS, *TARGET_NUMBERS, "requests", "started_at", "instance", "machine",
    ),
    "requests": ("launch", *FIELDS),
    "stages": (
        "launch", "concurrency",
        *(f"{stage}_{what}" for stage in STAGES for what in ("ms", "source")),
        "other_ms", "other_holds", "profiler_stretch",
        "communication_share", "communication_transfer_ms", "communication_waiting_ms", "why",
    ),
    "positions": ("launch", "concurrency", "position", "cycles", "accepted", "accepted_given_previous"),
    "failures": ("launch", "stage", "status", "failure_class", "reason", "evidence", "instance"),
    "gate": ("launch", "instance", "number", "name", "verdict", "why", "seconds"),
    "all_reduce": ("launch", "bytes", "median_us", "min_us", "max_us", "backend", "clock", "nccl_version"),
    "surroundings": surroundings.COLUMNS,
}  # fmt: skip
# Passes of the cell without timers: of no figure and no comparison but that with its twin.
COLUMNS["untimed"] = COLUMNS["cells"]
# Made only where there is something to say.
OPTIONAL = ("all_reduce", "untimed", "surroundings")
# Columns that came later than their table: made only where there is a value, so that earlier records give the
# bytes they gave.
LATER = {"loop_ms"}
# What is told of the cell without timers.
OF_UNTIMED = {"cells": "untimed", "failures": "failures", "gate": "gate"}
INTEGERS = {
    "steps", "concurrency", "repeat", "requests", "position", "cycles", "machine",
    "prompt_tokens", "completion_tokens", "bytes", "cores",
}  # fmt: skip


def collect(launches: Sequence[LaunchRecords], study: Study) -> dict[str, pd.DataFrame]:
    """Every table of the study's launches: cells, requests, stages, positions, failures, gate.

    The table all_reduce is there where all-reduces were checked, untimed where a cell ran without timers,
    surroundings where those of the passes were recorded.
    BadInput, one line per record, where records do not belong together.

    Args:
        launches: what `read_all` gives.
    """
    refused = [(found.folder.parents[2] / r["record"], r["why"]) for found in launches for r in found.refused]
    if refused:
        raise BadInput("\n".join(f"{path}: {why}" for path, why in refused))
    grid = {cell["id"] for cell in study["cells"]}
    rows: dict[str, list[Row]] = {name: [] for name in COLUMNS}
    numbers: dict[tuple[str, ...], int] = {}  # of the machines, as they come
    for found in launches:
        where = machines.of_measured_life(found)
        machine = numbers.setdefault(machines.identity(where), len(numbers) + 1) if where else None
        place = {"cell": found.cell["id"], **_axes(found.cell), "launch": found.launch}
        benchmark = found.passed("benchmark")
        lines = read_requests(found.folder / "requests.jsonl") if benchmark else []
        made: dict[str, Iterable[Row]] = {
            "cells": ({**row, "machine": machine} for row in _cells(found)),
            "requests": (_request(line) for line in lines),
            "stages": _stages(found),
            "positions": positions(lines),
            "failures": _failures(found),
            "gate": _gate(found),
            "all_reduce": _all_reduce(found),
            "surroundings": surroundings.rows(found),
        }
        in_grid = found.cell["id"] in grid
        for name, some in made.items():
            target = name if in_grid else OF_UNTIMED.get(name)
            if target:
                rows[target] += [place | row for row in some]
    extra = [a for a in study["axes"] if a not in ("steps", "nccl")]
    return {
        name: _frame(rows[name], ["cell", "steps", "nccl", *extra, *columns])
        for name, columns in COLUMNS.items()
        if rows[name] or name not in OPTIONAL
    }


def read_all(results_dir: Path, study: Study) -> list[LaunchRecords]:
    """The records of every launch the study lists, in grid order, then those without timers."""
    asked: dict[str, list[str]] = {}
    for launch in study["launches"]:
        asked.setdefault(launch["cell"], []).append(launch["launch"])
    return [
        read_launch(results_dir, study, cell, launch)
        for cell in launched_cells(study)
        for launch in sorted(asked.get(cell["id"], []), key=lambda name: int(name[1:]))
    ]


def write(frames: Mapping[str, pd.DataFrame], tables_dir: Path) -> list[Row]:
    """Write each frame as <name>.csv, atomically; returns name, sha256 and rows of each."""
    written = []
    for name, frame in frames.items():
        path = Path(tables_dir) / f"{name}.csv"
        write_atomic(path, frame.to_csv(index=False, lineterminator="\n"))
        written.append({"name": name, "sha256": sha256(path), "rows": len(frame)})
    return written


def read(path: Path) -> pd.DataFrame:
    """A table as it was written: exact floats, integers with gaps, names that stay text."""
    try:
        frame = pd.read_csv(
            path,
            keep_default_na=False,
            na_values=[""],
            dtype={"cell": str, "nccl": str, "launch": str},
        )
    except FileNotFoundError:
        raise BadInput(f"{path}: no such table; run snakemake, or `collect`, to make it") from None
    except (OSError, ValueError) as e:
        raise BadInput(f"{path}: not a table ({e})") from None
    return _typed(frame)


def _frame(rows: list[Row], columns: list[str]) -> pd.DataFrame:
    known = [c for c in columns if c not in LATER or any(row[c] is not None for row in rows)]
    return _typed(pd.DataFrame(rows, columns=known))


def _typed(frame: pd.DataFrame) -> pd.DataFrame:
    for name in INTEGERS & set(frame.columns):
        frame[name] = frame[name].astype("Int64")
    return frame


def _axes(cell: Mapping[str, Any]) -> Row:
    return {"steps": cell["steps"], "nccl": cell["nccl"], **cell["axes"]}


def _cells(found: LaunchRecords) -> Iterator[Row]:
    verdict = choices.profile_verdict(found.gate or {})
    bad = found.not_passed("launch", "gate", "benchmark")
    if bad:
        record = bad[1]
        failure = (record or {}).get("failure") or {"class": MISSING}
        yield {
            "status": "failed" if record else MISSING,
            "failure_class": failure["class"],
            "nccl_verdict": verdict,
            "started_at": (record or {}).get("started_at"),
            "instance": found.instance,
        }
        return
    benchmark = found.records["benchmark"]
    windows = (found.passed("profile") or {}).get("windows", [])
    profiled = {(w["concurrency"], w["repeat"]): w for w in windows}
    for one in sorted(benchmark["passes"], key=lambda p: (p["concurrency"], p["repeat"])):
        stages = profiled.get((one["concurrency"], one["repeat"]), {})
        yield {
            **{name: (stages if name in STAGE_NUMBERS else one).get(name) for name in PASS_NUMBERS},
            **_of_target(found.cell["steps"], stages, found.passed("profile") or {}),
            "concurrency": one["concurrency"],
            "repeat": one["repeat"],
            "status": one["status"],
            "failure_class": None if one["status"] == "passed" else "invalid_pass",
            "nccl_verdict": verdict,
            "requests": one["requests"],
            "started_at": benchmark["started_at"],
            "instance": benchmark["instance"],
        }


def _of_target(steps: int, window: Row, profile: Mapping[str, Any]) -> Row:
    """The target's pass of a cycle, with or without speculation, and NCCL's transfer in it.

    The transfer is that of the profiler's pass, so it stands at that number of streams only.
    """
    here = window.get("concurrency") == profile.get("concurrency")
    communication = profile.get("communication", {}) if here else {}
    return {
        "target_ms": window.get("verify_ms" if steps else "decode_ms"),
        "nccl_transfer_ms": _half(communication, "transfer_ms"),
    }


def _request(line: RequestLine) -> Row:
    return {name: getattr(line, name) for name in FIELDS}


def _stages(found: LaunchRecords) -> Iterator[Row]:
    profile = found.passed("profile")
    if profile is None or found.passed("benchmark") is None:
        return
    best, rest, communication = profile["best"], profile["not_in_any_stage"], profile["communication"]
    whys = [
        f"{stage}: {best[f'{stage}_ms']['why']}"
        for stage in STAGES
        if best[f"{stage}_ms"]["value"] is None and best[f"{stage}_ms"]["why"]
    ]
    yield {
        "concurrency": profile["concurrency"],
        **{f"{stage}_ms": best[f"{stage}_ms"]["value"] for stage in STAGES},
        **{f"{stage}_source": best[f"{stage}_ms"]["source"] for stage in STAGES},
        "other_ms": rest["value_ms"],
        "other_holds": " ".join(n.removesuffix("_ms") for n in rest["without"]) or None,
        "profiler_stretch": profile["profiler"]["stretch"],
        "communication_share": communication["share"],
        "communication_transfer_ms": _half(communication, "transfer_ms"),
        "communication_waiting_ms": _half(communication, "waiting_ms"),
        "why": "; ".join(whys) or None,
    }


def _half(communication: Mapping[str, Any], name: str) -> float | None:
    """Of the stage in a steady cycle, as its kernel time; of all cycles in profiles that do not tell."""
    steady = communication.get("steady")
    found = communication.get(f"{name}_per_span") if steady is None else steady[name]
    return None if found is None else float(found)


def _failures(found: LaunchRecords) -> Iterator[Row]:
    """The first thing that went wrong in the launch, and what nevertheless failed after it."""
    for kind in ORDER:
        record = found.records.get(kind)
        if record is None or record["status"] != "failed":
            continue
        failure = record["failure"]
        yield {
            "stage": failure["stage"] or kind,
            "status": "failed",
            "failure_class": failure["class"],
            "reason": failure["reason"],
            "evidence": "\n".join(failure["evidence"]) or None,
            "instance": record["instance"],
        }
    bad = found.not_passed("launch", "gate", "benchmark")
    if bad and bad[1] is None:
        yield {
            "stage": bad[0],
            "status": MISSING,
            "failure_class": MISSING,
            "reason": f"there is no {bad[0]}.json: the study was not finished",
            "instance": found.instance,
        }


def _all_reduce(found: LaunchRecords) -> Iterator[Row]:
    """The message sizes that were timed for this launch; a result taken over from another is not repeated."""
    record = found.passed("all_reduce") or {}
    if record.get("same_as"):
        return
    for size in record.get("sizes", []):
        yield {
            **{name: size[name] for name in ("bytes", "median_us", "min_us", "max_us")},
            **{name: record[name] for name in ("backend", "clock")},
            "nccl_version": record["nccl"],
        }


def _gate(found: LaunchRecords) -> Iterator[Row]:
    gates = found.gates or {g["instance"]: g for g in [found.records.get("gate")] if g}
    for instance, gate in gates.items():
        for stage in gate.get("stages") or []:
            own = {k: stage[k] for k in ("name", "verdict", "why", "seconds")}
            judged = choices.evidence_of(gate) if stage["name"] == "nccl" else None
            if judged and judged is not stage.get("evidence"):
                own["why"] = judged["why"]
            yield {"instance": instance, "number": stage["stage"], **own}
