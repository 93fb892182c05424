#!/usr/bin/env python3
"""Stands for the server's Python in a check of all-reduces: no PyTorch, no ranks, an answer at once.

What its second argument (the check's script) would do, it does by itself. A profile with NCCL_PROTO=LL hangs
while the file `hang` lies in the working folder, with a child that ignores SIGTERM.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path


def option(name):
    return sys.argv[sys.argv.index(name) + 1]


ranks = int(option("--ranks"))
if os.environ.get("NCCL_PROTO") == "LL" and Path("hang").exists():
    for rank in range(ranks):
        print(f"rank {rank}: import torch\nrank {rank}: 16384 bytes: sums", flush=True)
    if not os.fork():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.setsid()
    while True:
        time.sleep(100)
seen = {n: v for n, v in os.environ.items() if n.startswith("NCCL_")}
answer = {
    "backend": "gloo",
    "clock": "wall",
    "torch": "none",
    "nccl": None,
    "sglang": None,
    "set_as_sglang": {},
    "ranks": [{"rank": r, "pid": os.getpid(), "device": "cpu", "environment": seen} for r in range(ranks)],
    "sizes": [
        {"bytes": int(b), "wrong": [], "median_us": 1.0, "min_us": 1.0, "max_us": 1.0}
        for b in option("--bytes").split(",")
    ],
}
out = Path(option("--out"))
(out.parent / "environment.json").write_text(json.dumps(dict(os.environ)))
out.with_name("partial").write_text(json.dumps(answer))
out.with_name("partial").replace(out)
signal.pause()
