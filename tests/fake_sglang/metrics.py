"""The Prometheus text of `/metrics` (with --enable-metrics), in SGLang's names and labels."""

from __future__ import annotations

import os
from typing import Any

from fake_sglang.engine import Engine


def device_timer() -> bool:
    """Whether the launch asked for SGLang's stage timer."""
    value = os.environ.get("SGLANG_ENABLE_METRICS_DEVICE_TIMER", "0")
    return value.lower() in ("1", "true", "yes")


def text(engine: Engine, args: dict[str, Any], ranks: list[int]) -> str:
    """All counters and gauges now."""
    out: list[str] = []
    model = args["served_model_name"]

    def family(name: str, kind: str, help_text: str, rows: list[tuple[dict[str, str], float]]):
        out.append(f"# HELP sglang:{name} {help_text}")
        out.append(f"# TYPE sglang:{name} {kind}")
        for labels, value in rows:
            merged = sorted({"engine_type": "unified", "model_name": model, **labels}.items())
            inside = ",".join(f'{k}="{v}"' for k, v in merged)
            out.append(f"sglang:{name}{{{inside}}} {float(value)}")

    def per_rank(value: float, **labels: str) -> list[tuple[dict[str, str], float]]:
        base = {"moe_ep_rank": "0", "pp_rank": "0"}
        return [({**base, "tp_rank": str(r), **labels}, value) for r in ranks]

    c = engine.counters
    first = {"moe_ep_rank": "0", "pp_rank": "0", "tp_rank": "0"}
    family("num_running_reqs", "gauge", "Running requests.", [(first, len(engine.running))])
    family("num_queue_reqs", "gauge", "Waiting requests.", [(first, len(engine.waiting))])
    family("gen_throughput", "gauge", "Tokens per second.", [(first, engine.throughput)])
    for name, key in (
        ("prompt_tokens_total", "prompt"),
        ("generation_tokens_total", "generated"),
        ("num_requests_total", "requests"),
    ):
        by_kind = [({"is_streaming": "true"}, c[key] - c[f"whole_{key}"])]
        by_kind.append(({"is_streaming": "false"}, c[f"whole_{key}"]))
        family(name, "counter", f"Number of {key}.", [row for row in by_kind if row[1]])
    graph = "decode_none" if args["disable_cuda_graph"] else "decode_cuda_graph"
    passes = per_rank(c["decode"], mode=graph) + per_rank(c["prefill"], mode="prefill_none")
    family("cuda_graph_passes_total", "counter", "Forward passes by CUDA graph.", passes)
    if engine.steps:
        accept = engine.accept_length or 0.0
        family("spec_accept_length", "gauge", "Acceptance length.", [(first, accept)])
        rate = max(accept - 1, 0.0) / engine.steps
        family("spec_accept_rate", "gauge", "Acceptance rate.", [(first, rate)])
        family("spec_num_steps", "gauge", "Active steps.", [(first, engine.steps)])
        draft = args["speculative_num_draft_tokens"]
        family("spec_num_draft_tokens", "gauge", "Active draft tokens.", [(first, draft)])
        family("spec_verify_calls_total", "counter", "Verify calls.", [({}, c["verify"])])
    if device_timer():
        rows = []
        for category, seconds in engine.seconds.items():
            if seconds:
                rows += per_rank(seconds, category=category)
        family("forward_execution_seconds_total", "counter", "Busy seconds by category.", rows)
    return "\n".join(out) + "\n"
