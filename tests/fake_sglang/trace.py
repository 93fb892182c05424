"""A small torch-style trace: spans on the CPU, kernels where there is a GPU."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

# Kernel microseconds inside each span of one cycle.
DRAFT_US, VERIFY_US, EXTEND_US = 70.0, 310.0, 90.0


def _events(cycles: int, steps: int, gpu: bool, ranks: int, pid: int) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    at = 1_000_000.0
    correlation = 0

    def span(name: str, duration: float, kernels: list[tuple[str, float]]) -> None:
        nonlocal at, correlation
        events.append(
            {"ph": "X", "cat": "user_annotation", "name": name, "pid": pid, "tid": pid}
            | {"ts": at, "dur": duration, "args": {"External id": len(events) + 1}}
        )
        inside = at + 5
        for kernel, us in kernels:
            correlation += 1
            link = {"correlation": correlation}
            if gpu:
                launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch"}
                launch |= {"pid": pid, "tid": pid, "ts": inside, "dur": 3.0, "args": link}
                run = {"ph": "X", "cat": "kernel", "name": kernel, "pid": 0, "tid": 7}
                run |= {"ts": inside + 4, "dur": us, "args": {**link, "stream": 7, "device": 0}}
                events.extend([launch, run])
            else:
                op = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": pid, "tid": pid}
                events.append(op | {"ts": inside, "dur": us, "args": {}})
            inside += us + 5
        at += duration + 20

    reduce = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    verify = [("nvjet_tst_64x8_verify", VERIFY_US * (0.4 if ranks > 1 else 1.0))]
    if ranks > 1:
        verify.append((reduce, VERIFY_US * 0.6))
    for _ in range(cycles):
        began = at
        if steps:
            span("draft", 200.0, [("nvjet_tst_64x8_draft", DRAFT_US)])
            span("step[VERIFY bs=1]", 420.0, verify)
            span("draft_extend", 180.0, [("nvjet_tst_64x8_extend", EXTEND_US)])
        else:
            span("step[DECODE bs=1]", 420.0, verify)
        batch = {"ph": "X", "cat": "user_annotation", "name": "scheduler.run_batch"}
        batch |= {"pid": pid, "tid": pid, "ts": began - 2, "dur": at - began, "args": {}}
        events.append(batch)
    return events


def write(
    folder: Path, profile_id: str, cycles: int, args: dict[str, Any], ranks: list[int], pid: int
) -> list[Path]:
    """Write one trace per rank into `folder`, named as SGLang names them."""
    folder.mkdir(parents=True, exist_ok=True)
    gpu = args["device"] != "cpu"
    files = []
    for rank in ranks:
        document: dict[str, Any] = {
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0, "name": "Fake GPU"}] if gpu else [],
            "distributedInfo": {
                "backend": "nccl" if gpu else "gloo",
                "rank": rank,
                "world_size": args["tp_size"],
                "nccl_version": "2.30.7",
            },
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": 1_790_857_026_000_000_000,
            "traceEvents": _events(cycles, args["speculative_num_steps"] or 0, gpu, args["tp_size"], pid),
        }
        path = folder / f"{profile_id}-TP-{rank}.trace.json.gz"
        path.write_bytes(gzip.compress(json.dumps(document).encode(), 1))
        files.append(path)
    return files
