"""SGLang's own serving benchmark, for bench_serving.py: imported once, run once for each line of stdin.

    python bench_serving_theirs.py SHIM

A line is a JSON list of arguments of `python -m sglang.benchmark.serving`. Of each run stdout says "began"
when the first request is sent, then the seconds and CPU seconds from there to the end of the last answer,
then "done". What SGLang prints goes to stderr. Runs in the embedded environment; SHIM is its folder of stand-
ins.
"""

from __future__ import annotations

import gc
import json
import random
import sys
import time
import types
from typing import Any

sys.path.insert(0, sys.argv[1])
# It imports torchvision's operators, as SGLang's server does, and a data set library for pictures.
sys.modules["datasets"] = types.ModuleType("datasets")
sys.modules["datasets"].load_dataset = None  # type: ignore[attr-defined]
import torchvision_ops  # noqa: E402

torchvision_ops.define_missing()

from sglang.benchmark import serving  # noqa: E402

STDOUT, sys.stdout = sys.stdout, sys.stderr
send = serving.ASYNC_REQUEST_FUNCS["sglang"]
began = (0.0, 0.0)
ended = 0


def now() -> tuple[float, float]:
    """The clock, and the CPU seconds of this thread, in which the whole client runs."""
    return time.perf_counter(), time.thread_time()


def say(line: str) -> None:
    print(line, file=STDOUT, flush=True)


async def timed(request_func_input: Any, pbar: Any = None) -> Any:
    """One request, as SGLang sends it."""
    global began, ended
    if not began[0]:
        began = now()
        say("began")
    output = await send(request_func_input=request_func_input, pbar=pbar)
    ended += 1
    if ended == serving.args.num_prompts:
        wall_s, cpu_s = (b - a for a, b in zip(began, now(), strict=True))
        say(json.dumps({"wall_s": wall_s, "cpu_s": cpu_s}))
    return output


serving.ASYNC_REQUEST_FUNCS["sglang"] = timed
# The prompts in the order of the file: which of them run together decides how long the last ones run alone.
random.shuffle = lambda x: None  # type: ignore[assignment,misc]
say("ready")
for line in sys.stdin:
    gc.collect()  # as in a fresh process, where nothing of earlier runs is left to be collected in this one
    began, ended = (0.0, 0.0), 0
    sys.argv = ["sglang.benchmark.serving", *json.loads(line)]
    serving.cli_main()
    say("done")
