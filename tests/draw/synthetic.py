"""A complete results folder of an invented study: valid records, known truth, failures, no server.

The invented machine: a decode forward costs `DECODE_MS`, a verify pass costs more for each drafted token
and for each further stream, drafts are accepted with a falling probability, and the machine slows down by
1.5 % over the study.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from quietgate import records
from quietgate.files import write_json
from quietgate.study import Study
from quietgate.study.description import untimed

# How much faster a server is without its timers.
WITHOUT_TIMERS = 1.04
DECODE_MS = {"untuned": 15.9, "tuned": 11.3}
TUNED_SET = {"NCCL_PROTO": "LL", "NCCL_ALGO": "Ring"}
TOKENS = 96
HOST = {"name": "bench-1", "processor": "Invented 9000", "cores": 64, "memory_mib": 524288}
GPUS = [{"uuid": f"GPU-{i}", "name": "Invented GPU", "memory_mib": 97887} for i in range(8)]


def config(
    steps: list[int],
    launches: int = 3,
    concurrency: tuple[int, ...] = (1,),
    profiles: tuple[str, ...] = ("untuned", "tuned"),
    axes: dict[str, Any] | None = None,
    capture: bool = True,
    timer_cost: bool = False,
) -> dict[str, Any]:
    """A study's config as a user would write it."""
    return {
        "study": "invented",
        "title": "An invented model on an invented machine",
        "server": {
            "python": "/opt/env/bin/python3",
            "entry": ["-m", "sglang.launch_server"],
            "args": {"model-path": "/models/target", "tp-size": 8},
            "speculative": {"algorithm": "EAGLE3", "draft_model_path": "/models/draft", "topk": 1},
        },
        "grid": {"steps": steps, "nccl": list(profiles), "axes": axes or {}},
        "nccl_profiles": {p: ({"set": TUNED_SET} if p == "tuned" else {}) for p in profiles},
        "reference": {"steps": steps[0], "nccl": profiles[-1]},
        "replicates": launches,
        "seed": 5,
        "benchmark": {
            "repeats": 2,
            "prompt_count": 6,
            "max_new_tokens": TOKENS,
            "concurrency": list(concurrency),
        },
        "capture": {"enabled": capture},
        "timer_cost": {"enabled": timer_cost},
    }


def write(
    root: Path,
    settings: dict[str, Any],
    failed: dict[tuple[int, str], str] | None = None,
    failed_launches: dict[tuple[int, str, str], str] | None = None,
    verdict: str = "confirmed",
    timer: bool = True,
    seed: int = 11,
    noise: float = 0.008,
    drivers: dict[str, str] | None = None,
    transfer: dict[str, float] | None = None,
) -> dict[str, Any]:
    """Write study.json and every record below `root`; returns the study record.

    Args:
        failed: failure class of cells (steps, profile) of which every launch fails in the gate.
        failed_launches: the same for single launches (steps, profile, launch).
        verdict: what the gate says of the tuned profile.
        timer: whether SGLang's stage timer told draft, verify and extend.
        drivers: the GPU driver by launch id.
        transfer: milliseconds that NCCL moves data in a verify, by profile.
    """
    study = Study.from_config(settings, "invented.yaml")
    record = study_record(study)
    write_json(root / "study.json", record)
    rng = np.random.default_rng(seed)
    failed, failed_launches = failed or {}, failed_launches or {}
    for place, launch in enumerate(study.launches):
        cell = launch.cell
        why = failed.get((cell.steps, cell.nccl)) or failed_launches.get((cell.steps, cell.nccl, launch.id))
        when = place / len(study.launches)
        one = _Launch(root, study, launch, place, verdict, timer)
        one.driver = (drivers or {}).get(launch.id, one.driver)
        one.transfer = (transfer or {}).get(cell.nccl)
        if why:
            one.fail(why)
        else:
            speed = math.exp(rng.normal(0, noise) - 0.015 * when)
            one.measure(rng, speed if cell.timers else WITHOUT_TIMERS * speed)
    return record


