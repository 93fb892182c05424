"""Many streams: our client's tok/s beside SGLang's own benchmark, in turns on one server. Not a test.

    python tests/bench_serving.py                         the fake server, whose pace does not vary
    python tests/bench_serving.py --embedded              the embedded CPU server and its tiny models
    python tests/bench_serving.py --url http://HOST:PORT  a live server (with --model for its tokenizer)

Both send the same texts, as many at a time, for as many tokens; greedy, end-of-text ignored, caches flushed.
SGLang's benchmark runs in the embedded environment (resources/sglang-cpu), which `make study` builds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "workflow" / "lib"), str(ROOT / "tests")]

from fake_sglang.running import free_port, speculation, start  # noqa: E402

from quietgate.measure import passes, prompts  # noqa: E402

PYTHON = ROOT / "resources" / "sglang-cpu" / "bin" / "python"
EMBEDDED = ROOT / "workflow" / "embedded"
TARGET = ROOT / "resources" / "tiny-models" / "target"
# SGLang's benchmark imports torchvision's operators, as its server does, and a data set library for pictures.
THEIRS = f"""
import runpy, sys, types
sys.modules["datasets"] = types.ModuleType("datasets")
sys.modules["datasets"].load_dataset = None
sys.path.insert(0, {str(EMBEDDED / "shim")!r})
import torchvision_ops
torchvision_ops.define_missing()
runpy.run_module("sglang.benchmark.serving", run_name="__main__", alter_sys=True)
"""


@contextlib.contextmanager
def embedded_server(streams: int, log: Path) -> Iterator[str]:
    """The URL of the embedded server while it runs."""
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
        yield url
    finally:
        process.terminate()
        process.wait(60)


@contextlib.contextmanager
def fake_server(streams: int, log: Path) -> Iterator[str]:
    """The URL of a fake server that drafts two steps and takes 11 ms a cycle, however many streams."""
    flags = ["--enable-metrics", "--max-running-requests", str(streams), "--fake-base-ms", "10"]
    server = start(log, *speculation(2), *flags)
    try:
        yield server.url
    finally:
        server.stop()


def ours(url: str, chosen: list[prompts.Prompt], streams: int, tokens: int) -> dict[str, float]:
    """One pass by our client."""
    sampling = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
    flushed = passes.flush_cache(url)
    got = passes.send(
        url, chosen, sampling, concurrency=streams, repeat=1, timeout_s=600, stall_s=None, check=None,
        phase="timed",
    )  # fmt: skip
    found = passes.summarise(got.requests, streams, 1, got.wall_s, got.client_cpu_s, flushed)
    assert found["status"] == "passed", found["problems"]
    return {"tok/s": found["output_tokens_per_s"], "core": got.client_cpu_s / got.wall_s}


def theirs(url: str, data: Path, model: Path, count: int, streams: int, tokens: int) -> dict[str, float]:
    """The same by SGLang's benchmark."""
    answer = data.with_suffix(f".{time.monotonic_ns()}.out")
    command = [PYTHON, "-W", "ignore", "-c", THEIRS, "--backend", "sglang", "--base-url", url]
    command += ["--dataset-name", "custom", "--dataset-path", data, "--model", model, "--tokenizer", model]
    command += ["--num-prompts", count, "--max-concurrency", streams, "--sharegpt-output-len", tokens]
    command += ["--output-file", answer, "--temperature", "0", "--flush-cache", "--warmup-requests", "0"]
    command += ["--disable-tqdm"]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(answer.read_text().splitlines()[-1])
    assert found["completed"] == count, found["completed"]
    assert found["total_output_tokens"] == count * tokens, found["total_output_tokens"]
    return {"tok/s": found["output_throughput"]}


def main() -> None:
    """Alternate the two clients and print each pass and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--url")
    parser.add_argument("--embedded", action="store_true")
    parser.add_argument("--model", type=Path, default=TARGET)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--pairs", type=int, default=4)
    args = parser.parse_args()
    chosen = prompts.enough(prompts.load(), 2 * args.streams)
    ratios = []
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        data = Path(folder) / "prompts.jsonl"
        turns = [[{"content": p.text}, {"content": "-"}] for p in chosen]
        data.write_text("".join(json.dumps({"conversations": t}) + "\n" for t in turns))
        log = Path(folder) / "server.log"
        server = embedded_server if args.embedded else fake_server
        url = args.url or stack.enter_context(server(args.streams, log))
        ours(url, chosen, args.streams, args.tokens)  # warm-up
        for pair in range(args.pairs):
            a = ours(url, chosen, args.streams, args.tokens)
            b = theirs(url, data, args.model, len(chosen), args.streams, args.tokens)
            ratios.append(a["tok/s"] / b["tok/s"])
            print(
                f"pair {pair + 1}, {args.streams} streams, {len(chosen)} requests of {args.tokens} tokens: "
                f"ours {a['tok/s']:.1f} tok/s ({100 * a['core']:.0f} % of a core), SGLang's {b['tok/s']:.1f} "
                f"tok/s, ratio {ratios[-1]:.4f}",
                flush=True,
            )
    print(f"median ratio {statistics.median(ratios):.4f}")


if __name__ == "__main__":
    main()
