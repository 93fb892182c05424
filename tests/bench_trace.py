"""How fast and in how much memory traces are read, against the standard library. Not a test.

    python tests/bench_trace.py                     one rank of 300 MB of JSON
    python tests/bench_trace.py --ranks 8 --mb 1250 eight ranks of some 100 MB of gzip each
    python tests/bench_trace.py --files *.json.gz   traces that exist
    python tests/bench_trace.py --hta PYTHON        also HolisticTraceAnalysis, of an environment that has it

Generated traces repeat one block of SGLang-like events (Python frames, CPU operators, launches,
flows, kernels, spans) with their own time stamps and ids, in the profiler's own layout.
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "workflow" / "lib"))

from quietgate.inspect.trace import ranks
from quietgate.inspect.trace.stream import TraceFile

REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
FRAMES = [f"sglang/srt/layers/module_{i}.py({17 * i}): forward_method_{i}" for i in range(200)]


def _cycle(at: float, number: int, rank: int, rng: random.Random) -> list[str]:
    """The events of one decode cycle as the profiler prints them."""
    out: list[str] = []

    def event(cat: str, name: str, pid: int, tid: int, ts: float, dur: float, args: dict) -> None:
        body = ", ".join(f'"{k}": {json.dumps(v)}' for k, v in args.items())
        out.append(
            f'  {{\n    "ph": "X", "cat": "{cat}", "name": "{name}", "pid": {pid}, "tid": {tid},\n'
            f'    "ts": {ts:.3f}, "dur": {dur:.3f},\n    "args": {{\n      {body}\n    }}\n  }}'
        )

    correlation = number * 1000
    for stage, kernels in (("draft", 20), ("step[VERIFY bs=1]", 120), ("draft_extend", 25)):
        start = at
        for k in range(kernels):
            correlation += 1
            for i in range(12):
                frame = {"Python parent id": k, "Python id": correlation * 20 + i, "Ev Idx": correlation}
                event("python_function", rng.choice(FRAMES), 7271, 7271, at + i, 12.5, frame)
            event("cpu_op", "aten::linear", 7271, 7271, at, 9.1, {"External id": correlation, "Ev Idx": k})
            link = {"External id": correlation, "cbid": 211, "correlation": correlation}
            event("cuda_runtime", "cudaLaunchKernel", 7271, 7271, at + 3, 4.2, link)
            name = REDUCE if k % 10 == 9 else f"nvjet_tst_64x{k}_64x16_4x1_v_bz_TNT"
            shape = {"grid": [2, 1, 1], "block": [256, 1, 1], "est. achieved occupancy %": 0}
            device = {"device": rank, "context": 1, "stream": 7, "correlation": correlation}
            event("kernel", name, rank, 7, at + 9, 4 + 4 * rng.random(), {"queued": 0, **device, **shape})
            for flow, tid in (("s", 7271), ("f", 7)):
                out.append(
                    f'  {{\n    "ph": "{flow}", "id": {correlation}, "pid": {rank}, "tid": {tid}, '
                    f'"ts": {at + 9:.3f},\n    "cat": "ac2g", "name": "ac2g"\n  }}'
                )
            at += 20
        args = {"External id": number * 10 + kernels}
        event("user_annotation", stage, 7271, 7271, start, at - start, args)
        event("gpu_user_annotation", stage, rank, 7, start + 9, at - start, args)
    return out


def generate(path: Path, mb: float, rank: int, ranks: int) -> None:
    """Write a trace of about `mb` megabytes of JSON."""
    rng = random.Random(rank)
    info = {"backend": "nccl", "rank": rank, "world_size": ranks}
    head = {"schemaVersion": 1, "deviceProperties": [], "distributedInfo": info, "displayTimeUnit": "ms"}
    written, number = 0, 0
    with gzip.open(path, "wb", compresslevel=5) as f:
        f.write(json.dumps(head)[:-1].encode() + b',\n  "traceEvents": [\n')
        while written < mb * 1e6:
            text = ",\n".join(_cycle(5e12 + number * 5e3, number, rank, rng)).encode()
            f.write((b",\n" if number else b"") + text)
            written, number = written + len(text), number + 1
        f.write(b'\n  ],\n  "traceName": "/tmp/tmp.json"\n}\n')


def measured(function, *args) -> tuple[float, float, float, float]:
    """Wall and CPU seconds, peak resident megabytes (own, largest child) of a fresh process."""
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    process = context.Process(target=_measure, args=(queue, function, args))
    process.start()
    found = queue.get()
    process.join()
    return found


def _measure(queue, function, args) -> None:
    began, cpu_began = time.perf_counter(), time.process_time()
    function(*args)
    seconds, cpu_s = time.perf_counter() - began, time.process_time() - cpu_began
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s += children.ru_utime + children.ru_stime
    queue.put((seconds, cpu_s, own, children.ru_maxrss / 1e3))


def typed(paths: list[Path], processes: int) -> None:
    """Our reader."""
    ranks.read(paths, processes)


def standard(path: Path) -> None:
    """The standard library doing the least that answers the same question: parse, sum by name."""
    with gzip.open(path) as f:
        events = json.load(f)["traceEvents"]
    sums: dict[str, float] = {}
    for event in events:
        if event.get("cat") == "kernel":
            sums[event["name"]] = sums.get(event["name"], 0.0) + event["dur"]


# What comes nearest to kernel time by kind and to communication: reading, then two of its analyses.
HTA = """
import sys, warnings
warnings.filterwarnings("ignore")
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir=sys.argv[2])
analysis.get_gpu_kernel_breakdown(visualize=False)
analysis.get_comm_comp_overlap(visualize=False)
"""


def holistic(python: str, path: Path) -> tuple[float, float, float]:
    """Wall and CPU seconds and peak megabytes of HolisticTraceAnalysis on one file, imports included."""
    began = time.perf_counter()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [python, "-c", HTA, str(path), str(path.parent)], stdout=said, stderr=subprocess.STDOUT
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        assert process.returncode == 0, said.read().decode(errors="replace")[-2000:]
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e3


def main() -> None:
    """Print one line per reader."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--mb", type=float, default=300)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--no-json", action="store_true", help="leave out the standard library")
    parser.add_argument("--hta", help="an interpreter that has HolisticTraceAnalysis")
    parser.add_argument("--files", nargs="*", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        paths = options.files or [Path(folder) / f"1-TP-{r}.trace.json.gz" for r in range(options.ranks)]
        if not options.files:
            generate(paths[0], options.mb, 0, options.ranks)
            for path in paths[1:]:  # the same bytes cost the same to read
                path.hardlink_to(paths[0])
        packed = sum(p.stat().st_size for p in paths) / 1e6
        text = sum(len(chunk) for p in paths for chunk in TraceFile(p).chunks()) / 1e6
        print(f"{len(paths)} file(s), {packed:.1f} MB gzip, {text:.0f} MB of JSON")
        seconds, cpu_s, own, child = measured(typed, paths, options.processes)
        workers = min(options.processes, len(paths))
        total = own + (workers * child if workers > 1 else 0)
        print(
            f"quietgate, {workers} process(es): {seconds:.2f} s ({cpu_s:.2f} s of CPU), "
            f"{text / seconds:.0f} MB/s, {text / cpu_s:.0f} MB per CPU second, peak {total:.0f} MB in all"
        )
        one = min(paths, key=lambda p: p.stat().st_size)
        size = sum(len(chunk) for chunk in TraceFile(one).chunks()) / 1e6
        if options.hta:
            seconds, cpu_s, own = holistic(options.hta, one)
            print(
                f"HolisticTraceAnalysis, one file: {seconds:.2f} s ({cpu_s:.2f} s of CPU), "
                f"{size / seconds:.0f} MB/s, {size / cpu_s:.0f} MB per CPU second, peak {own:.0f} MB"
            )
        if options.no_json:
            return
        seconds, cpu_s, own, _ = measured(standard, one)
        print(
            f"json, one file: {seconds:.2f} s ({cpu_s:.2f} s of CPU), "
            f"{size / seconds:.0f} MB/s, {size / cpu_s:.0f} MB per CPU second, peak {own:.0f} MB"
        )


if __name__ == "__main__":
    main()
