"""SGLang's log lines, on standard output."""

from __future__ import annotations

import sys
import time
from typing import Any

OUT_OF_MEMORY = """\
Scheduler hit an exception: Traceback (most recent call last):
  File "/srv/sglang/srt/managers/scheduler.py", line 6320, in run_scheduler_process
    scheduler = Scheduler(
  File "/srv/sglang/srt/managers/scheduler.py", line 702, in __init__
    self.init_model_worker()
  File "/srv/sglang/srt/model_executor/model_runner.py", line 1211, in initialize
    self.load_model()
  File "/srv/sglang/srt/layers/linear.py", line 1422, in create_weights
    data=torch.empty(
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 384.00 MiB. GPU 0 has a total \
capacity of 23.56 GiB of which 338.75 MiB is free. Including non-PyTorch memory, this process has \
23.06 GiB memory in use. Of the allocated memory 22.33 GiB is allocated by PyTorch, and 210.78 MiB \
is reserved by PyTorch but unallocated.
"""

UNKNOWN = """\
frobnicator: the flux capacitor is not aligned, cannot go on
consult your dealer
/usr/lib/python3.11/multiprocessing/resource_tracker.py:254: UserWarning: resource_tracker: There \
appear to be 1 leaked semaphore objects to clean up at shutdown
  warnings.warn('resource_tracker: There appear to be %d '"""

DIED = """\
Scheduler hit an exception: Traceback (most recent call last):
  File "/srv/sglang/srt/managers/scheduler.py", line 6361, in run_scheduler_process
    scheduler.run_event_loop()
  File "/srv/sglang/srt/speculative/eagle_worker_v2.py", line 1502, in forward_batch_generation
    batch_output = self.verify(batch)
torch.AcceleratorError: CUDA error: an illegal memory access was encountered
"""

NO_CPU_TIMER = """\
Scheduler hit an exception: Traceback (most recent call last):
  File "/srv/sglang/srt/utils/device_timer.py", line 151, in wrap
    start_event = torch.cpu.Event(enable_timing=True)
TypeError: Event.__init__() got an unexpected keyword argument 'enable_timing'
"""

SIGQUIT = "Received sigquit from a child process. It usually means the child failed."


class Log:
    """Writes lines with SGLang's prefix; scheduler lines carry the rank where there are several."""

    def __init__(self, tp_size: int):
        self.rank = " TP{}" if tp_size > 1 else ""

    def line(self, text: str, rank: int | None = None) -> None:
        """One line; `rank` None is the launcher, whose lines name no rank."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        where = "" if rank is None else self.rank.format(rank)
        sys.stdout.write(f"[{stamp}{where}] {text}\n")
        sys.stdout.flush()

    def access(self, peer: str, method: str, path: str, status: int, reason: str) -> None:
        """An access line as uvicorn writes it."""
        self.line(f'INFO:     {peer} - "{method} {path} HTTP/1.1" {status} {reason}')

    def capture(self, args: dict[str, Any], ranks: list[int]) -> None:
        """The CUDA graph capture of every rank: target verify, draft decode, draft extend."""
        steps = args["speculative_num_steps"] or 0
        sizes = args["cuda_graph_bs_decode"] or [1, 2, 4, 8]
        graphs = [("target decode", 1)]
        if steps:
            draft = args["speculative_num_draft_tokens"]
            graphs = [("target verify", draft), ("draft decode", 1), ("draft extend", steps + 1)]
            if steps == 1:  # one step drafts in the extend pass: there is no draft-decode graph
                del graphs[1]
        for rank in ranks:
            for name, per_request in graphs:
                self.line(
                    f"Capture {name} CUDA graph begin. backend=full,"
                    f" num_tokens_per_req={per_request}, bs={sizes}, avail mem=96.80 GB",
                    rank,
                )
                self.line(
                    f"Capture {name} CUDA graph end. elapsed=0.01 s, mem usage=0.04 GB, avail mem=96.76 GB.",
                    rank,
                )
