"""Stage 8: decode runs in CUDA graphs, also at the benchmark's concurrency (GPU only).

SGLang counts its forward passes by mode (`sglang:cuda_graph_passes_total`, with --enable-metrics) and
writes `cuda graph: True` in its decode lines from 0.4.7 on. A batch larger than the largest captured
one runs without a graph, several times slower: that would measure something else than was meant.
"""

from __future__ import annotations

import re
from typing import Any

from quietgate.gate.logtail import LogTail
from quietgate.gate.stage import Evidence, NotApplicable, Proof, StageFailed, Subject
from quietgate.inspect.metrics import PASSES, Snapshot
from quietgate.measure import stages as metrics
from quietgate.study.flags import parse
from quietgate.wording import counted

_DECODE_LINE = re.compile(r"Decode batch.*?cuda graph: (True|False)")
_CAPTURED = re.compile(r"Capture (.*?)\s*cuda graph end", re.I)
_SIZES = re.compile(
    r"Capture (?:cuda|target (?:verify|decode) cuda) graph (?:begin|end).*?bs=\[([\d, ]+)\]", re.I
)


def prove(subject: Subject) -> Proof:
    """Count the decode passes of stage 7 with and without a graph, and check the captured sizes."""
    if subject.plan.device == "cpu":
        raise NotApplicable("a CPU has no CUDA graphs")
    asked = parse(subject.plan.argv[0])
    if asked.given("disable_cuda_graph") or asked.given("disable_decode_cuda_graph"):
        raise NotApplicable("CUDA graphs are switched off by the study itself")
    evidence = _counted(subject)
    log = LogTail(subject.live.log, subject.log_before_decode).new_text()
    marks = _DECODE_LINE.findall(log)
    evidence["log"] = {"with_graph": marks.count("True"), "without": marks.count("False")}
    whole = LogTail(subject.live.log).new_text()
    evidence["captured"] = sorted({name.strip().lower() or "decode" for name in _CAPTURED.findall(whole)})
    evidence["largest_batch"] = largest_batch(subject.effective, whole)
    evidence["draft_graph"] = _draft_graph(subject.plan.steps, evidence["captured"])
    without = evidence["without_graph"] or evidence["log"]["without"]
    with_graph = evidence["with_graph"] or evidence["log"]["with_graph"]
    if without:
        raise StageFailed(
            "cuda_graphs",
            f"{counted(without, 'decode pass')} ran without a CUDA graph, {with_graph} with one",
            evidence=evidence,
        )
    largest, most = evidence["largest_batch"], max(subject.plan.concurrency, default=1)
    if largest is not None and most > largest:
        raise StageFailed(
            "cuda_graphs",
            f"concurrency {most} is more than the largest captured batch {largest}: those passes would "
            "run without a graph; raise --cuda-graph-max-bs in every cell",
            evidence=evidence,
        )
    if not with_graph:
        raise NotApplicable("this release reports neither counts nor marks of graph passes", evidence)
    return Proof(evidence)


def _counted(subject: Subject) -> Evidence:
    """Decode passes since before stage 7, by SGLang's own counter; null where it has none."""
    before, after = subject.metrics_before_decode, metrics.snapshot(subject.live.base_url)
    if not isinstance(before, Snapshot) or before.why or after.why:
        return {"with_graph": None, "without_graph": None, "why": after.why}
    counts = {"with_graph": 0.0, "without_graph": 0.0}
    old = before.series(PASSES)
    seen = False
    for labels, value in after.series(PASSES).items():
        mode = dict(labels).get("mode", "")
        if not mode.startswith("decode"):
            continue
        seen = True
        kind = "without_graph" if mode.endswith("none") else "with_graph"
        # Ranks run the same batches: the largest count of any rank stands for all.
        counts[kind] = max(counts[kind], value - old.get(labels, 0.0))
    if not seen:
        return {"with_graph": None, "without_graph": None, "why": f"/metrics has no {PASSES}"}
    return {name: int(value) for name, value in counts.items()}


def largest_batch(effective: Evidence, log: str) -> int | None:
    """The largest batch size that decode was captured for, from the arguments, else from the log."""
    sizes: list[int] = []
    config = effective.get("cuda_graph_config")
    decode = config.get("decode") if isinstance(config, dict) else None
    if isinstance(decode, dict):
        sizes += _numbers(decode.get("bs"))
    for name in ("cuda_graph_bs_decode", "cuda_graph_bs"):
        sizes += _numbers(effective.get(name))
    for text in _SIZES.findall(log):
        sizes += [int(n) for n in text.split(",") if n.strip()]
    if not sizes:
        for name in ("cuda_graph_max_bs_decode", "cuda_graph_max_bs"):
            sizes += _numbers(effective.get(name))
    return max(sizes, default=None)


def _numbers(value: Any) -> list[int]:
    values = value if isinstance(value, list) else [value]
    return [v for v in values if isinstance(v, int) and not isinstance(v, bool)]


def _draft_graph(steps: int, captured: list[str]) -> str:
    """Whether the draft has a graph of its own, as a word with its reason."""
    if steps == 0:
        return "no draft without speculation"
    if any("draft" in name and "extend" not in name for name in captured):
        return "captured"
    if steps == 1:
        return "none: one step drafts in the extend pass"
    return "not seen in the log"
