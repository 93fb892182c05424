"""Stage 6: what NCCL itself says it was given, what it loaded, and what it chose.

An environment that reached a rank is not yet a setting that NCCL took: it may never read the variable,
read something else in a file, or never be asked, because another kernel does the all-reduce. NCCL's own
log (NCCL_DEBUG=INFO, subsystems INIT, ENV, TUNING) is the witness. It costs lines at communicator start and
one per planned collective: none when a CUDA graph is replayed, one on rank 0 for each eager one (prefill).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from quietgate.errors import BadInput
from quietgate.gate import bypass, switched_off
from quietgate.gate.ranks import SGLANG_ADDS
from quietgate.gate.stage import Evidence, NotApplicable, Proof, StageFailed, Subject
from quietgate.inspect import nccl
from quietgate.study.nccl_variables import TEXT, as_logged, is_nccl, read_integer

_COST = (
    "lines at communicator start and one per planned collective; none on graph replay, one on rank 0 per "
    "eager collective"
)
_LIBRARY = re.compile(r"\S*/libnccl\.so\S*")


def prove(subject: Subject) -> Proof:
    """Each variable of the profile: confirmed, contradicted, never read, of no effect, by each rank's log."""
    plan = subject.plan
    if plan.device == "cpu":
        raise NotApplicable("a CPU has no NCCL", _not_exercised("a CPU has no NCCL"))
    if plan.ranks == 1:
        why = "one rank has nobody to talk to: NCCL carries nothing"
        raise NotApplicable(why, _not_exercised(why, library=_libraries(subject)))
    logs = _logs(subject)
    if not logs:
        level = plan.env[0].get("NCCL_DEBUG", "") if plan.env else ""
        why = "no rank left an NCCL log"
        if level.upper() not in ("INFO", "TRACE"):
            why += f": the study sets NCCL_DEBUG={level}"
            raise NotApplicable(why, _not_exercised(why, library=_libraries(subject)))
        raise StageFailed("nccl_profile", why, evidence=_not_exercised(why))
    try:
        said = nccl.read(logs)
    except BadInput as e:
        raise StageFailed("nccl_profile", str(e), evidence=_not_exercised(str(e))) from None
    wanted, unset = asked(subject)
    logged = {f["file"]: f["set_by_environment"] for f in said["files"]}
    variables = judge(wanted, unset, logged, _added(subject))
    _disagreements(variables, said["conflicting_values"])
    switched_off.still_used(variables, said["transports"])
    evidence: Evidence = {
        "profile": plan.profile,
        "variables": variables,
        "library": _libraries(subject),
        "decode_bytes": bypass.decode_bytes(subject.effective, plan),
        "cost": _COST,
        "ranks": said["files"],
        **{name: said[name] for name in _KEPT},
    }
    verdict, why = conclude(variables, bypass.reason(subject, said, evidence["decode_bytes"]), said)
    heard = len({process for file in said["files"] for process in file["processes"]})
    silent = f"only {heard} of {plan.ranks} ranks left an NCCL log" if 0 < heard < plan.ranks else None
    if silent and verdict == "confirmed":
        why = "; ".join([silent, *_remarks(variables)])
    evidence.update(profile_verdict=verdict, why=why)
    lines = [f"{v['name']}: {v['why']}" for v in variables if v["verdict"] == "contradicted"]
    if verdict == "contradicted":
        raise StageFailed("nccl_profile", why, lines, evidence)
    plain = verdict == "confirmed" and not silent and not _remarks(variables)
    return Proof(evidence, None if plain else why)


_KEPT = (
    "versions",
    "set_by_environment",
    "channels",
    "channel_counts",
    "transports",
    "enabled",
    "choices",
    "algorithms",
    "protocols",
    "tuner_plugin",
    "plugins",
    "invalid_values",
    "warnings",
    "init_start_count",
    "init_complete_count",
)


def asked(subject: Subject) -> tuple[dict[str, str], frozenset[str]]:
    """NCCL's variables that the launch sets (its log apart), and those it wants absent."""
    plan = subject.plan
    given = plan.env[0] if plan.env else {}
    wanted = {n: v for n, v in given.items() if is_nccl(n) and not n.startswith("NCCL_DEBUG")}
    unset = {n for n in (*plan.unset, *plan.profile_unset) if is_nccl(n)}
    return wanted, frozenset(unset)


