"""All-reduces by themselves: are the sums right, and how long does one take at decode's message sizes?

    python check.py --ranks 2 --port 29500 --device cuda --bytes 16384,65536 --out answer.json

For the server's own interpreter and environment: one process per rank on this machine, started as SGLang
starts its ranks, with the NCCL variables that SGLang sets by itself (`as_sglang`). NCCL on GPUs, timed by
CUDA events around replays of a CUDA graph, as decode runs; gloo on a CPU, timed by the clock. At the end
one all-gather, untimed: the ranks of a server need it for the logits, and it has fewer algorithms. Needs
nothing but PyTorch. The answer is one JSON object; whoever started this decides how long to wait for it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from datetime import timedelta
from importlib import metadata
from pathlib import Path
from typing import Any

GRAPH_ROUNDS = 3  # replays whose sums are checked
TIMED, WARM = 10, 3  # timed repetitions, and those before them
REDUCES = 20  # all-reduces in one repetition, so that launching is not what is timed
GATHERED = 4096  # bytes of each rank in the all-gather

Say = Callable[[str], None]


def as_sglang(
    environ: Mapping[str, str], version: tuple[int, ...] | None, ranks: int, flags: set[str]
) -> dict[str, str]:
    """What SGLang (0.4.6 to 0.5.23) itself changes in the environment of its ranks that collectives see.

    Args:
        environ: what the server was given.
        version: SGLang's, as numbers; None is taken for a recent one.
        ranks: how many there are.
        flags: names of the server's flags, with underscores.
    """
    version = version or (1,)
    symmetric = "enable_symm_mem" in flags
    multicast = symmetric or "enable_nccl_nvls" in flags
    wanted = {"CUDA_DEVICE_MAX_CONNECTIONS": "8"}
    if symmetric or version < (0, 5, 6) or "NCCL_CUMEM_ENABLE" not in environ:
        wanted["NCCL_CUMEM_ENABLE"] = str(int(symmetric))
    if multicast or version < (0, 5, 2) or "NCCL_NVLS_ENABLE" not in environ:
        wanted["NCCL_NVLS_ENABLE"] = str(int(multicast))
    graphs = "disable_cuda_graph" not in flags
    if ranks > 1 and graphs and version >= (0, 5, 20) and "NCCL_GRAPH_REGISTER" not in environ:
        wanted["NCCL_GRAPH_REGISTER"] = "0"
    if ranks > 1 and "enable_deterministic_inference" in flags:
        if version >= (0, 5, 6):
            wanted["NCCL_ALGO"] = "allreduce:tree"
        if version >= (0, 5, 17):
            wanted |= {"NCCL_MIN_NCHANNELS": "8", "NCCL_MAX_NCHANNELS": "8"}
    return {name: value for name, value in wanted.items() if environ.get(name) != value}


def sglang_version() -> str | None:
    """The version of SGLang in this interpreter as text, or None."""
    try:
        return metadata.version("sglang")
    except metadata.PackageNotFoundError:
        return None


def numbers(version: str | None) -> tuple[int, ...] | None:
    """A version as a tuple of numbers, or None."""
    return tuple(map(int, re.findall(r"\d+", version)[:3])) if version else None


def main(argv: list[str] | None = None) -> int:
    """Start this machine's ranks, or be one of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, required=True, help="of all processes together")
    parser.add_argument(
        "--process", type=int, default=0, help="which of the server's processes this stands for"
    )
    parser.add_argument("--processes", type=int, default=1, help="over which the ranks are spread evenly")
    parser.add_argument("--port", type=int, required=True, help="where the ranks meet, on this machine")
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--first-gpu", type=int, default=0)
    parser.add_argument("--gpu-step", type=int, default=1)
    parser.add_argument("--bytes", required=True, help="message sizes, separated by commas")
    parser.add_argument("--flags", default="", help="names of the server's flags, separated by commas")
    parser.add_argument("--out", type=Path, required=True, help="the answer, written by rank 0")
    parser.add_argument("--stay", action="store_true", help="stay after the answer, until ended by a signal")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--added", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.rank is not None:
        try:
            rank_main(args)
        except BaseException:
            traceback.print_exc()
        # No tidy end: with all-reduces captured in a graph, destroying the group was seen to hang.
        sys.stdout.flush()
        os._exit(1)
    status = start(args)
    while args.stay and status == 0:
        signal.pause()
    return status