def study_record(study: Study) -> dict[str, Any]:
    """study.json of a study, with a fixed machine."""
    return {
        "schema": "quietgate/study/1",
        "study": study.name,
        "digest": "0" * 16,
        "config": study.config,
        "cells": [
            {"id": c.id, "steps": c.steps, "nccl": c.nccl, "axes": c.axes, "digests": study.digests(c)}
            for c in study.cells
        ],
        "untimed": untimed(study),
        "launches": [
            {"cell": x.cell.id, "launch": x.id, "block": x.block, "epoch": x.epoch} for x in study.launches
        ],
        "axes": list(study.config["grid"]["axes"]),
        "reference": study.reference.id,
        "seed": study.config["seed"],
        "written_at": "2026-11-29T12:00:00.000Z",
        # `study` may run anywhere, also where nothing was measured.
        "host": {"name": "laptop-1", "processor": "Another 1", "cores": 4, "memory_mib": 16384},
        "gpus": [],
        "driver": None,
        "versions": {"quietgate": "0.1.0", "python": "3.12.1"},
        "git": {"commit": "c" * 40, "modified": False},
        "warnings": [],
    }


def acceptance(steps: int) -> list[float]:
    """Probability that the draft at each position is accepted (all before it included)."""
    return [float(np.prod([0.66 - 0.03 * i for i in range(k)])) for k in range(1, steps + 1)]


