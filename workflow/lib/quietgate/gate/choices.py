"""Can two NCCL profiles differ on decode at all? NCCL's own choices say so, whatever was timed.

For every collective that it plans, NCCL logs bytes, algorithm, protocol and channels. Where two profiles
were served alike for every decode-size message, over the same transports, they ran the same code on decode,
and a difference of their tok/s is noise, whatever its size.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from quietgate.gate import switched_off
from quietgate.gate.evidence import of_stage
from quietgate.inspect import nccl
from quietgate.wording import counted

Record = Mapping[str, Any]
Cell = Mapping[str, Any]


def compare_profiles(
    records: Iterable[Record], cells: Iterable[Cell], streams: Sequence[int] = ()
) -> list[dict[str, Any]]:
    """Compare what NCCL chose between every two profiles at the same steps and axes.

    Args:
        records: gate records of the study.
        cells: {"id", "steps", "nccl", "axes"} of each cell.
        streams: the numbers of streams that the study times; the largest made `decode_bytes`.

    Returns:
        one entry per pair: steps, axes, a and b (profiles), largest_bytes, same (True: every decode-size
        all-reduce is served alike; False: some are not; None: the logs cannot tell), alike_at (numbers of
        streams whose messages are all served alike), why, different (the messages served otherwise),
        statement for a report.
    """
    by_id = {c["id"]: c for c in cells}
    found: dict[str, Mapping[str, Any]] = {}
    for record in records:
        evidence = evidence_of(record)
        if evidence is not None and record["cell"] in by_id:
            found.setdefault(record["cell"], evidence)
    groups: dict[str, list[Cell]] = {}
    for cell_id in found:
        cell = by_id[cell_id]
        key = f"{cell['steps']}/{sorted(cell['axes'].items())!r}"
        groups.setdefault(key, []).append(cell)
    out = []
    for group in groups.values():
        for a, b in itertools.combinations(sorted(group, key=lambda c: str(c["nccl"])), 2):
            names = str(a["nccl"]), str(b["nccl"])
            entry = _compare(found[a["id"]], found[b["id"]], *names, sorted(streams))
            out.append({"steps": a["steps"], "axes": a["axes"], **entry})
    return sorted(out, key=lambda e: (e["a"], e["b"], e["steps"]))


def sentences(records: Iterable[Record], cells: Iterable[Cell], streams: Sequence[int] = ()) -> list[str]:
    """What the comparison of every two profiles says, each once, with the steps it holds for."""
    steps_of: dict[str, list[int]] = {}
    for entry in compare_profiles(records, cells, streams):
        steps_of.setdefault(entry["statement"], []).append(entry["steps"])
    return [
        f"{statement} (steps {', '.join(map(str, sorted(set(steps))))})"
        for statement, steps in steps_of.items()
    ]


def profile_verdict(record: Record) -> str | None:
    """confirmed, contradicted or not_exercised, of a gate record; None where NCCL was not read."""
    evidence = evidence_of(record)
    return None if evidence is None else evidence.get("profile_verdict")


def evidence_of(record: Record) -> Mapping[str, Any] | None:
    """What the gate found of NCCL, with profile_verdict and why; None where it did not come to it.

    A record may be older than `switched_off`, so that is judged again.
    """
    evidence = of_stage(record, "nccl")
    if evidence is None or evidence.get("profile_verdict") != "confirmed":
        return evidence
    variables = [dict(v) for v in evidence.get("variables") or ()]
    switched_off.still_used(variables, evidence.get("transports") or {})
    why = switched_off.idle(variables)
    return {**evidence, "profile_verdict": "not_exercised", "why": why} if why else evidence


def _compare(
    a: Mapping[str, Any], b: Mapping[str, Any], name_a: str, name_b: str, streams: Sequence[int]
) -> dict[str, Any]:
    base: dict[str, Any] = {"a": name_a, "b": name_b, "largest_bytes": None, "different": [], "alike_at": []}
    idle = [
        f"{name}: {evidence.get('why')}"
        for name, evidence in ((name_a, a), (name_b, b))
        if evidence.get("profile_verdict") == "not_exercised"
    ]
    if idle:
        why = "; ".join(idle)
        return base | {"same": None, "why": why, "statement": f"not exercised: {why}"}
    ours, theirs = a.get("choices") or [], b.get("choices") or []
    if not ours or not theirs:
        why = "NCCL logged no choices (before 2.20, or without NCCL_DEBUG_SUBSYS=TUNING)"
        return base | {"same": None, "why": why, "statement": f"{name_a} and {name_b}: {why}"}
    limits = [e["decode_bytes"] for e in (a, b) if e.get("decode_bytes")]
    largest = max(limits) if limits else None
    found = base | {"largest_bytes": largest}
    ways = [" and ".join(sorted(e.get("transports") or ())) for e in (a, b)]
    if all(ways) and ways[0] != ways[1]:
        # Alike in algorithm, protocol and channels, data still goes another way, at another speed.
        why = f"by {ways[0]} against {ways[1]}"
        different = nccl.compare_choices(ours, theirs, largest)["different"]
        statement = f"{name_a} and {name_b} differ in transport: {why}"
        return found | {"same": False, "why": why, "different": different, "statement": statement}
    result, same = _up_to(ours, theirs, largest)
    # Of all sizes the most frequent may be prefill's, of decode's it is the layers'.
    difference = _difference(result["different"], [*ours, *theirs] if largest else ())
    sizes = "of decode's size" if largest else "of any size"
    served = f"alike ({_served(result['alike'])})"
    if largest is not None and same is False:
        for few in streams:
            # A decode message grows with the number of requests in its batch.
            fewer, alike = _up_to(ours, theirs, largest * few // streams[-1])
            if alike:
                found["alike_at"] = [*found["alike_at"], few]
                served = f"alike ({_served(fewer['alike'])})"
    if same is None:
        why = f"the two logs have no all-reduce {sizes} in common"
        statement = f"{name_a} and {name_b}: {why}"
    elif same:
        why = f"NCCL serves every collective {sizes} {served}"
        statement = f"{name_a} and {name_b} cannot differ on decode: {why}; a measured difference is noise"
    elif largest is None:
        # Prefill's messages are among these, and only the model's config.json tells how large decode's are.
        same = None
        why = f"{difference}; whether decode sends such messages is not known"
        statement = f"{name_a} and {name_b} are served differently: {why}"
    elif found["alike_at"]:
        most = found["alike_at"][-1]
        why = f"with more streams NCCL serves them differently, {difference}"
        statement = (
            f"{name_a} and {name_b} cannot differ on decode at {counted(most, 'stream')}: NCCL serves "
            f"every collective of that size {served}, a measured difference is noise; {why}"
        )
    else:
        why = difference
        statement = f"{name_a} and {name_b} differ on decode: {why}"
    return found | {"same": same, "why": why, "different": result["different"], "statement": statement}


def _up_to(
    ours: list[dict[str, Any]], theirs: list[dict[str, Any]], largest: int | None
) -> tuple[dict[str, Any], bool | None]:
    """The comparison of messages up to a size; whether all are alike, None without an all-reduce in it."""
    result = nccl.compare_choices(ours, theirs, largest)
    reduce = [x for x in (*result["alike"], *result["different"]) if x["collective"] in (None, "AllReduce")]
    return result, result["same"] if reduce else None


def _difference(different: Sequence[Mapping[str, Any]], choices: Iterable[Mapping[str, Any]]) -> str:
    """Of the messages served differently the most often planned one, the smallest of such; "" for none.

    The capture of a CUDA graph plans one for every all-reduce of a pass, so the most frequent are the
    layers' own; a server's housekeeping sends a few bytes now and then.
    """
    planned: Counter[tuple[str | None, int]] = Counter()
    for choice in choices:
        planned[choice["collective"], choice["bytes"]] += choice.get("count") or 0

    def rank(message: Mapping[str, Any]) -> tuple[int, int, bool]:
        key = message["collective"], message["bytes"]
        return -planned[key], message["bytes"], message["collective"] != "AllReduce"

    if not different:
        return ""
    one = min(different, key=rank)
    what = f"{one['collective'] or 'collective'} of {one['bytes']} bytes"
    return f"{what}: {_how(one['a'])} against {_how(one['b'])}"


def _served(alike: list[dict[str, Any]]) -> str:
    ways = {_how(entry["a"]) for entry in alike}
    return ", ".join(sorted(ways))


def _how(ways: Any) -> str:
    """[["RING", "LL", 1]] -> "RING LL on 1 channel"."""
    texts = []
    for algorithm, protocol, channels in ways or ():
        text = " ".join(str(x) for x in (algorithm, protocol) if x)
        texts.append(f"{text} on {counted(channels, 'channel')}" if channels else text)
    return " or ".join(texts)
