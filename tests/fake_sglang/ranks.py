"""The server's child processes: one per rank, a detokenizer, and (as a mode) a runaway grandchild.

A child is a shell that waits on its standard input, so it ends with the launcher, even when that is
killed: SGLang's children do the same through PR_SET_PDEATHSIG. Its `/proc` entry shows the title
SGLang gives it, and the environment it would have.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

from fake_sglang import nccl


def of_this_node(args: dict[str, Any]) -> list[int]:
    """The tensor-parallel ranks that this node runs."""
    per_node = max(1, args["tp_size"] // args["nnodes"])
    first = args["node_rank"] * per_node
    return list(range(first, first + per_node))


def title(args: dict[str, Any], rank: int) -> str:
    """The process title of a rank: without any suffix where there is one rank only."""
    return "sglang::scheduler" + (f"_TP{rank}" if args["tp_size"] > 1 else "")


def environment(launch: dict[str, str], lose: bool) -> dict[str, str]:
    """What a rank inherits: the launch's environment and SGLang's own additions."""
    kept = {k: v for k, v in launch.items() if not (lose and k.startswith("NCCL_"))}
    return kept | nccl.added_by_sglang(kept)


def start(name: str, environ: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start one child named `name`.

    SGLang's children overwrite their environment with their title unless SPT_NOENV is set; here
    they are started without any.
    """
    visible = environ if environ.get("SPT_NOENV") else {}
    child = subprocess.Popen([name], executable="/bin/sh", stdin=subprocess.PIPE, env=visible, bufsize=0)
    assert child.stdin is not None
    child.stdin.write(b"printf %.15s " + name.encode() + b" > /proc/$$/comm\n")
    return child


def run_away() -> None:
    """Leave a process that its group, session, environment and SIGTERM cannot reach."""
    parent = os.getpid()
    first = os.fork()
    if first:
        os.waitpid(first, 0)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print(f"fake_sglang: grandchild {os.getpid()}", flush=True)
    code = "import time; time.sleep(1800)"
    argv = [sys.executable, "-S", "-E", "-c", code, "fake-sglang-grandchild", str(parent)]
    os.execve(sys.executable, argv, {})
