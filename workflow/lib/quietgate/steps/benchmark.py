"""Rule `benchmark`: the timed passes, and SGLang's own counters over exactly their windows."""

from __future__ import annotations

import json
import time
from typing import Any

from quietgate.errors import CellFailed
from quietgate.files import sha256, write_atomic
from quietgate.measure import pace, passes, stages, surroundings, workload
from quietgate.serve import lease
from quietgate.steps import server
from quietgate.steps.gated import gated
from quietgate.steps.place import Place
from quietgate.study.stages import BENCHMARK
from quietgate.wording import counted


def main(record: str, log: str) -> None:
    """Run the rule; also leaves requests.jsonl and stages.json, whatever the outcome."""
    place = Place.of(record, log)
    started = time.time()
    server.run(place, BENCHMARK, _work)
    requests = place.folder / "requests.jsonl"
    if not requests.exists():
        write_atomic(requests, "")
    if not (place.folder / "stages.json").exists():
        outcome = place.read(BENCHMARK)
        failure = outcome["failure"]
        place.write(
            BENCHMARK, "skipped", started, outcome["instance"],
            failure=failure, kind="stages", file="stages.json",
        )  # fmt: skip


def _work(place: Place) -> tuple[str, dict[str, Any]]:
    started = time.time()
    for name in ("requests.jsonl", "stages.json"):
        (place.folder / name).unlink(missing_ok=True)
    live, _ = gated(place)
    settings = place.study.config["benchmark"]
    chosen = workload.prompts_of(place.study)
    summaries: list[dict[str, Any]] = []
    windows: list[dict[str, Any]] = []
    lines: list[str] = []
    try:
        with lease.hold(live, "benchmark") as held:
            for concurrency in sorted(settings["concurrency"]):
                for repeat in range(1, settings["repeats"] + 1):
                    held.check()
                    at_first_ms = pace.loop_ms()
                    flushed = passes.flush_cache(live.base_url)
                    before = stages.snapshot(live.base_url)
                    around = surroundings.reading(live.pids, live.gpus)
                    result = passes.run(
                        live.base_url, chosen, place.study.sampling(),
                        concurrency=concurrency, repeat=repeat, check=held.check,
                        timeout_s=settings["request_timeout_s"], stall_s=settings["stall_timeout_s"],
                    )  # fmt: skip
                    around_end = surroundings.reading(live.pids, live.gpus)
                    after = stages.snapshot(live.base_url)
                    meanwhile = surroundings.between(
                        around, around_end, result.client_cpu_s, (at_first_ms, pace.loop_ms())
                    )
                    lines += [json.dumps(r, ensure_ascii=False) for r in result.requests]
                    windows.append(stages.window(before, after, result.wall_s, concurrency, repeat))
                    summaries.append(
                        _summary(result, concurrency, repeat, flushed) | {"surroundings": meanwhile}
                    )
                    place.say(_told(summaries[-1]))
            own = stages.record(windows)
            place.write(
                BENCHMARK, "passed", started, live.instance, own, kind="stages", file="stages.json"
            )  # fmt: skip
            # Inside the hold, which knows whether a pass failed because its server is gone.
            _refuse_bad(summaries)
    finally:
        # Also of a launch that fails here: its raw requests say why.
        write_atomic(place.folder / "requests.jsonl", "".join(f"{line}\n" for line in lines))
    return live.instance, {
        "settings": settings,
        "passes": summaries,
        "prompts_sha256": sha256(place.study.prompts_path),
        "requests_sha256": sha256(place.folder / "requests.jsonl"),
    }


def _refuse_bad(summaries: list[dict[str, Any]]) -> None:
    """CellFailed when any pass is no result, with every problem as evidence."""
    problems = [
        f"concurrency {s['concurrency']} repeat {s['repeat']}: {p}"
        for s in summaries
        if s["status"] != "passed"
        for p in s["problems"]
    ]
    if problems:
        raise CellFailed("invalid_pass", problems[0], problems)


def _summary(result: passes.PassResult, concurrency: int, repeat: int, flushed: bool) -> dict[str, Any]:
    return passes.summarise(
        result.requests, concurrency, repeat, result.wall_s, result.client_cpu_s, flushed
    )  # fmt: skip


def _told(summary: dict[str, Any]) -> str:
    head = f"benchmark, {counted(summary['concurrency'], 'stream')}, repeat {summary['repeat']}: "
    if summary["status"] != "passed":
        return head + "NOT VALID: " + "; ".join(summary["problems"][:3])
    return head + (
        f"{summary['decode_tokens_per_s']:.1f} tok/s decode, "
        f"{summary['tokens_per_cycle']:.2f} tokens per cycle, {summary['cycle_ms']:.2f} ms per cycle"
    )
