"""Effective arguments that differ between cells although nobody asked for it.

A speculative cell and its baseline are comparable only if SGLang ran both alike but for what the grid
varies. Whatever else differs is a drift: it is listed with the cells, and `strict` fails the study.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from quietgate.gate.evidence import of_stage
from quietgate.study.flags import RENAMED, canonical

Record = Mapping[str, Any]

# Follow from the number of steps, which every grid varies.
BY_STEPS = frozenset(
    {
        "speculative_algorithm",
        "speculative_draft_model_path",
        "speculative_draft_model_revision",
        "speculative_eagle_topk",
        "speculative_num_draft_tokens",
        "speculative_num_steps",
    }
)
# Differ from launch to launch by their nature: where it runs, when, and seeds drawn at random.
_PER_LAUNCH = frozenset(
    {
        "host",
        "port",
        "nccl_port",
        "dist_init_addr",
        "random_seed",
        "grpc_port",
        "gated_launch_port",
        "forward_pass_metrics_ipc_name",
        "crash_dump_folder",
        "base_gpu_id",
        "node_rank",
        "launch_command",
        "startup_time",
        "max_total_num_tokens",
        "max_req_input_len",
    }
)
# What SGLang makes of speculation itself, in releases and on devices where it has no choice.
_GRAPHS = "SGLang captures other batch sizes where speculation is on; --cuda-graph-bs pins them"
_FOLLOWS = {
    "disable_overlap_schedule": (
        "no overlap scheduler with speculation in this release or on this device, and the baseline keeps "
        "its own"
    ),
    "cuda_graph_bs": _GRAPHS,
    "cuda_graph_bs_decode": _GRAPHS,
    "cuda_graph_config": _GRAPHS,
}
# The axis -> arguments that are made of it.
_MADE_OF = {
    "cuda_graph_max_bs": ("cuda_graph_bs", "cuda_graph_bs_decode", "cuda_graph_config"),
    "cuda_graph_max_bs_decode": ("cuda_graph_bs_decode", "cuda_graph_config"),
    "cuda_graph_bs": ("cuda_graph_max_bs", "cuda_graph_max_bs_decode", "cuda_graph_config"),
    "cuda_graph_bs_decode": ("cuda_graph_max_bs_decode", "cuda_graph_config"),
    "disable_cuda_graph": ("cuda_graph_config", "disable_decode_cuda_graph"),
    "mem_fraction_static": ("max_total_tokens",),
    "model_path": ("served_model_name", "tokenizer_path"),
}
_ABSENT = "(not reported)"


def declared_arguments(config: Mapping[str, Any]) -> frozenset[str]:
    """The effective arguments that a study varies on purpose: its axes, and its speculative flags,
    which are on no command line at 0 steps."""
    names = set(BY_STEPS) | {canonical(flag) for flag in config["server"]["speculative"]["args"]}
    for axis in config["grid"]["axes"].values():
        if "flag" in axis:
            name = canonical(axis["flag"])
            names |= {name, *RENAMED.get(name, ()), *_MADE_OF.get(name, ())}
    return frozenset(names)


def drift(records: Iterable[Record], declared: Collection[str]) -> list[dict[str, Any]]:
    """Arguments with more than one effective value over all gates, but for the declared ones.

    Args:
        records: gate records; those without a proved stage `arguments` say nothing.
        declared: see `declared_arguments`.

    Returns:
        [{"argument", "values": [{"value", "cells": ["cell/launch", ...]}], "within_cell": bool}], the
        most common value first; `within_cell` says that launches of one cell differ too. What only
        follows speculation being on is not among them: see `consequences`.
    """
    return [e for e in differences(records, declared) if e["follows_speculation"] is None]


def consequences(records: Iterable[Record], declared: Collection[str]) -> list[dict[str, Any]]:
    """Differences that follow speculation itself: SGLang offers no way around them, or none without harm.

    One value in every cell without speculation, another in every cell with it, and a known reason:
    `follows_speculation`. To pin the baseline alike would slow it down, so these are told, not refused.
    """
    return [e for e in differences(records, declared) if e["follows_speculation"] is not None]


def differences(records: Iterable[Record], declared: Collection[str]) -> list[dict[str, Any]]:
    """All undeclared differences; the entries of `drift` and `consequences`."""
    seen: dict[str, dict[str, tuple[Any, list[tuple[str, str, bool]]]]] = {}
    gates = [(r["cell"], r["launch"], e) for r in records if (e := effective_of(r)) is not None]
    names = {name for _, _, effective in gates for name in effective}
    for name in sorted(names - set(declared) - _PER_LAUNCH):
        by_value = seen.setdefault(name, {})
        for cell, launch, effective in gates:
            value = effective.get(name, _ABSENT)
            speculates = effective.get("speculative_algorithm") is not None
            key = json.dumps(value, sort_keys=True, default=str)
            by_value.setdefault(key, (value, []))[1].append((cell, launch, speculates))
    return [_entry(name, by_value) for name, by_value in seen.items() if len(by_value) > 1]


def _entry(name: str, by_value: Mapping[str, tuple[Any, list[tuple[str, str, bool]]]]) -> dict[str, Any]:
    groups = sorted(by_value.values(), key=lambda group: -len(group[1]))
    cells = [{cell for cell, _, _ in places} for _, places in groups]
    kinds = [{speculates for _, _, speculates in places} for _, places in groups]
    follows = len(groups) == 2 and all(len(k) == 1 for k in kinds) and kinds[0] != kinds[1]
    return {
        "argument": name,
        "values": [
            {"value": value, "cells": [f"{cell}/{launch}" for cell, launch, _ in places]}
            for value, places in groups
        ],
        "within_cell": len(set().union(*cells)) < sum(map(len, cells)),
        "follows_speculation": _FOLLOWS.get(name) if follows else None,
    }


def effective_of(record: Record) -> Mapping[str, Any] | None:
    """The effective arguments in a gate record, or None where they were not read."""
    effective = (of_stage(record, "arguments") or {}).get("effective")
    return effective if isinstance(effective, dict) and effective else None


def version_of(record: Record) -> str | None:
    """The release that the server of a gate record named, or None."""
    version = (of_stage(record, "arguments") or {}).get("version")
    return str(version) if version else None


def describe(entry: Mapping[str, Any]) -> str:
    """One drift as a sentence for a report."""
    parts = [f"{g['value']!r} in {_named(g['cells'])}" for g in entry["values"]]
    why = entry.get("follows_speculation")
    return f"{entry['argument']}: " + ", ".join(parts) + (f" ({why})" if why else "")


def _named(cells: list[str]) -> str:
    return ", ".join(cells) if len(cells) <= 3 else f"{cells[0]} and {len(cells) - 1} more"
