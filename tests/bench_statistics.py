"""How long the statistics of a large study take, and how much memory.

    python tests/bench_statistics.py

200 cells x 5 launches x 5 repeats x 64 prompts: tables/cells.csv through `statistics`, the requests
through `within_launches`. The aim is 20 s on 2 cores and 2 GB.
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "workflow/lib"), str(HERE / "statistics")]

from simulated import World, cells_table, study_record  # noqa: E402

from quietgate.analyse.statistics import DESCRIBED, statistics  # noqa: E402
from quietgate.analyse.within import within_launches  # noqa: E402


def main() -> None:
    """Simulate the study, analyse it, print seconds and peak memory."""
    rng = np.random.default_rng(0)
    grid = [(steps, f"p{p:02}") for p in range(20) for steps in range(10)]
    world = World(cells=200, prompts=4, odd=-0.2)
    passes = world.passes(rng, 1, rng.normal(0, 0.03, 200))[0]
    cells = cells_table(passes, grid, 5)
    for metric in DESCRIBED[1:]:
        cells[metric] = cells["decode_tokens_per_s"] * np.exp(rng.normal(0, 0.01, len(cells)))
    failed = cells["launch"].eq("l3") & cells["cell"].isin(cells["cell"].unique()[::9])
    cells.loc[failed, "status"] = "failed"
    study = study_record(grid, 5, "steps-0_nccl-p00")
    requests = pd.DataFrame(
        {
            "cell": np.repeat(cells["cell"].to_numpy(), 64),
            "launch": np.repeat(cells["launch"].to_numpy(), 64),
            "concurrency": 1,
            "repeat": np.repeat(cells["repeat"].to_numpy(), 64),
            "prompt_id": np.tile([f"q{i}" for i in range(64)], len(cells)),
            "decode_tokens_per_s": np.repeat(cells["decode_tokens_per_s"].to_numpy(), 64)
            * np.exp(rng.normal(0, 0.15, 64 * len(cells))),
        }
    )
    start = time.perf_counter()
    outcome, _ = statistics(cells, study)
    middle = time.perf_counter()
    inside = within_launches(requests)
    end = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{len(cells)} passes, {len(requests)} requests, {len(outcome['contrasts'])} comparisons")
    print(f"statistics {middle - start:.1f} s, within launches ({len(inside)}) {end - middle:.1f} s")
    print(f"together {end - start:.1f} s, peak memory {peak:.2f} GB (the simulated data included)")


if __name__ == "__main__":
    main()
