"""Which rank of what a trace is: from torch's own header, else from the file's name."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from quietgate.inspect.trace.stream import TraceFile

_RANK_IN_NAME = re.compile(r"(?:^|-)(TP|DP|PP|EP)-(\d+)(?=[-.])")
# Of other tools: vLLM's "dp0_pp0_tp1_dcp0_ep1_rank1.<time>", trainers' "host_rank3" or "rank-2_trace".
_OTHERS_RANK_IN_NAME = re.compile(r"(?i)(?:^|[-_.])rank[-_]?(\d+)(?=[-_.])")
_PART_IN_NAME = re.compile(r"-(EXTEND|DECODE|PREFILL)(?=[.-])")


def identity(trace: TraceFile) -> dict[str, Any]:
    """Rank, part, world size, GPUs and libraries of a trace whose blocks were read; None for the unknown."""
    info = trace.meta.get("distributedInfo")
    if isinstance(info, str):
        try:
            info = msgspec.json.decode(info.replace("'", '"'))
        except msgspec.DecodeError:
            info = None
    info = info if isinstance(info, dict) else {}
    in_name = dict(_RANK_IN_NAME.findall(trace.path.name))
    part = _PART_IN_NAME.search(trace.path.name)
    rank = info.get("rank")
    if not isinstance(rank, int):
        other = _OTHERS_RANK_IN_NAME.search(trace.path.name)
        rank = int(in_name["TP"]) if "TP" in in_name else int(other[1]) if other else None
    devices = trace.meta.get("deviceProperties")
    devices = devices if isinstance(devices, list) else []
    gpus = sorted({str(d["name"]) for d in devices if isinstance(d, dict) and "name" in d})
    return {
        "file": trace.path.name,
        "rank": rank,
        "part": part.group(1).lower() if part else None,
        "world_size": info.get("world_size"),
        "gpus": gpus,
        # The NCCL that torch was built with. What ran may be another (a preloaded library): only
        # NCCL's own log and the process's maps know.
        "nccl_torch_was_built_with": info.get("nccl_version"),
        "with_stack": bool(trace.meta.get("with_stack")),
        "json_mb": trace.json_bytes / 1e6,
    }
