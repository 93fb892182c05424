"""Many streams: our client beside SGLang's own benchmark, in turns on one server. Not a test.

    python tests/bench_serving.py                         the fake server, whose pace does not vary
    python tests/bench_serving.py --embedded              the embedded CPU server and its tiny models
    python tests/bench_serving.py --url http://HOST:PORT  a live server (with --model for its tokenizer)

Both send the same texts in the same order, as many at a time, for as many tokens; greedy, end-of-text
ignored, caches flushed. For both, output tok/s is all tokens over the time from the first request to the end
of the last answer, and CPU is that of the client's thread in this time. The pairs run A B, B A, A B ..., so
that a drift of the machine favours neither; their first one warms up and is not counted.

Where the server runs here, its busiest thread tells what set the pace: its share of the time on a core,
in wait for one that another program had, and else, which is all that a client can have cost by being
late. The embedded server computes in that thread without a pause: its tok/s follow what other programs
leave of the machine, whichever client happens to run. So compare many short pairs (--tokens 50 --pairs
20); tok/s are also compared without the waits for a core.

SGLang's benchmark runs in the embedded environment (resources/sglang-cpu), which `make study` builds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "workflow" / "lib"), str(ROOT / "tests")]

from fake_sglang.running import free_port, speculation, start  # noqa: E402

from quietgate.measure import passes, prompts  # noqa: E402

PYTHON = ROOT / "resources" / "sglang-cpu" / "bin" / "python"
EMBEDDED = ROOT / "workflow" / "embedded"
TARGET = ROOT / "resources" / "tiny-models" / "target"
THEIRS = Path(__file__).with_name("bench_serving_theirs.py")
Threads = dict[str, list[float]]


@dataclass(frozen=True)
class Server:
    """A server under load; `pid` is None where it is not ours to look at."""

    url: str
    pid: int | None

    def threads(self) -> Threads:
        """Of each of its threads so far: seconds on a core, seconds in wait for one."""
        if self.pid is None:
            return {}
        top = psutil.Process(self.pid)
        found = {}
        for process in (top, *top.children(recursive=True)):
            for task in Path(f"/proc/{process.pid}/task").iterdir():
                with contextlib.suppress(OSError):
                    ran, waited, _ = (task / "schedstat").read_text().split()
                    found[task.name] = [int(ran) / 1e9, int(waited) / 1e9]
        return found


@dataclass(frozen=True)
class Pass:
    """One pass of one client, or the median of several.

    Attributes:
        client_ms: the client's CPU, in ms for 1,000 tokens.
        ran, waited, rest: shares of the time that the server's busiest thread was on a core, was in wait
            for one, and was neither; nan where the server is not ours to look at.
    """

    tokens_per_s: float
    client_ms: float
    ran: float
    waited: float
    rest: float

    @property
    def unhindered(self) -> float:
        """tok/s of the time in which the server's busiest thread did not wait for a core."""
        return self.tokens_per_s / (1 - self.waited)

    def __str__(self) -> str:
        text = f"{self.tokens_per_s:8.1f} tok/s, client {self.client_ms:5.1f} ms of CPU per 1,000 tokens"
        if math.isnan(self.ran):
            return text
        shares = f"ran {self.ran:.1%}, waited {self.waited:.1%}, else {self.rest:.1%}"
        return f"{text}; server's thread {shares}"


def passed(tokens: int, wall_s: float, cpu_s: float, before: Threads, after: Threads) -> Pass:
    """A pass, from the CPU seconds of its client and the server's threads around it."""
    spent = [[b - a for a, b in zip(before.get(t, [0, 0]), after[t], strict=True)] for t in after]
    ran, waited = (s / wall_s for s in max(spent, default=[math.nan, math.nan]))
    return Pass(tokens / wall_s, 1e6 * cpu_s / tokens, ran, waited, 1 - ran - waited)


def middle(runs: Sequence[Pass]) -> Pass:
    """The median of each number."""
    return Pass(*(statistics.median(column) for column in zip(*map(astuple, runs), strict=True)))


@contextlib.contextmanager
def embedded_server(streams: int, log: Path) -> Iterator[Server]:
    """The embedded server while it runs."""
    port = free_port()
    flags = ["--device", "cpu", "--dtype", "float32", "--context-length", "2048"]
    flags += ["--max-total-tokens", "65536", "--max-running-requests", str(streams)]
    flags += ["--mem-fraction-static", "0.1", "--disable-cuda-graph", "--sleep-on-idle"]
    flags += ["--prefill-attention-backend", "intel_amx", "--decode-attention-backend", "intel_amx"]
    command = [PYTHON, EMBEDDED / "serve_cpu.py", "--model-path", TARGET, "--port", str(port), *flags]
    url = f"http://127.0.0.1:{port}"
    # One thread computes, as in the default study: the other core is the client's.
    environ = {**os.environ, "SGLANG_USE_CPU_ENGINE": "1", "TORCHDYNAMO_DISABLE": "1", "OMP_NUM_THREADS": "1"}
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(c) for c in command], stdout=out, stderr=subprocess.STDOUT, env=environ
        )
    try:
        for _ in range(180):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{url}/health_generate", timeout=10)
                break
            assert process.poll() is None, log.read_text()[-2000:]
            time.sleep(1)
        yield Server(url, process.pid)
    finally:
        process.terminate()
        process.wait(60)


