"""Is the client the bottleneck? Its tok/s against the server's own count. A benchmark, not a test.

    python tests/bench_client.py                        the fake server at several speeds
    python tests/bench_client.py --url http://HOST:PORT a live SGLang server with --enable-metrics

One stream: median over requests of the client's decode tok/s against the server's decode_throughput
(its own clock, the same tokens). Many streams: tokens per second by the client's clock, and the share
of one core that the client used.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "workflow" / "lib"), str(ROOT / "tests")]

from fake_sglang.running import speculation, start  # noqa: E402

from quietgate.measure import passes, prompts  # noqa: E402


def measure(url: str, label: str, concurrency: int, tokens: int, repeats: int) -> None:
    """Print one line for each pass."""
    sampling = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
    chosen = prompts.load()[:8]
    for repeat in range(repeats):
        flushed = passes.flush_cache(url)
        got = passes.run(url, chosen, sampling, concurrency=concurrency, repeat=repeat + 1, timeout_s=600)
        summary = passes.summarise(
            got.requests, concurrency, repeat + 1, got.wall_s, got.client_cpu_s, flushed
        )
        if summary["status"] != "passed":
            print(f"{label:24} NOT VALID: {summary['problems'][0]}")
            continue
        pairs = [
            line["decode_tokens_per_s"] / line["server_decode_tokens_per_s"]
            for line in got.requests
            if line["server_decode_tokens_per_s"]
        ]
        ratio = f"{100 * (statistics.median(pairs) - 1):+.2f} %" if pairs else "no server count"
        print(
            f"{label:24} streams {concurrency:3}  client {summary['decode_tokens_per_s']:8.1f}"
            f"  server {summary['server_decode_tokens_per_s'] or float('nan'):8.1f} tok/s"
            f"  difference {ratio:>9}  all {summary['output_tokens_per_s']:8.1f} tok/s"
            f"  client core {100 * got.client_cpu_s / got.wall_s:5.1f} %",
            flush=True,
        )


def main() -> None:
    """Measure the server named, or fake ones."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--url")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=2)
    args = parser.parse_args()
    if args.url:
        for streams in args.streams:
            measure(args.url, args.url, streams, args.tokens, args.repeats)
        return
    for base_ms in (10.0, 3.0, 1.0):
        flags = [*speculation(2), "--enable-metrics", "--max-running-requests", "256"]
        flags += ["--fake-base-ms", str(base_ms)]
        with tempfile.TemporaryDirectory() as folder:
            server = start(Path(folder) / "fake.log", *flags)
            try:
                for streams in args.streams:
                    label = f"fake, {base_ms + 1.2:g} ms a cycle"
                    measure(server.url, label, streams, args.tokens, args.repeats)
            finally:
                server.stop()


if __name__ == "__main__":
    main()