class _Launch:
    def __init__(self, root: Path, study: Study, launch: Any, place: int, verdict: str, timer: bool):
        self.study, self.launch, self.cell = study, launch, launch.cell
        self.folder = root / "cells" / launch.cell.id / launch.id
        self.instance = hashlib.sha256(f"{launch.cell.id}/{launch.id}".encode()).hexdigest()[:12]
        self.place, self.verdict, self.timer = place, verdict, timer
        self.driver: str | None = None
        self.transfer: float | None = None

    def put(
        self, kind: str, status: str, fields: dict[str, Any], failure: Any = None, file: str = ""
    ) -> None:
        digests = self.study.digests(self.cell)
        key = {"benchmark": "benchmark", "stages": "benchmark", "capture": "capture"}.get(kind, "server")
        minutes = 9 * self.place + (3 if kind in ("benchmark", "stages") else 0)
        started = dt.datetime(2026, 11, 29, 12) + dt.timedelta(minutes=minutes)
        record = {
            "schema": f"quietgate/{kind}/1",
            "study": self.study.name,
            "cell": self.cell.id,
            "launch": self.launch.id,
            "instance": self.instance,
            "digest": digests[key],
            "status": status,
            "failure": failure,
            "started_at": started.strftime("%Y-%m-%dT%H:%M:%S.000Z"),
            "seconds": 30.0,
            **fields,
        }
        records.write(self.folder / (file or f"{kind}.json"), record)

    def put_launch(self) -> None:
        server = self.study.resolved(self.cell)
        self.put(
            "launch",
            "passed",
            {
                "server": {k: server[k] for k in ("processes", "workflow_argv", "workflow_env")},
                "host": HOST, "gpus": GPUS, "driver": self.driver, "versions": {"sglang": "0.5.23"},
                "slot": "gpu0-7",
            },
        )  # fmt: skip

    def gate_fields(self) -> dict[str, Any]:
        nccl = {"profile_verdict": self.verdict, "why": "as NCCL logged it", "ranks": [], "choices": []}
        names = ("process", "port", "http", "arguments", "environment", "nccl", "decode", "cuda_graphs")
        return {
            "stages": [
                {
                    "stage": i, "name": name, "verdict": "passed", "why": None, "seconds": 0.5,
                    "evidence": nccl if name == "nccl" else {},
                }
                for i, name in enumerate(names, start=1)
            ],
            "ready_after_s": 61.5,
            "fingerprints": [],
        }  # fmt: skip

    def fail(self, kind: str) -> None:
        reason = {"out_of_memory": "CUDA ran out of memory while graphs were captured"}.get(kind, kind)
        failure = {"class": kind, "reason": reason, "stage": "gate", "evidence": ["the last line of the log"]}
        self.put_launch()
        fields = {"stages": [], "ready_after_s": 0.0, "fingerprints": []}
        for file in ("gate.json", f"instances/{self.instance}/gate.json"):
            self.put("gate", "failed", fields, failure, file)
        for skipped in ("benchmark", "stages", "capture", "profile"):
            self.put(skipped, "skipped", {}, failure)
        (self.folder / "requests.jsonl").write_text("")
        self.put_exit("gate failed")

    def put_exit(self, reason: str) -> None:
        self.put(
            "exit",
            "passed",
            {
                "reason": reason, "returncode": 0, "forced": False, "left": [],
                "ended_at": "2026-11-29T12:00:00.000Z", "instances": [self.instance],
            },
        )  # fmt: skip

    def measure(self, rng: np.random.Generator, speed: float) -> None:
        self.put_launch()
        for file in ("gate.json", f"instances/{self.instance}/gate.json"):
            self.put("gate", "passed", self.gate_fields(), None, file)
        settings = self.study.config["benchmark"]
        lines, passes, windows = [], [], []
        for streams in settings["concurrency"]:
            stages = self.stages(streams, speed)
            for repeat in range(1, settings["repeats"] + 1):
                some = [
                    self.request(rng, stages, streams, repeat, i)
                    for i in range(max(settings["prompt_count"], 2 * streams))
                ]
                lines += some
                passes.append(self.summary(some, streams, repeat))
                windows.append(self.window(stages, streams, repeat, passes[-1]))
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (self.folder / "requests.jsonl").write_text(text)
        self.put(
            "benchmark",
            "passed",
            {
                "settings": settings, "passes": passes, "warm_up": None,
                "requests_sha256": hashlib.sha256(text.encode()).hexdigest(),
            },
        )  # fmt: skip
        self.put("stages", "passed", {"source": "device_timer", "why": None, "windows": []})
        if self.study.config["capture"]["enabled"]:
            self.put("capture", "passed", {"trace_files": [], "cycles_requested": 20, "profiler_s": 1.0})
        self.put_profile(windows, passes)
        self.put_exit("released")

    def stages(self, streams: int, speed: float) -> dict[str, float]:
        """Milliseconds of each stage of a cycle."""
        steps = self.cell.steps
        decode = DECODE_MS.get(self.cell.nccl, 13.0) * (1 + 0.012 * (streams - 1)) / speed
        if steps == 0:
            return {"decode": decode}
        tokens = steps + 1
        return {
            "draft": 0.25 * steps / speed,
            "verify": decode + (3.1 + 0.25 * streams) * tokens / speed,
            "extend": 0.5 / speed,
        }

    def request(
        self, rng: np.random.Generator, stages: dict[str, float], streams: int, repeat: int, i: int
    ) -> dict[str, Any]:
        steps = self.cell.steps
        at_least = np.array([1.0, *acceptance(steps), 0.0])
        shares = at_least[:-1] - at_least[1:]
        histogram = np.zeros(steps + 1, dtype=int)
        made = 0
        greedy = np.random.default_rng(1000 * steps + i)  # the same prompt gives the same text every time
        while made < TOKENS - 1:
            accepted = int(greedy.choice(steps + 1, p=shares))
            histogram[accepted] += 1
            made += accepted + 1
        cycles = int(histogram.sum())
        cycle_ms = (sum(stages.values()) + 0.9) * math.exp(rng.normal(0, 0.01))
        ttft = 0.08 * (1 + 0.3 * (streams - 1)) * math.exp(rng.normal(0, 0.1))
        decode_s = cycles * cycle_ms / 1000
        return {
            "phase": "timed", "concurrency": streams, "repeat": repeat, "prompt_id": f"p{i}",
            "category": ("prose", "code")[i % 2], "ok": True, "error": None,
            "start_s": float(i // streams), "ttft_s": ttft, "end_to_end_s": ttft + decode_s,
            "decode_s": decode_s, "prompt_tokens": 80, "completion_tokens": TOKENS, "first_chunk_tokens": 1,
            "cached_tokens": 0, "finish_reason": "length", "chunk_s": [], "chunk_tokens": [],
            "decode_tokens_per_s": (TOKENS - 1) / decode_s,
            "request_tokens_per_s": TOKENS / (ttft + decode_s),
            "spec": {"spec_accept_histogram": histogram.tolist()} if steps else {},
            "spec_verify_ct": cycles if steps else None,
            "tokens_per_cycle": (TOKENS - 1) / cycles, "cycle_ms": cycle_ms, "text": "x",
        }  # fmt: skip

    def summary(self, lines: list[dict[str, Any]], streams: int, repeat: int) -> dict[str, Any]:
        middle = {
            name: float(np.median([line[name] for line in lines]))
            for name in ("decode_tokens_per_s", "request_tokens_per_s", "ttft_s", "end_to_end_s")
        }
        cycles = sum(round((TOKENS - 1) / line["tokens_per_cycle"]) for line in lines)
        wall = sum(line["end_to_end_s"] for line in lines) / streams
        return {
            "concurrency": streams, "repeat": repeat, "status": "passed", "problems": [],
            "requests": len(lines), "wall_s": wall, "client_cpu_s": 0.1, "flushed": True, **middle,
            "output_tokens_per_s": TOKENS * len(lines) / wall,
            "tokens_per_cycle": (TOKENS - 1) * len(lines) / cycles,
            "cycle_ms": 1000 * sum(line["decode_s"] for line in lines) / cycles,
        }  # fmt: skip

    def window(
        self, stages: dict[str, float], streams: int, repeat: int, one: dict[str, Any]
    ) -> dict[str, Any]:
        known = stages if self.timer else {}
        values = {f"{n}_ms": known.get(n) for n in ("draft", "verify", "extend", "decode")}
        cycle = one["cycle_ms"]
        return {
            "concurrency": streams, "repeat": repeat, **values, "cycle_ms": cycle,
            "other_ms": cycle - sum(known.values()) if known else None,
            "tokens_per_cycle": one["tokens_per_cycle"],
            "sources": {"cycle_ms": "requests", **{f"{n}_ms": "device_timer" for n in known}},
        }  # fmt: skip

    def communication(self) -> dict[str, Any]:
        if self.transfer is None:
            return {"share": None, "why": "no trace"}
        moved = self.transfer * (1 + 0.01 * (7 * self.place % 5 - 2))
        return {"share": 0.2, "why": None, "transfer_ms_per_span": moved, "waiting_ms_per_span": 0.3}

    def put_profile(self, windows: list[dict[str, Any]], passes: list[dict[str, Any]]) -> None:
        first = windows[0]
        source = dict.fromkeys(("draft_ms", "verify_ms", "extend_ms", "decode_ms", "cycle_ms"))
        best = {
            name: {
                "value": first[name],
                "source": first["sources"].get(name),
                "why": None if first[name] is not None else "not timed",
            }
            for name in source
        }
        self.put(
            "profile",
            "passed",
            {
                "steps": self.cell.steps, "concurrency": first["concurrency"],
                "tokens_per_cycle": passes[0]["tokens_per_cycle"],
                "sources": {n: source | {"why": {}} for n in ("device_timer", "trace", "requests")},
                "best": best,
                "not_in_any_stage": {
                    "value_ms": first["other_ms"], "share": None,
                    "without": [] if self.timer else ["draft_ms", "verify_ms", "extend_ms"],
                    "why": None if self.timer else "nothing to sum",
                },
                "comparisons": [], "windows": windows,
                "profiler": {"cycle_ms": None, "timed_cycle_ms": None, "stretch": None, "why": "no trace"},
                "communication": self.communication(),
                "acceptance": {"by_position": acceptance(self.cell.steps), "cycles": 1, "why": None},
                "trace": None,
            },
        )  # fmt: skip
