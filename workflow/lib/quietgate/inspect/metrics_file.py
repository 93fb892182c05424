"""Answers of /metrics in files: saved or pasted, one reading or several, of one server or of several."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from quietgate.errors import BadInput
from quietgate.inspect.lines import read_text
from quietgate.inspect.metrics import (
    STAGE_OF_CATEGORY,
    Snapshot,
    counters,
    decode_passes,
    middle,
    parse,
    passes,
    rank_name,
    stage_seconds,
)

# What may stand before the answer: a command, curl's progress, HTTP's headers, a fence.
_BEGINNING = re.compile(r"^(?:# (?:HELP|TYPE|UNIT) |[A-Za-z_]\w*[:_]\w+(?:\{| [-+\dNI]))", re.M)
_FENCE = re.compile(r"^[ \t]*(?:```|~~~).*$", re.M)
_SERIES = re.compile(r"([A-Za-z_:][\w:]*(?:\{.*\})?)\s+\S")
# Labels by which a collector or a router tells the servers apart that it asked.
_SERVER_LABELS = ("instance", "pod", "worker_addr")
_GAUGES = (
    "spec_accept_length",
    "spec_accept_rate",
    "spec_num_steps",
    "spec_num_draft_tokens",
    "gen_throughput",
    "token_usage",
)


def read(path: Path) -> dict[str, Any]:
    """What `inspect metrics FILE` prints: stage seconds and passes by rank, engine counters, notes.

    Of several readings in a file the last one counts. BadInput for what is no answer of /metrics, or has
    no metric of SGLang in it.
    """
    text = read_text(path, "/metrics answer")
    if not text.strip():
        raise BadInput(f"{path}: nothing but blank lines; save the answer of /metrics again")
    readings = _readings(_FENCE.sub("", text[_start(text) :]))
    snapshot, notes = _parsed(readings[-1], str(path))
    if len(readings) > 1:
        notes.append(f"{len(readings)} readings in this file: shown is the last")
    snapshot = _sglangs(snapshot, path)
    servers = _servers(snapshot)
    if named := len(servers.keys() - {""}):
        notes.append(f"samples of {named} servers: counters are sums over them, gauges medians")
    found: dict[str, Any] = {"ranks": [], "seconds": {}, "passes": {}, "ms_per_decode_pass": {}}
    for name, one in servers.items():
        _add_ranks(found, f"{name} " if name else "", one)
    return found | {
        "counters": counters(Snapshot(), snapshot),
        "gauges": {name: middle(snapshot.series(f"sglang:{name}").values()) for name in _GAUGES},
        "notes": notes,
    }


def _start(text: str) -> int:
    found = _BEGINNING.search(text)
    return found.start() if found else 0


def _readings(text: str) -> list[str]:
    """The text cut where a series comes again: the next reading begins there, with its comments."""
    readings: list[list[str]] = [[]]
    seen: set[str] = set()
    comments = 0
    for line in text.splitlines(keepends=True):
        found = _SERIES.match(line)
        if found and found[1] in seen:
            at = len(readings[-1]) - comments
            readings[-1], following = readings[-1][:at], readings[-1][at:]
            readings.append(following)
            seen.clear()
        if found:
            seen.add(found[1])
        comments = comments + 1 if line.startswith("#") else 0
        readings[-1].append(line)
    return ["".join(lines) for lines in readings]


def _parsed(text: str, where: str) -> tuple[Snapshot, list[str]]:
    """A reading, without its last line where the file's end cuts that."""
    try:
        return parse(text, where), []
    except BadInput:
        whole, _, rest = text.rpartition("\n")
        if not rest or not whole:
            raise
        return parse(whole + "\n", where), ["the last line is cut: it is left out"]


def _sglangs(snapshot: Snapshot, path: Path) -> Snapshot:
    """The reading under SGLang's own names: collectors that take no colon write sglang_ for sglang:."""
    samples = {
        ("sglang:" + name.removeprefix("sglang_") if name.startswith("sglang_") else name, labels): value
        for (name, labels), value in snapshot.samples.items()
    }
    if not any(name.startswith("sglang:") for name, _ in samples):
        others = sorted({re.split("[:_]", name)[0] for name, _ in samples})[:3]
        raise BadInput(
            f"{path}: no metric of SGLang (sglang:...) in it, its names begin with {', '.join(others)}; "
            "was the server itself asked?"
        )
    return Snapshot(samples)


def _servers(snapshot: Snapshot) -> dict[str, Snapshot]:
    """The samples by the server that they are of, by name; all of them where no label tells."""
    servers: dict[str, dict[Any, float]] = {}
    for (name, labels), value in snapshot.samples.items():
        if name.startswith("sglang:"):
            found = dict(labels)
            server = next((found[label] for label in _SERVER_LABELS if label in found), "")
            servers.setdefault(server, {})[name, labels] = value
    if len(servers.keys() - {""}) < 2:
        return {"": snapshot}
    return {name: Snapshot(samples) for name, samples in sorted(servers.items())}


def _add_ranks(found: dict[str, Any], server: str, snapshot: Snapshot) -> None:
    seconds, modes = stage_seconds(snapshot), passes(snapshot)
    for rank in sorted(set(seconds) | set(modes)):
        name = server + rank_name(rank)
        found["ranks"].append(name)
        if rank in seconds:
            found["seconds"][name] = seconds[rank]
        if rank in modes:
            found["passes"][name] = modes[rank]
        cycles = decode_passes(modes.get(rank, {}))
        if cycles and rank in seconds:
            per_pass = found["ms_per_decode_pass"].setdefault(name, {})
            for category, s in seconds[rank].items():
                stage = STAGE_OF_CATEGORY.get(category, category)
                if stage not in ("prefill", "idle"):
                    per_pass[stage] = per_pass.get(stage, 0.0) + 1000.0 * s / cycles
