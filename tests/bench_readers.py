"""How fast and in how much memory the log reader reads: a benchmark, not a test.

    python tests/bench_readers.py [megabytes]

Writes a server log of that size (default 200 MB) of each kind to a temporary folder, reads it in a process
of its own, and prints MB/s and the peak of that process's memory. On a machine that does other
work, processor time is the fairer number.
"""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

LIBRARY = Path(__file__).parents[1] / "workflow" / "lib"


def decode(i: int, rank: str = "") -> str:
    """A decode line of 0.5.9 and later with speculation."""
    clock = f"{i // 3600 % 24:02d}:{i // 60 % 60:02d}:{i % 60:02d}"
    length, running = 1.8 + random.random(), 1 + i // 50 % 8
    return (
        f"[2026-11-29 {clock}{rank}] Decode batch, #running-req: {running}, #token: {i % 90000}, "
        f"token usage: 0.{i % 90:02d}, accept len: {length:.2f}, accept rate: {(length - 1) / 2:.2f}, "
        f"cuda graph: True, gen throughput (token/s): {running * (90 + 20 * random.random()):.2f}, "
        "#queue-req: 0\n"
    )


def prefill(i: int, rank: str = "") -> str:
    """A prefill line."""
    clock = f"{i // 3600 % 24:02d}:{i // 60 % 60:02d}:{i % 60:02d}"
    return (
        f"[2026-11-29 {clock}{rank}] Prefill batch, #new-seq: 1, #new-token: {i % 4096}, #cached-token: 0, "
        "token usage: 0.01, #running-req: 0, #queue-req: 0, #pending-token: 0, cuda graph: False, "
        "input throughput (token/s): 812.50\n"
    )


def served(i: int) -> str:
    """An access line."""
    clock = f"{i // 3600 % 24:02d}:{i // 60 % 60:02d}:{i % 60:02d}"
    return (
        f'[2026-11-29 {clock}] INFO:     127.0.0.1:{30000 + i % 30000} - "POST /generate HTTP/1.1" 200 OK\n'
    )


def mixed(i: int) -> str:
    """What a server under a benchmark writes."""
    if i % 4 == 0:
        return prefill(i) + served(i)
    return decode(i)


def talkative(i: int) -> str:
    """A server that also logs every request and warns a lot."""
    clock = f"{i // 3600 % 24:02d}:{i // 60 % 60:02d}:{i % 60:02d}"
    return mixed(i) + (
        f"[2026-11-29 {clock}] Receive: obj=GenerateReqInput(rid='{i:032x}', text='Tell me about error "
        f"handling and memory in the long history of number {i}', sampling_params={{'top_p': 0.9}})\n"
        f"[2026-11-29 {clock}] Parameter model.layers.{i % 80}.self_attn.k_scale not found in params_dict\n"
    )


def data_parallel(i: int) -> str:
    """Eight data ranks, each with lines of its own."""
    return decode(i // 8, f" DP{i % 8} TP{i % 8}")


KINDS: dict[str, Callable[[int], str]] = {
    "mixed": mixed,
    "decode only": decode,
    "talkative": talkative,
    "data parallel": data_parallel,
}


def generate(path: Path, size: int, line: Callable[[int], str]) -> None:
    """Fill `path` with lines up to `size` bytes; a piece of a few megabytes is repeated."""
    piece = "".join(_until(4 << 20, line)).encode()
    with path.open("wb") as f:
        f.write(
            b"[2026-11-29 00:00:00] server_args=ServerArgs(model_path='m', speculative_num_draft_tokens=3)\n"
        )
        f.write(b"[2026-11-29 00:00:09] The server is fired up and ready to roll!\n")
        while f.tell() < size:
            f.write(piece)


def _until(size: int, line: Callable[[int], str]) -> Iterator[str]:
    i = 0
    while size > 0:
        text = line(i)
        yield text
        size -= len(text)
        i += 1


def measure(path: Path) -> None:
    """Read `path` in this process and print the result."""
    sys.path.insert(0, str(LIBRARY))
    from quietgate.inspect import log
    from quietgate.inspect.failures import classify

    for name, reader in (("log.read", log.read), ("classify", classify)):
        began, busy = time.perf_counter(), time.process_time()
        reader(path)
        seconds, cpu = time.perf_counter() - began, time.process_time() - busy
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        megabytes = path.stat().st_size / 1e6
        print(
            f"    {name:9} {megabytes / seconds:6.0f} MB/s of wall time, {megabytes / cpu:6.0f} MB/s of "
            f"processor time, peak {peak:5.0f} MiB",
            flush=True,
        )


def main() -> None:
    """Generate, read, print."""
    size = int(float(sys.argv[1]) * 1e6) if len(sys.argv) > 1 else 200_000_000
    random.seed(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "server.log"
        for name, line in KINDS.items():
            generate(path, size, line)
            print(f"{name}, {path.stat().st_size / 1e6:.0f} MB", flush=True)
            subprocess.run([sys.executable, __file__, "--read", str(path)], check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--read"]:
        measure(Path(sys.argv[2]))
    else:
        main()
