"""What SGLang makes of requested arguments by itself, and why: named, so that a difference has a reason.

Read in SGLang 0.4.6 to 0.5.23 (`server_args.py`, later `arg_groups/`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quietgate.study.flags import Flags

Arguments = Mapping[str, Any]

# SGLang's value where speculation is on and nothing was asked for.
MAX_RUNNING_WITH_SPECULATION = 48


def explanation(name: str, asked: Any, effective: Any, arguments: Arguments) -> str | None:
    """Why SGLang made `effective` of `asked`, or None where no rule of its own explains it."""
    speculates = arguments.get("speculative_algorithm") is not None
    steps = arguments.get("speculative_num_steps")
    match name:
        case "speculative_num_draft_tokens":
            if arguments.get("speculative_eagle_topk") == 1 and steps and effective == steps + 1:
                return "with topk 1 SGLang sets the draft tokens to steps + 1"
        case "speculative_eagle_topk" if effective == 1:
            return "SGLang sets topk to 1 where the page size or the attention backend asks for it"
        case "speculative_algorithm" if str(asked).upper() == "NEXTN":
            return f"NEXTN is SGLang's other name for {effective}"
        case "enable_mixed_chunk" if speculates and effective is False:
            return "SGLang turns mixed chunked prefill off where speculation is on"
        case "disable_overlap_schedule" if speculates and effective is True:
            return "this release or device has no overlap scheduler with speculation"
        case "attention_backend" if arguments.get("device") == "cpu":
            return "on a CPU SGLang replaces the attention backend; the split flags stay"
        case "chunked_prefill_size" | "schedule_conservativeness" if arguments.get("enable_dp_attention"):
            return "SGLang divides it among the data-parallel attention ranks"
        case "disable_custom_all_reduce" if effective is True:
            return "SGLang turns the custom all-reduce off here"
        case "disable_cuda_graph" if effective is True and arguments.get("device") == "cpu":
            return "there are no CUDA graphs on a CPU"
        case "page_size" | "kv_cache_dtype" | "disable_radix_cache" | "moe_runner_backend":
            return f"SGLang derives {name} from the model and the attention backend"
        case "tp_size" | "dp_size" | "ep_size":
            return None
    return None


def unasked(flags: Flags, effective: Arguments) -> list[dict[str, Any]]:
    """What SGLang set because speculation is on although nobody asked: [{argument, value, why}]."""
    if effective.get("speculative_algorithm") is None:
        return []
    found = []
    limit = effective.get("max_running_requests")
    if not flags.given("max_running_requests") and limit == MAX_RUNNING_WITH_SPECULATION:
        why = "SGLang's limit with speculation; without it there is none, so cells would differ"
        found.append({"argument": "max_running_requests", "value": limit, "why": why})
    if effective.get("disable_overlap_schedule") and not flags.given("disable_overlap_schedule"):
        why = "no overlap scheduler with speculation in this release or on this device"
        found.append({"argument": "disable_overlap_schedule", "value": True, "why": why})
    revision = effective.get("speculative_draft_model_revision")
    if revision == "main" and not flags.given("speculative_draft_model_revision"):
        why = "filled in for the draft model"
        found.append({"argument": "speculative_draft_model_revision", "value": revision, "why": why})
    return found
