"""Who does decode's all-reduce? Where it is not NCCL, no NCCL profile can have an effect there."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from quietgate.files import at_home
from quietgate.gate.plan import GatePlan
from quietgate.gate.stage import Evidence, Subject, tail

# SGLang's words when its custom kernel gives up (unsupported world size, PCIe, no peer access).
_CUSTOM_OFF = re.compile(r"Custom all-?reduce is disabled|Setup Custom all-?reduce failed", re.I)
_CUSTOM_SIZES = (2, 4, 6, 8)
# Arguments that hand small all-reduces to something else.
_OTHERS = {
    "enable_mscclpp": "MSCCL++",
    "enable_torch_symm_mem": "torch's symmetric memory",
    "enable_pcie_oneshot_allreduce": "the PCIe one-shot kernel",
    "enable_aiter_allreduce_fusion": "aiter's fusion",
}
_BYTES = {"float32": 4, "fp32": 4, "float": 4}


def reason(subject: Subject, said: Mapping[str, Any], decode_bytes: int | None) -> str | None:
    """Why decode's all-reduces do not reach NCCL, or None where they do.

    Args:
        said: what `inspect.nccl.read` made of the ranks' logs; its choices are the direct evidence.
        decode_bytes: the largest all-reduce of decode, where known.
    """
    effective = subject.effective
    by = by_arguments(effective, tail(subject.live.log, 8_000_000), subject.plan.ranks)
    if by is not None:
        what, partial = by
        if partial or not _carried(said, decode_bytes):
            return f"decode's all-reduces are done by {what}, not by NCCL: no profile can change them"
    if any(str(c["algorithm"]).startswith("SYMMETRIC") for c in said["choices"]):
        return "NCCL uses its symmetric-memory kernels, which have neither algorithm nor protocol"
    if said["choices"] and not _carried(said, decode_bytes):
        return "no all-reduce of decode's size reached NCCL, whatever does them"
    return None


def by_arguments(effective: Mapping[str, Any], log: str, ranks: int) -> tuple[str, bool] | None:
    """(what does the small all-reduces, whether NCCL may still see some) by arguments and log."""
    backend = effective.get("flashinfer_allreduce_fusion_backend")
    fused = effective.get("enable_flashinfer_allreduce_fusion") or backend not in (None, "", "none")
    if fused and not effective.get("enforce_disable_flashinfer_allreduce_fusion"):
        return "FlashInfer's fusion with the norm (SGLang turns it on by itself for some models)", True
    for name, what in _OTHERS.items():
        if effective.get(name):
            return what, False
    custom = effective.get("disable_custom_all_reduce") is False and ranks in _CUSTOM_SIZES
    if custom and not _CUSTOM_OFF.search(log):
        return "SGLang's custom kernel (--disable-custom-all-reduce would leave them to NCCL)", False
    return None


def _carried(said: Mapping[str, Any], decode_bytes: int | None) -> bool:
    """Whether NCCL planned an all-reduce as small as decode's (and larger than a flag or two)."""
    sizes = [c["bytes"] for c in said["choices"] if c["collective"] in (None, "AllReduce")]
    return any(64 < size <= (decode_bytes or 1 << 40) for size in sizes)


def decode_bytes(effective: Evidence, plan: GatePlan) -> int | None:
    """The largest all-reduce of decode: hidden size x bytes x tokens of the largest batch; None unknown.

    In a verify pass every request brings all its draft tokens.
    """
    config = _model_config(effective.get("model_path"))
    hidden = config.get("hidden_size")
    if not isinstance(hidden, int):
        return None
    dtype = str(effective.get("dtype") or "auto")
    if dtype == "auto":
        dtype = str(config.get("torch_dtype") or config.get("dtype") or "bfloat16")
    per_request = max(1, plan.draft_tokens or 1)
    return hidden * _BYTES.get(dtype, 2) * max(plan.concurrency, default=1) * per_request


def _model_config(model_path: Any) -> dict[str, Any]:
    """config.json of a local model; a multimodal one keeps the language model's under text_config."""
    if not isinstance(model_path, str):
        return {}
    try:
        found = json.loads((at_home(model_path) / "config.json").read_text())
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    text = found.get("text_config")
    return {**found, **text} if isinstance(text, dict) else found