def judge(
    wanted: Mapping[str, str],
    unset: frozenset[str],
    logged: Mapping[str, Mapping[str, str]],
    added: Collection[str] = (),
) -> list[Evidence]:
    """A verdict for each variable from what every rank's log names as set by environment.

    Args:
        wanted: what the launch sets; `unset`: what is to be absent.
        logged: file (a rank) -> NCCL's variables and values in it.
        added: variables of `unset` that SGLang adds by itself: a remark, no contradiction.
    """
    found = []
    for name, value in wanted.items():
        values = {file: seen[name] for file, seen in logged.items() if name in seen}
        wrong = {file: v for file, v in values.items() if not equal(name, value, v)}
        if wrong:
            file, other = next(iter(wrong.items()))
            verdict, why = "contradicted", f"asked for {value}, NCCL says {other} ({file})"
        elif len(values) == len(logged):
            verdict, why = "confirmed", None
        elif values:
            verdict, why = "confirmed", f"by {len(values)} of {len(logged)} ranks, the others never read it"
        else:
            verdict, why = "never_read", f"{value} was given, NCCL never read it here"
        found.append({"name": name, "asked": value, "verdict": verdict, "why": why})
    for name in sorted(unset):
        values = {file: seen[name] for file, seen in logged.items() if name in seen}
        verdict, why = "confirmed", None
        if values:
            file, other = next(iter(values.items()))
            why = f"was to be absent, NCCL read {other} ({file})"
            if name in added:
                why += "; SGLang adds it by itself"
            else:
                verdict = "contradicted"
        found.append({"name": name, "asked": None, "verdict": verdict, "why": why})
    return found


def _disagreements(variables: list[Evidence], conflicts: Mapping[str, list[str]]) -> None:
    """Contradict what only some ranks of one log confirm: where all of them write to standard output."""
    for one in variables:
        others = [v for v in conflicts.get(one["name"], ()) if not equal(one["name"], one["asked"] or "", v)]
        if one["verdict"] == "confirmed" and one["asked"] is not None and others:
            one.update(
                verdict="contradicted", why=f"asked for {one['asked']}, some rank's NCCL says {others[0]}"
            )


def equal(name: str, asked: str, logged: str) -> bool:
    """Whether NCCL logged the value that was asked for; it prints numbers in decimal."""
    if name in TEXT:
        return as_logged(name, asked) == as_logged(name, logged)
    return read_integer(asked)[0] == read_integer(logged)[0]


def conclude(variables: list[Evidence], bypassed: str | None, said: Mapping[str, Any]) -> tuple[str, str]:
    """The profile's verdict and its reason."""
    by = {v: [x for x in variables if x["verdict"] == v] for v in ("contradicted", "never_read")}
    if by["contradicted"]:
        one = by["contradicted"][0]
        return "contradicted", f"{one['name']}: {one['why']}"
    if not said["init_complete_count"]:
        return "not_exercised", "no NCCL communicator was completed"
    if bypassed:
        return "not_exercised", bypassed
    if idle := switched_off.idle(variables):
        return "not_exercised", idle
    given = [v for v in variables if v["asked"] is not None]
    if given and len(by["never_read"]) == len(given):
        names = ", ".join(v["name"] for v in given)
        return "not_exercised", f"NCCL never read {names} on this machine"
    remarks = _remarks(variables)
    if remarks:
        return "confirmed", "; ".join(remarks)
    return "confirmed", "every variable of the profile is named by NCCL in every rank"


def _remarks(variables: list[Evidence]) -> list[str]:
    return [f"{v['name']}: {v['why']}" for v in variables if v["why"]]


def _not_exercised(why: str, **more: Any) -> Evidence:
    return {"profile_verdict": "not_exercised", "why": why, "ranks": [], "choices": [], **more}


def _added(subject: Subject) -> frozenset[str]:
    """What SGLang added to some rank, of the variables it is known to add."""
    added = {name for rank in subject.ranks for name in rank.get("added_by_sglang", ())}
    return SGLANG_ADDS & added


def _logs(subject: Subject) -> list[Path]:
    """The NCCL logs of the ranks that run now; of all processes where pids do not match."""
    logs = [p for p in sorted(subject.live.instance_dir.glob("nccl.*.log")) if p.stat().st_size]
    pids = {str(r["pid"]) for r in subject.ranks}
    ours = [p for p in logs if p.name.split(".")[-2] in pids]
    if ours or logs:
        return ours or logs
    # A file that cannot be opened sends NCCL to standard output, without a word.
    try:
        nccl.read([subject.live.log])
    except BadInput:
        return []
    return [subject.live.log]


def _libraries(subject: Subject) -> list[str] | None:
    """The NCCL libraries mapped into the ranks; what runs, whatever torch was built with."""
    found = set()
    for rank in subject.ranks:
        try:
            found |= set(_LIBRARY.findall(Path(f"/proc/{rank['pid']}/maps").read_text()))
        except OSError:
            continue
    return sorted(found) or None
