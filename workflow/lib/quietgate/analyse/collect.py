"""Every table of a study: rows from the records, statistics on them, what the launches say together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from quietgate import records
from quietgate.analyse import machines, statistics, surroundings, tables, timer_cost, variation
from quietgate.analyse.launch_records import LaunchRecords
from quietgate.analyse.within import within_launches
from quietgate.files import write_json
from quietgate.gate import across
from quietgate.gate.evidence import of_stage
from quietgate.wording import counted

# Made only where there is something to say; where there is no longer, none of an earlier time may stay.
OPTIONAL = (*tables.OPTIONAL, "variation", "timer_cost")


def collect(root: Path, out: Path) -> records.Record:
    """Make every table of the results in `root` into `out`; returns the record `tables`, less its digest."""
    study = records.read(root / "study.json", "study")
    launches = tables.read_all(root, study)
    frames = tables.collect(launches, study)
    outcome, derived = statistics.statistics(frames["cells"], study)
    derived["within"] = within(frames)
    varied = statistics.rounded(variation.variation(frames["cells"]))
    if not varied.empty:
        derived["variation"] = varied
    if "untimed" in frames:
        derived["timer_cost"] = timer_cost.timer_cost(frames["cells"], frames["untimed"], study)
    gates = passed_gates(launches, study)
    found = across.findings(gates, study)
    made = {**frames, **derived}
    for name in OPTIONAL:
        if name not in made:
            (out / f"{name}.csv").unlink(missing_ok=True)
    written = tables.write(made, out)
    write_json(out / "statistics.json", outcome)
    return {
        "schema": "quietgate/tables/1",
        "study": study["study"],
        "inputs": len(study["launches"]),
        "tables": written,
        "drifts": found["drifts"],
        "agreement": found["agreement"],
        # One refused record stops `tables.collect`, so that here there is none.
        "refused": [],
        "warnings": [
            *found["warnings"],
            *unsteady(gates),
            *(
                timer_cost.warnings(derived["timer_cost"], study["untimed"])
                if "timer_cost" in derived
                else ()
            ),
            *(
                surroundings.warnings(frames["surroundings"], frames["cells"])
                if "surroundings" in frames
                else ()
            ),
            *variation.warnings(varied),
            *machines.differences(machines.launches(root, study)),
        ],
    }


def passed_gates(launches: Sequence[LaunchRecords], study: Mapping[str, Any]) -> list[records.Record]:
    """The gate that passed of each launch's measured server life, in run order."""
    gates = {(found.cell["id"], found.launch): found.gate for found in launches}
    in_order = (gates[launch["cell"], launch["launch"]] for launch in study["launches"])
    return [gate for gate in in_order if gate and gate["status"] == "passed"]


def unsteady(gates: Sequence[records.Record]) -> list[str]:
    """A sentence where servers were still getting faster or slower when their warm-up ended."""
    counts: dict[int, list[bool]] = {}
    for gate in gates:
        for level in (of_stage(gate, "warm_up") or {}).get("concurrencies", []):
            counts.setdefault(int(level["concurrency"]), []).append(not level["steady"])
    told = [
        f"at {counted(level, 'stream')} in {sum(found)} of {counted(len(found), 'launch')}"
        for level, found in sorted(counts.items())
        if any(found)
    ]
    if not told:
        return []
    return [
        f"the warm-up ended before the server was steady {', '.join(told)}: first repeats may be slower than"
        " later ones; raise `gate.warm_up_passes`, or the number of prompts where passes are short"
    ]


def within(frames: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """How well each launch's own speed is known, from the requests of its passes that are results."""
    keys = ["cell", "launch", "concurrency", "repeat"]
    cells, requests = frames["cells"], frames["requests"]
    good = cells.loc[cells["status"] == "passed", keys]
    metric = statistics.METRIC
    lines = requests.loc[requests["ok"].astype(bool), [*keys, "prompt_id", metric]].merge(good, on=keys)
    return statistics.rounded(within_launches(lines.astype({metric: float}), metric))
