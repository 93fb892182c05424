"""What the workflow itself costs: the numbers of the README's performance table.

python tests/bench.py [overhead] [delay] [client] [sizes]      (all of them by default; wants a quiet machine)
"""

from __future__ import annotations

import itertools
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "workflow" / "lib")]

from chain.runs import SNAKEMAKE, Run, every  # noqa: E402

from quietgate.steps.study import study_record  # noqa: E402
from quietgate.study import Study  # noqa: E402
from quietgate.study.stages import (  # noqa: E402
    chain,
    figures_digest,
    launch_folder,
    stage_digest,
    tables_digest,
)


def main(names: list[str]) -> None:
    for bench in (overhead, delay, client, sizes):
        if not names or bench.__name__ in names:
            bench()


def overhead() -> None:
    """Seconds per cell beyond boot (2 s), requests, profiler and stop: 8 launches on the fake server."""
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder) / "study", grid__steps=[0, 1, 2, 3], replicates=2)
        run.mode_file.write_text("slow-start:2")
        assert run() == 0, run.text()[-3000:]
        starts = sorted(
            (_time(json.loads(p.read_text())["started_at"]), p.parent) for p in every(run, "launch")
        )
        costs = []
        for (begin, here), (end, _) in itertools.pairwise(starts):
            costs.append(end - begin - _inherent(here))
        print(
            f"overhead per launch, launch to launch, beyond boot, requests, profiler and stop: median "
            f"{statistics.median(costs):.2f} s, range {min(costs):.2f}-{max(costs):.2f} s, n = {len(costs)}"
        )


def _inherent(folder: Path) -> float:
    """What any tool must wait for: boot, the gate's and the benchmark's requests, profiler, stop."""
    gate, benchmark, capture = (
        json.loads((folder / f"{n}.json").read_text()) for n in ("gate", "benchmark", "capture")
    )
    stages = {s["name"]: s["seconds"] for s in gate["stages"]}
    launch = json.loads((folder / "launch.json").read_text())
    log = (folder / "instances" / gate["instance"] / "server.log").read_text()
    ready = re.search(r"fake_sglang: ready (\d+\.\d+)", log)
    boot = float(ready[1]) - _time(launch["started_at"]) if ready else stages["http"]
    passes = sum(p["wall_s"] for p in benchmark["passes"])
    live = folder.parents[2] / ".live" / folder.parent.name / folder.name
    asked = (live / f"release.{gate['instance']}.json").stat().st_mtime
    ended = json.loads((folder / "instances" / gate["instance"] / "exit.json").read_text())["ended_at"]
    return (
        boot
        + stages["decode"]
        + stages["warm_up"]
        + passes
        + capture["profiler_s"]
        + max(0.0, _time(ended) - asked)
    )


def _time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def delay() -> None:
    """From the moment the fake server can answer to the gate's first three proofs."""
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder) / "study", grid__steps=[0, 2], replicates=3, capture__enabled=False)
        run.mode_file.write_text("slow-start:2")
        assert run() == 0, run.text()[-3000:]
        delays = []
        for path in every(run, "gate"):
            gate = json.loads(path.read_text())
            log = (path.parent / "instances" / gate["instance"] / "server.log").read_text()
            ready = re.search(r"fake_sglang: ready (\d+\.\d+)", log)
            assert ready, "the fake server says when it is ready"
            passed = _time(gate["started_at"]) + gate["seconds"]
            work = sum(s["seconds"] for s in gate["stages"] if s["name"] in ("decode", "warm_up"))
            delays.append(passed - work - float(ready[1]))
        print(
            f"from the server's first possible decode to the gate's pass, its own requests apart: median "
            f"{statistics.median(delays):.2f} s, worst {max(delays):.2f} s, n = {len(delays)}"
        )


def client() -> None:
    """The client's decode tok/s against the server's own decode_throughput, in the default study."""
    found = sorted((ROOT / "results" / "cpu-tiny-eagle3").glob("cells/*/*/requests.jsonl"))
    if not found:
        print("client against server: run `make study` first")
        return
    for path in found:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        ratios = [
            r["decode_tokens_per_s"] / r["server_decode_tokens_per_s"]
            for r in rows
            if r["phase"] == "timed" and r.get("server_decode_tokens_per_s") and r["decode_tokens_per_s"]
        ]
        if ratios:
            print(
                f"client / server decode tok/s, {path.parent.parent.name} {path.parent.name}: median "
                f"{statistics.median(ratios):.4f}, n = {len(ratios)}"
            )


def sizes() -> None:
    """Dry run of a new study, and a no-op run of a finished one, of 100 and of 1,000 cells."""
    for cells in (100, 1000):
        with tempfile.TemporaryDirectory() as folder:
            run = Run(Path(folder) / "study")
            run.copy_source()
            run.edit(
                grid__steps=[0, 2],
                grid__axes={"x": {"flag": "random-seed", "values": list(range(cells // 2))}},
            )
            began = time.monotonic()
            assert run("-n", "--quiet", log="dry") == 0, run.text("dry")[-2000:]
            dry = time.monotonic() - began
            _pretend_finished(run)
            began = time.monotonic()
            assert run(log="noop", timeout_s=600) == 0, run.text("noop")[-2000:]
            noop = time.monotonic() - began
            assert run.finished("noop"), run.text("noop")[-2000:]
            print(f"{cells} cells: dry run {dry:.1f} s, nothing to do {noop:.1f} s")


def _pretend_finished(run: Run) -> None:
    """Leave the files of a finished study with the digests that a run looks at."""
    read = Study.from_file(run.folder / "study.yaml")
    study = Study(read.config, read.source, basedir=str(run.source))
    for launch in study.launches:
        folder = launch_folder(run.results, launch)
        folder.mkdir(parents=True)
        for stage in chain(study):
            digest = stage_digest(study, launch.cell, stage)
            record = {"digest": digest, "status": "passed", "instance": "life"}
            (folder / stage.record).write_text(json.dumps(record))
            for name in stage.files:
                (folder / name).write_text("")
        (folder / "instances" / "life").mkdir(parents=True)
        (folder / "instances" / "life" / "gate.json").write_text("{}")
    run.results.joinpath("study.json").write_text(json.dumps(study_record(study)))
    for name, digest in (
        ("tables/tables.json", tables_digest(study)),
        ("figures/figures.json", figures_digest(study)),
        ("report.html", None),
        ("check.json", tables_digest(study)),
    ):
        path = run.results / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"digest": digest}))
        time.sleep(0.02)


if __name__ == "__main__":
    subprocess.run([SNAKEMAKE, "--version"], check=True, capture_output=True)
    main(sys.argv[1:])