def start(args: argparse.Namespace) -> int:
    """Run the ranks of this process to their end; 0, or 1 when one of them failed."""
    flags = set(args.flags.split(","))
    added = as_sglang(os.environ, numbers(sglang_version()), args.ranks, flags)
    environ = {**os.environ, **added}
    here = args.ranks // args.processes
    first = here * args.process
    again = [sys.executable, *sys.argv, "--added", json.dumps(added), "--rank"]
    ranks = {rank: subprocess.Popen([*again, str(rank)], env=environ) for rank in range(first, first + here)}
    while True:
        codes = {rank: process.poll() for rank, process in ranks.items()}
        failed = {rank: code for rank, code in codes.items() if code}
        if failed or None not in codes.values():
            break
        time.sleep(0.02)
    for rank, code in failed.items():
        print(f"rank {rank} ended with status {code}", flush=True)
    for process in ranks.values():
        if process.poll() is None:
            process.kill()
    return int(bool(failed))


def rank_main(args: argparse.Namespace) -> None:
    """One rank, from the import of PyTorch to its end; does not return."""
    rank, ranks = args.rank, args.ranks

    def say(doing: str) -> None:
        # One write, since the ranks share a log.
        print(f"rank {rank}: {doing}\n", end="", flush=True)

    say("import torch")
    import torch
    import torch.distributed as dist

    local = rank % (ranks // args.processes)
    device = torch.device("cpu")
    if args.device == "cuda":
        device = torch.device("cuda", args.first_gpu + local * args.gpu_step)
        torch.cuda.set_device(device)
    # No time-out of its own comes first: how long to wait is the caller's affair.
    patience = timedelta(days=1)
    say("meet the others")
    store = dist.TCPStore("127.0.0.1", args.port, ranks, is_master=rank == 0, timeout=patience)
    backend = "nccl" if args.device == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=ranks, timeout=patience)
    measure = on_gpu if args.device == "cuda" else on_cpu
    results = []
    for size in map(int, args.bytes.split(",")):
        wrong, times = measure(torch, dist, Numbers(torch, rank, ranks, size // 2, device), say)
        results.append({"bytes": size, "wrong": wrong, "us": times})
    # Last, so that it changes nothing of what was timed.
    gathered = gather(torch, dist, Numbers(torch, rank, ranks, GATHERED // 2, device), say)
    mine = {
        "rank": rank,
        "pid": os.getpid(),
        "device": torch.cuda.get_device_name(device) if args.device == "cuda" else "cpu",
        "environment": {
            n: v for n, v in sorted(os.environ.items()) if n.startswith(("NCCL_", "TORCH_NCCL_"))
        },
        "results": results,
        "gathered": gathered,
    }
    store.set(f"answer/{rank}", json.dumps(mine))
    say("done")
    if rank == 0:
        found = [json.loads(store.get(f"answer/{other}")) for other in range(ranks)]
        write(args.out, answer(args, torch, backend, found))
        store.set("written", "")
    # All leave together: another rank may still read this one's memory. The store ends with rank 0.
    with contextlib.suppress(RuntimeError):
        store.get("written")
    sys.stdout.flush()
    os._exit(0)  # as untidily as in `main`


class Numbers:
    """Messages of whole numbers, another one of every rank, whose sums bfloat16 holds exactly."""

    def __init__(self, torch: Any, rank: int, ranks: int, count: int, device: Any):
        self.torch, self.rank, self.ranks, self.device = torch, rank, ranks, device
        self.count = max(1, count)
        # bfloat16 holds whole numbers up to 256, and a part of the sum is never more than the whole.
        self.top = max(2, min(16, 256 // ranks))

    def of(self, rank: int, turn: int) -> Any:
        """What a rank contributes in its `turn`, as float32."""
        place = self.torch.arange(self.count, device=self.device)
        return ((place * (rank + 1) + 5 * rank + turn) % self.top).float()

    def message(self, turn: int) -> Any:
        """What this rank contributes."""
        return self.of(self.rank, turn).bfloat16()

    def zeros(self) -> Any:
        """A message that stays the same however often it is summed."""
        return self.torch.zeros(self.count, dtype=self.torch.bfloat16, device=self.device)

    def wrong(self, found: Any, turn: int, how: str) -> str | None:
        """What is wrong with a sum, in words, or None."""
        return self._differs(found, sum(self.of(rank, turn) for rank in range(self.ranks)), f"{how}:", "sums")

    def astray(self, found: Any, turn: int, how: str) -> str | None:
        """What is wrong with what was gathered of all ranks, in words, or None."""
        wanted = self.torch.cat([self.of(rank, turn) for rank in range(self.ranks)])
        return self._differs(found, wanted, f"all-gather, {how}:", "numbers")

    def _differs(self, found: Any, wanted: Any, how: str, what: str) -> str | None:
        places = (found.float() != wanted).nonzero().flatten()
        if not len(places):
            return None
        at = int(places[0])
        return (
            f"rank {self.rank}, {2 * self.count} bytes, {how} {len(places)} of {len(wanted)} {what} wrong, "
            f"the first at {at}: {found[at].item():g} instead of {wanted[at].item():g}"
        )


def eager(dist: Any, numbers: Numbers, say: Say) -> tuple[str, str | None]:
    """One all-reduce outside any graph: the message's size in words, and what is wrong with the sums."""
    size = f"{2 * numbers.count} bytes"
    say(f"{size}: sums")
    message = numbers.message(0)
    dist.all_reduce(message)
    return size, numbers.wrong(message, 0, "eager")


def on_cpu(torch: Any, dist: Any, numbers: Numbers, say: Say) -> tuple[list[str], list[float]]:
    """(what is wrong, microseconds of an all-reduce in each timed repetition), by the clock."""
    size, first = eager(dist, numbers, say)
    say(f"{size}: times")
    message, times = numbers.zeros(), []
    for turn in range(WARM + TIMED):
        began = time.perf_counter()
        for _ in range(REDUCES):
            dist.all_reduce(message)
        if turn >= WARM:
            times.append((time.perf_counter() - began) * 1e6 / REDUCES)
    return [first] if first else [], times


def gather(torch: Any, dist: Any, numbers: Numbers, say: Say) -> list[str]:
    """What is wrong with an all-gather, on a GPU also in a CUDA graph, where SGLang gathers logits."""
    found = torch.zeros(numbers.ranks * numbers.count, dtype=torch.bfloat16, device=numbers.device)
    given = numbers.message(0)
    say(f"{2 * numbers.count} bytes: all-gather")
    dist.all_gather_into_tensor(found, given)
    wrong = [numbers.astray(found, 0, "eager")]
    if numbers.device.type == "cuda":
        say(f"{2 * numbers.count} bytes: all-gather in a CUDA graph")
        graph = captured(torch, lambda: dist.all_gather_into_tensor(found, given))
        KEPT.append((graph, given, found))
        given.copy_(numbers.message(1))
        graph.replay()
        torch.cuda.synchronize()
        wrong.append(numbers.astray(found, 1, "CUDA graph"))
    return [w for w in wrong if w]


KEPT: list[Any] = []  # graphs and their buffers: taking one apart is not part of the check


def on_gpu(torch: Any, dist: Any, numbers: Numbers, say: Say) -> tuple[list[str], list[float]]:
    """The same on a GPU: eager sums as in prefill, sums and times in a CUDA graph as in decode."""
    size, first = eager(dist, numbers, say)
    wrong = [first]

    given, found, zeros = numbers.message(0), numbers.zeros(), numbers.zeros()

    def once() -> None:
        found.copy_(given)
        dist.all_reduce(found)

    def many() -> None:
        for _ in range(REDUCES):
            dist.all_reduce(zeros)

    say(f"{size}: capture")
    checked, timed = captured(torch, once), captured(torch, many)
    KEPT.append((checked, timed, given, found, zeros))
    say(f"{size}: sums in a CUDA graph")
    for turn in range(1, 1 + GRAPH_ROUNDS):
        given.copy_(numbers.message(turn))
        checked.replay()
        torch.cuda.synchronize()
        wrong.append(numbers.wrong(found, turn, "CUDA graph"))
    say(f"{size}: times")
    events = []
    for _ in range(WARM + TIMED):
        pair = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        pair[0].record()
        timed.replay()
        pair[1].record()
        events.append(pair)
    torch.cuda.synchronize()
    times = [begin.elapsed_time(end) * 1e3 / REDUCES for begin, end in events[WARM:]]
    return [w for w in wrong if w], times


def captured(torch: Any, work: Callable[[], None]) -> Any:
    """A CUDA graph of `work`."""
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    # NCCL's watchdog thread may ask for events meanwhile; only this thread's calls belong to the graph.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        work()
    torch.cuda.synchronize()
    return graph


def answer(args: argparse.Namespace, torch: Any, backend: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    """The ranks' results as one object; a repetition took as long as its slowest rank."""
    sizes = []
    for same in zip(*(one["results"] for one in found), strict=True):
        times = [max(turn) for turn in zip(*(result["us"] for result in same), strict=True)]
        sizes.append(
            {
                "bytes": same[0]["bytes"],
                "wrong": [line for result in same for line in result["wrong"]],
                "median_us": round(statistics.median(times), 3),
                "min_us": round(min(times), 3),
                "max_us": round(max(times), 3),
            }
        )
    return {
        "backend": backend,
        "clock": "cuda_graph" if args.device == "cuda" else "wall",
        "torch": torch.__version__,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if args.device == "cuda" else None,
        "sglang": sglang_version(),
        "set_as_sglang": json.loads(args.added),
        "ranks": [{k: one[k] for k in ("rank", "pid", "device", "environment")} for one in found],
        "sizes": sizes,
        "gathered": [line for one in found for line in one["gathered"]],
    }


def write(path: Path, value: Any) -> None:
    """Write JSON so that a reader sees all of it or nothing."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(json.dumps(value, indent=1) + "\n")
    partial.replace(path)


if __name__ == "__main__":
    sys.exit(main())
