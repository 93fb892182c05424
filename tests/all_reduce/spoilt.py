"""The check of all-reduces with a fault in rank 1, which the variable SPOILT names.

adds       every all-reduce of rank 1 has one sum wrong
sleeps     rank 1 never takes part; a child of it in a session of its own ignores SIGTERM
dies       rank 1 ends with what PyTorch says when a GPU is full
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
        message[7] += 1


def on_cpu(torch, dist, numbers, say, right=check.on_cpu):
    return right(torch, Spoilt(dist) if numbers.rank == 1 else dist, numbers, say)


if __name__ == "__main__":
    check.on_cpu = on_cpu
    sys.exit(check.main())