@contextlib.contextmanager
def fake_server(streams: int, log: Path) -> Iterator[Server]:
    """A fake server that drafts two steps and takes 11 ms a cycle, however many streams."""
    flags = ["--enable-metrics", "--max-running-requests", str(streams), "--fake-base-ms", "10"]
    server = start(log, *speculation(2), *flags)
    try:
        yield Server(server.url, server.pid)
    finally:
        server.stop()


def ours(server: Server, chosen: Sequence[prompts.Prompt], streams: int, tokens: int) -> Pass:
    """One pass by our client."""
    sampling = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
    flushed = passes.flush_cache(server.url)
    before = server.threads()
    got = passes.send(
        server.url, chosen, sampling, concurrency=streams, repeat=1, timeout_s=600, stall_s=None, check=None,
        phase="timed",
    )  # fmt: skip
    after = server.threads()
    found = passes.summarise(got.requests, streams, 1, got.wall_s, got.client_cpu_s, flushed)
    assert found["status"] == "passed", found["problems"]
    made = sum(line["completion_tokens"] for line in got.requests)
    assert made == len(chosen) * tokens, made
    return passed(made, got.wall_s, got.client_cpu_s, before, after)


class Theirs:
    """SGLang's benchmark, imported once; a call is one pass of the same."""

    def __init__(
        self,
        server: Server,
        folder: Path,
        model: Path,
        chosen: Sequence[prompts.Prompt],
        streams: int,
        tokens: int,
    ) -> None:
        self.server, self.tokens, self.count = server, len(chosen) * tokens, len(chosen)
        self.answer, self.log = folder / "theirs.jsonl", folder / "theirs.log"
        data = folder / "prompts.jsonl"
        turns = [[{"content": p.text}, {"content": "-"}] for p in chosen]
        data.write_text("".join(json.dumps({"conversations": t}) + "\n" for t in turns))
        argv = ["--backend", "sglang", "--base-url", server.url, "--dataset-name", "custom"]
        argv += ["--dataset-path", data, "--model", model, "--tokenizer", model]
        argv += ["--num-prompts", len(chosen), "--max-concurrency", streams, "--sharegpt-output-len", tokens]
        argv += [
            "--output-file",
            self.answer,
            "--temperature",
            "0",
            "--flush-cache",
            "--warmup-requests",
            "0",
        ]
        self.argv = [str(word) for word in [*argv, "--disable-tqdm"]]
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [PYTHON, "-W", "ignore", THEIRS, EMBEDDED / "shim"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=out, text=True,
            )  # fmt: skip
        self._said("ready")

    def __call__(self) -> Pass:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(self.argv) + "\n")
        self.process.stdin.flush()
        self._said("began")
        before = self.server.threads()
        spent = json.loads(self._said())
        after = self.server.threads()
        self._said("done")
        found = json.loads(self.answer.read_text().splitlines()[-1])
        assert found["completed"] == self.count, found["completed"]
        assert found["total_output_tokens"] == self.tokens, found["total_output_tokens"]
        got = passed(self.tokens, spent["wall_s"], spent["cpu_s"], before, after)
        # Its own figure also counts a last question to the server, after all answers.
        assert 0.9 < found["output_throughput"] / got.tokens_per_s <= 1.001, found["output_throughput"]
        return got

    def _said(self, expected: str | None = None) -> str:
        assert self.process.stdout
        line = self.process.stdout.readline().strip()
        assert line == (expected or line or None), self.log.read_text()[-2000:]
        return line

    def close(self) -> None:
        """End it."""
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(60)


def shown(name: str, values: Sequence[float]) -> str:
    """Median and range of what a run says for each pair."""
    return f"{name} {statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def main() -> None:
    """Alternate the two clients; print each pass, the medians and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--url")
    parser.add_argument("--embedded", action="store_true")
    parser.add_argument("--model", type=Path, default=TARGET)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--pairs", type=int, default=8)
    args = parser.parse_args()
    chosen = prompts.enough(prompts.load(), 2 * args.streams)
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        kind = embedded_server if args.embedded else fake_server
        server = (
            Server(args.url, None)
            if args.url
            else stack.enter_context(kind(args.streams, folder / "server.log"))
        )
        theirs = Theirs(server, folder, args.model, chosen, args.streams, args.tokens)
        stack.callback(theirs.close)
        clients: list[tuple[str, Callable[[], Pass]]] = [
            ("ours", lambda: ours(server, chosen, args.streams, args.tokens)),
            ("SGLang's", theirs),
        ]
        print(f"{args.streams} streams, {len(chosen)} requests of {args.tokens} tokens in each pass")
        done: dict[str, list[Pass]] = {client: [] for client, _ in clients}
        for pair in range(args.pairs + 1):
            for client, run in clients if pair % 2 else reversed(clients):
                got = run()
                if pair:
                    done[client].append(got)
                print(f"{f'pair {pair}' if pair else 'warm-up'}, {client:8} {got}", flush=True)
    for client, runs in done.items():
        print(f"median, {client:8} {middle(runs)}")
    pairs = list(zip(*done.values(), strict=True))
    print(f"ours over SGLang's, median and range of {len(pairs)} pairs:")
    print(shown("  tok/s", [a.tokens_per_s / b.tokens_per_s for a, b in pairs]))
    if args.embedded:
        print(shown("  tok/s without waits for a core", [a.unhindered / b.unhindered for a, b in pairs]))
    print(shown("  client's CPU per token", [a.client_ms / b.client_ms for a, b in pairs]))


if __name__ == "__main__":
    main()
