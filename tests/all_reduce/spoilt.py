"""The check of all-reduces with a fault in rank 1, which the variable SPOILT names.

adds       every all-reduce of rank 1 has one sum wrong
sleeps     rank 1 never takes part; a child of it in a session of its own ignores SIGTERM
dies       rank 1 ends with what PyTorch says when a GPU is full
misplaces  the all-gather of rank 1 has the two messages in the other order
gathers    NCCL has no algorithm for an all-gather: its own log says why, PyTorch only that it failed
"""

import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "workflow" / "all_reduce"))

import check

FAULT = os.environ["SPOILT"]


class Spoilt:
    def __init__(self, dist):
        self.dist = dist

    def all_reduce(self, message):
        if FAULT == "dies":
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
        if FAULT == "sleeps":
            if not os.fork():
                os.setsid()
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            while True:
                time.sleep(100)
        self.dist.all_reduce(message)
        if FAULT == "adds":
            message[7] += 1

    def all_gather_into_tensor(self, found, given):
        if FAULT == "gathers":
            said = "no algorithm/protocol available for function AllGather with datatype ncclInt8."
            log = Path(os.environ["NCCL_DEBUG_FILE"].replace("%h", "n1").replace("%p", str(os.getpid())))
            log.write_text(
                f"n1:1:1 [1] enqueue.cc:1859 NCCL WARN Error : {said} NCCL_ALGO was set to Tree.\n"
            )
            raise RuntimeError("NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)")
        self.dist.all_gather_into_tensor(found, given)
        if FAULT == "misplaces":
            found.copy_(found.reshape(2, -1).flip(0).flatten())


def on_cpu(torch, dist, numbers, say, right=check.on_cpu):
    return right(torch, Spoilt(dist) if numbers.rank == 1 else dist, numbers, say)


def gather(torch, dist, numbers, say, right=check.gather):
    return right(torch, Spoilt(dist) if numbers.rank == 1 else dist, numbers, say)


if __name__ == "__main__":
    check.on_cpu, check.gather = on_cpu, gather
    sys.exit(check.main())
