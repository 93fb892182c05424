"""SGLang's Prometheus counters: a reading, the difference of two, what each stage timer means.

A reading keeps every sample exactly as served. Differences are taken sample by sample, so a counter
of one tensor-parallel rank is never mixed with another's; `None` marks what cannot be a difference
(the server restarted in between, the counter was not there).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median

from quietgate.errors import BadInput

Labels = frozenset[tuple[str, str]]
Key = tuple[str, Labels]
Rank = tuple[tuple[str, str], ...]

TIMER = "sglang:forward_execution_seconds_total"
PASSES = "sglang:cuda_graph_passes_total"

# Labels that tell one scheduler process from another; the engine's own processes carry none.
RANK_LABELS = ("dp_rank", "pp_rank", "tp_rank", "moe_ep_rank")

# The timer's category (a name in SGLang) -> the stage in this project's words. `extend` is SGLang's
# word for prefill; the draft model's catch-up after a verify is our `extend`.
STAGE_OF_CATEGORY: Mapping[str, str] = {
    "eagle_draft": "draft",
    "draft": "draft",
    "target_verify": "verify",
    "verify": "verify",
    "frozen_kv_draft": "draft",
    "eagle_draft_extend": "extend",
    "draft_extend": "extend",
    "draft_extend_v2": "extend",
    "decode": "decode",
    "extend": "prefill",
    "mixed": "prefill",
    "split_prefill": "prefill",
    "prebuilt": "prefill",
    "idle": "idle",
}

# The first release whose timer has the stage (read in the sources, `extend` seen in 0.5.16).
STAGE_SINCE: Mapping[str, tuple[int, int, int]] = {
    "decode": (0, 5, 11),
    "verify": (0, 5, 11),
    "prefill": (0, 5, 11),
    "draft": (0, 5, 12),
    "extend": (0, 5, 16),
}

# Counters of the whole engine worth keeping for a window, by the name they get in a record.
ENGINE_COUNTERS: Mapping[str, str] = {
    "spec_verify_calls": "sglang:spec_verify_calls_total",
    "generation_tokens": "sglang:generation_tokens_total",
    "prompt_tokens": "sglang:prompt_tokens_total",
    "cached_tokens": "sglang:cached_tokens_total",
    "requests": "sglang:num_requests_total",
}


@dataclass(frozen=True)
class Snapshot:
    """One reading of `/metrics`: every sample, or why there is none."""

    samples: Mapping[Key, float] = field(default_factory=dict)
    why: str | None = None
    read_at: float | None = None

    def series(self, name: str) -> dict[Labels, float]:
        """The samples called `name`, by their labels."""
        return {labels: value for (found, labels), value in self.samples.items() if found == name}

    def total(self, name: str) -> float | None:
        """The sum of the samples called `name` over all labels, or None where there is none."""
        values = list(self.series(name).values())
        return math.fsum(values) if values else None


def parse(text: str, where: str = "/metrics") -> Snapshot:
    """A reading from the Prometheus text format; BadInput where it is something else."""
    # Imported here: jobs that only look at stored readings need no parser.
    from prometheus_client.parser import text_string_to_metric_families

    samples: dict[Key, float] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if math.isfinite(sample.value):  # NaN is how a gauge says that it has no value
                    samples[sample.name, frozenset(sample.labels.items())] = float(sample.value)
    except Exception as e:  # the parser checks little: junk may end in any of its expressions
        what = str(e).encode("ascii", "backslashreplace").decode()[:80] or type(e).__name__
        raise BadInput(f"{where}: not in the Prometheus text format ({what})") from None
    if not samples and text.strip():
        raise BadInput(f"{where}: no Prometheus sample in it; is it the answer of /metrics?")
    return Snapshot(samples)


def rank_of(labels: Labels) -> Rank:
    """Which scheduler process a sample belongs to (empty for the engine's own processes)."""
    values = dict(labels)
    return tuple((name, values[name]) for name in RANK_LABELS if name in values)


def rank_name(rank: Rank) -> str:
    """A rank as a person writes it: `TP1`, `DP0 TP3`; `engine` for none."""
    short = {"dp_rank": "DP", "pp_rank": "PP", "tp_rank": "TP"}
    shown = [f"{short[k]}{v}" for k, v in rank if k in short and (k == "tp_rank" or v != "0")]
    return " ".join(shown) or "engine"


def _by_rank(snapshot: Snapshot, name: str, label: str) -> dict[Rank, dict[str, float]]:
    found: dict[Rank, dict[str, float]] = {}
    for labels, value in snapshot.series(name).items():
        kinds = found.setdefault(rank_of(labels), {})
        kind = dict(labels).get(label, "")
        kinds[kind] = kinds.get(kind, 0.0) + value
    return found


def stage_seconds(snapshot: Snapshot) -> dict[Rank, dict[str, float]]:
    """Seconds of the stage timer per rank and category."""
    return _by_rank(snapshot, TIMER, "category")


def passes(snapshot: Snapshot) -> dict[Rank, dict[str, float]]:
    """Forward passes per rank and mode (`decode_cuda_graph`, `decode_none`, `prefill_...`)."""
    return _by_rank(snapshot, PASSES, "mode")


def difference(
    before: Mapping[Rank, Mapping[str, float]], after: Mapping[Rank, Mapping[str, float]]
) -> tuple[dict[Rank, dict[str, float]], list[str]]:
    """after - before, rank by rank and kind by kind, and what went backwards.

    A kind that is new in `after` counts from zero: counters appear at their first increment.
    """
    problems: list[str] = []
    grown: dict[Rank, dict[str, float]] = {}
    for rank, kinds in after.items():
        earlier = before.get(rank, {})
        for kind, value in kinds.items():
            delta = value - earlier.get(kind, 0.0)
            if delta < 0:
                problems.append(f"{kind} of {rank_name(rank)} went backwards: the server restarted")
                continue
            grown.setdefault(rank, {})[kind] = delta
    lost = [rank_name(rank) for rank in before if rank not in after]
    if lost:
        problems.append(f"counters of {', '.join(lost)} are gone: the server restarted")
    return grown, problems


def counters(before: Snapshot, after: Snapshot) -> dict[str, float | None]:
    """Differences of the engine's counters; None where one is absent or went backwards."""
    found: dict[str, float | None] = {}
    for name, metric in ENGINE_COUNTERS.items():
        end = after.total(metric)
        delta = None if end is None else end - (before.total(metric) or 0.0)
        found[name] = delta if delta is not None and delta >= 0 else None
    for component, seconds in _cpu_seconds(after).items():
        found[f"{component}_cpu_s"] = seconds - _cpu_seconds(before).get(component, 0.0)
    return found


def _cpu_seconds(snapshot: Snapshot) -> dict[str, float]:
    series = snapshot.series("sglang:process_cpu_seconds_total")
    return {dict(labels).get("component", "process"): value for labels, value in series.items()}


def decode_passes(modes: Mapping[str, float]) -> float:
    """Decode forwards (under speculation: verify cycles) among passes by mode."""
    return math.fsum(n for mode, n in modes.items() if mode.startswith("decode"))


def middle(values: Iterable[float]) -> float | None:
    """The median over ranks, or None of nothing: no rank's number stands for the others."""
    numbers = list(values)
    return median(numbers) if numbers else None


def since(stage: str) -> str:
    """The first SGLang release whose stage timer has `stage`, as text."""
    return ".".join(str(n) for n in STAGE_SINCE[stage])


def version_tuple(version: str | None) -> tuple[int, ...] | None:
    """`0.5.16.post2` -> (0, 5, 16); None where the text is no version."""
    numbers: list[int] = []
    for part in (version or "").lstrip("v").split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers[:3]) if len(numbers) >= 2 else None


def timer_has(stage: str, version: str | None) -> bool | None:
    """Whether that SGLang release's timer has the stage; None for an unknown version or stage."""
    found = version_tuple(version)
    if found is None or stage not in STAGE_SINCE:
        return None
    return found >= STAGE_SINCE[stage]
