"""Small synthetic traces in the profiler's own layout."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GEMM = "nvjet_tst_64x8_64x16_4x1_v_bz_TNT"

Event = dict[str, Any]


def kernel(name: str, ts: float, dur: float, correlation: int = 0, stream: int = 7, **args: Any) -> Event:
    args = {"stream": stream, "correlation": correlation, "device": 0, **args}
    return {
        "ph": "X",
        "cat": "kernel",
        "name": name,
        "pid": 0,
        "tid": stream,
        "ts": ts,
        "dur": dur,
        "args": args,
    }


def launch(ts: float, correlation: int, tid: int = 100, name: str = "cudaGraphLaunch") -> Event:
    args = {"correlation": correlation, "cbid": 311}
    return {
        "ph": "X",
        "cat": "cuda_runtime",
        "name": name,
        "pid": 9,
        "tid": tid,
        "ts": ts,
        "dur": 2,
        "args": args,
    }


def span(
    name: str, ts: float, dur: float, gpu: bool = False, tid: int | None = None, external: int = 0
) -> Event:
    cat = "gpu_user_annotation" if gpu else "user_annotation"
    line = tid if tid is not None else (7 if gpu else 100)
    args = {"External id": external} if external else {}
    return {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": line, "ts": ts, "dur": dur, "args": args}


def document(events: list[Event], rank: int = 0, world_size: int = 1, **keys: Any) -> dict[str, Any]:
    """A trace; `distributedInfo` is text, as SGLang's ranks write it."""
    info = str({"backend": "nccl", "rank": rank, "world_size": world_size, "nccl_version": "2.28.9"})
    noise = [
        {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "ts": 0, "args": {"name": "python"}},
        {"ph": "s", "id": 1, "pid": 0, "tid": 0, "ts": 0, "cat": "ac2g", "name": "ac2g"},
        {"ph": "X", "cat": "python_function", "name": "a.py(1): f", "pid": 9, "tid": 100, "ts": 0, "dur": 1},
    ]
    head = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA X"}], "distributedInfo": info}
    return head | keys | {"traceEvents": noise + events, "traceName": "/tmp/a.json"}


def write(path: Path, content: Any, indent: int | None = 1) -> Path:
    """Write a document, gzipped where the name says so."""
    text = content if isinstance(content, bytes) else json.dumps(content, indent=indent).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def cycles(
    count: int = 5,
    *,
    gpu_spans: bool = True,
    draft: str = "draft",
    verify: str = "step[VERIFY bs=1]",
    reduce_us: tuple[float, ...] = (5.0,),
    late_us: float = 0.0,
) -> list[Event]:
    """Cycles of 1000 us: draft 70, verify 300 + all-reduces, extend 90 (microseconds of kernels).

    Launches run 200 us ahead of their kernels. `late_us` moves the start of this rank's all-reduces
    later and shortens them: they end with those of the other ranks.
    """
    events: list[Event] = []
    correlation = 1000
    for i in range(count):
        at = 10_000.0 + 1000.0 * i
        for name, offset, kernels in (
            (draft, 0.0, [(GEMM, 0.0, 70.0)]),
            (
                verify,
                300.0,
                [
                    (GEMM, 0.0, 300.0),
                    *((REDUCE, 310.0 + 40 * k + late_us, us - late_us) for k, us in enumerate(reduce_us)),
                ],
            ),
            ("draft_extend", 800.0, [(GEMM, 0.0, 60.0), (GEMM, 70.0, 30.0)]),
        ):
            events.append(span(name, at + offset - 200, 30, external=correlation))
            correlation += 1
            events.append(launch(at + offset - 195, correlation))
            for kernel_name, begin, us in kernels:
                shape = {"grid": [2, 1, 1], "block": [256, 1, 1]}
                events.append(kernel(kernel_name, at + offset + begin, us, correlation, **shape))
            if gpu_spans:
                last = kernels[-1]
                events.append(span(name, at + offset, last[1] + last[2], gpu=True, external=correlation - 1))
    return events
