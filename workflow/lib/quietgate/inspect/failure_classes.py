"""Ways to fail: their classes, what to try against each, and one failure as the readers tell it."""

from __future__ import annotations

from dataclasses import dataclass

_P2P = "try a profile with NCCL_P2P_DISABLE=1, and one with NCCL_CUMEM_ENABLE=1 (SGLang sets it to 0 itself)"
_KERNEL = "a kernel of this configuration is broken; CUDA_LAUNCH_BLOCKING=1 shows which"

# Every class, with what to try.
ADVICE: dict[str, str | None] = {
    "out_of_memory": "lower --mem-fraction-static or --cuda-graph-max-bs, or use more GPUs; "
    "check that no other process holds the memory",
    "kv_pool_exhausted": "fewer requests at once, fewer draft tokens, or more memory for the KV pool",
    "port_in_use": "another process listens on this port; take another port or stop that process",
    "missing_model": "check --model-path and the draft path; offline, the files must be on this machine",
    "draft_mismatch": "the draft does not fit the target (architecture, hidden size, vocabulary or path)",
    "context_too_long": "lower --context-length, or set SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1",
    "nccl_init": "set NCCL_DEBUG=INFO: NCCL's own log names the variable, the device or the address",
    "nccl_timeout": _P2P,
    "shared_memory": "give the container more /dev/shm (docker --shm-size, or --ipc=host)",
    "watchdog": f"a rank made no progress; with tp > 1 right after a prefill it is most often P2P: {_P2P}",
    "graph_capture": "try --disable-cuda-graph to see the error itself, or a smaller --cuda-graph-max-bs",
    "illegal_access": _KERNEL,
    "killed": "somebody or the kernel killed it; see dmesg for the OOM killer",
    "segmentation_fault": None,
    "unsupported": "this build, its libraries or this GPU cannot do what was asked",
    "proxy": "set NO_PROXY=127.0.0.1,localhost: a proxy answered instead of the server",
    "never_ready": "the server came up but its first request failed",
    "stopped_by_us": None,
    "hang": _P2P,
    "hardware": "take this GPU out of service; do not retry on it",
    "unknown": None,
}
CLASSES = tuple(ADVICE)
# What a line says in so many words has its own cure.
_CURES = {
    "o algorithm/protocol": "NCCL_ALGO and NCCL_PROTO leave this collective nothing; let every one have Ring "
    'and give all-reduce its own: NCCL_ALGO="ring,tree;allreduce:tree" (NCCL 2.24.3 or later)',
}


@dataclass(frozen=True)
class Failure:
    """Why a server failed.

    Attributes:
        failure_class: one of CLASSES.
        message: the root line, without stamps and shippers.
        line: its number in the file or text, from 1.
        location: "file.py:123 function" of an exception, where the log tells.
        advice: what to try, one line, or None.
    """

    failure_class: str
    message: str
    line: int | None
    location: str | None = None
    advice: str | None = None


LONGEST_MESSAGE = 600


def told(failure_class: str, text: str, number: int | None, location: str | None = None) -> Failure:
    """A failure of this class, with the advice of its class, or a better one for what the line says."""
    cure = next((cure for said, cure in _CURES.items() if said in text), ADVICE[failure_class])
    return Failure(failure_class, text[:LONGEST_MESSAGE], number, location, cure)
