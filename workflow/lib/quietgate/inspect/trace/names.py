"""What kernel and span names say, and no more.

A kernel's name tells NCCL from a custom or fused all-reduce, which collective it is, and Tree from
anything else. It never tells the protocol: since NCCL 2.18 every all-reduce kernel is called
`..._RING_LL` or `..._TREE_LL`, whatever protocol (or NVLS, or CollNet) runs inside.
"""

from __future__ import annotations

import re
from functools import lru_cache

# Most specific first: NCCL's symmetric kernels and RCCL's generic one also match plain NCCL.
_CLASSES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("nccl_symmetric", re.compile(r"\bncclSymk?(?:Dev)?Kernel")),
    ("rccl_generic", re.compile(r"\bnccl(?:Dev)?Kernel(?:Debug)?_Generic|\brcclGenericKernel")),
    ("nccl", re.compile(r"\bnccl(?:Dev)?Kernel")),
    ("msccl", re.compile(r"\bmscclKernel")),
    ("mscclpp", re.compile(r"mscclpp", re.IGNORECASE)),
    ("custom_all_reduce", re.compile(r"\baiter::\w*allreduce")),
    (
        "flashinfer",
        re.compile(
            r"allreduce_fusion|trtllm_(?:mnnvl_)?allreduce|moe\w*_allreduce\w*|"
            r"(?:one|two)shot\w*lamport|lamport\w*allreduce",
            re.IGNORECASE,
        ),
    ),
    (
        "torch_symmetric_memory",
        re.compile(r"multimem_\w*(?:reduce|gather)|\b(?:one|two)_shot_all_reduce|symm_mem::"),
    ),
    (
        "custom_all_reduce",
        re.compile(
            r"cross_device_reduce|all_reduce_[12]shot_(?:push|pull)|reduce_scatter_cross_device|"
            r"allreduce_prototype|quickreduce"
        ),
    ),
    # Of experts' tokens: TensorRT-LLM's kernels (FlashInfer has them too), AMD's MoRI.
    ("moe_all_to_all", re.compile(r"\bmoeA2A\w*Kernel|\bmori::moe::|\bEp(?:Dispatch|Combine)\w*Kernel")),
    ("deep_ep", re.compile(r"\bdeep_ep::|nvshmem\w*_kernel")),
)
# Characters of a name that are looked at: its arguments may go on for ever.
_LONGEST = 4096

_COLLECTIVE = re.compile(
    r"_(AllReduce|AllGatherV|AllGather|ReduceScatter|Broadcast|Reduce|SendRecv|AlltoAll\w*?)(?=_|\(|$)"
)

# Spans of the scheduler's process. Those of `_INNER` mark model forwards that may run inside one of
# `_OUTER`; they stand in for it only in releases that lack the outer span.
_OUTER = {"draft": "draft", "draft_extend": "draft_extend", "verify": "verify"}
_STEP = re.compile(r"step\[([A-Z_0-9]+)(?=[ \]])")
_STEP_STAGE = {
    "TARGET_VERIFY": "verify",
    "VERIFY": "verify",
    "DECODE": "decode",
    "EXTEND": "prefill",
    "PREFILL": "prefill",
    "MIXED": "prefill",
    "SPLIT_PREFILL": "prefill",
}
_INNER = {"DRAFT": "draft", "DRAFT_EXTEND": "draft_extend", "DRAFT_EXTEND_V2": "draft_extend"}

STAGES = ("draft", "verify", "draft_extend", "decode", "prefill")


@lru_cache(maxsize=65536)
def communication_class(kernel: str) -> str | None:
    """Which library's communication kernel this is, or None for a computing kernel."""
    for name, pattern in _CLASSES:
        if pattern.search(kernel, 0, _LONGEST):
            return name
    return None


def collective(kernel: str) -> str | None:
    """The collective a kernel's name states; None where it does not (RCCL's generic kernel)."""
    found = _COLLECTIVE.search(kernel)
    if found:
        return found.group(1)
    fused = communication_class(kernel) in ("custom_all_reduce", "flashinfer")
    return "AllReduce" if fused else None


def tree(kernel: str) -> bool | None:
    """Whether an NCCL kernel runs Tree; None where the name cannot tell."""
    if communication_class(kernel) != "nccl":
        return None
    return True if "_TREE" in kernel else (False if "_RING" in kernel else None)


@lru_cache(maxsize=65536)
def short(kernel: str) -> str:
    """A kernel's name without its argument list: `ncclDevKernel_AllReduce_Sum_bf16_RING_LL`."""
    name = kernel.removeprefix("void ").replace("(anonymous namespace)::", "")
    depth = 0
    for i, character in enumerate(name):
        if character == "<":
            depth += 1
        elif character == ">":
            depth -= 1
        elif character == "(" and depth <= 0:
            return name[:i]
    return name


@lru_cache(maxsize=65536)
def span(name: str) -> tuple[str, bool] | None:
    """(stage, whether the span stands on its own) of a span's name, or None for other spans."""
    if name in _OUTER:
        return _OUTER[name], True
    found = _STEP.match(name)
    if not found:
        return None
    label = found.group(1)
    if label in _INNER:
        return _INNER[label], False
    return (_STEP_STAGE[label], True) if label in _STEP_STAGE else None
