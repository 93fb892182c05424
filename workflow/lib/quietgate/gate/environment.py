"""Stage 5: the variables reached every rank, those to be absent are absent, and nothing leaks in."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from quietgate.gate import ranks
from quietgate.gate.ranks import Rank
from quietgate.gate.stage import POLL_S, Evidence, Proof, StageFailed, Subject
from quietgate.study.nccl_variables import is_nccl
from quietgate.wording import counted

# Variables that SGLang overwrites whatever it was given (0.4.6 to 0.5.23).
_OVERWRITTEN = {
    "CUDA_DEVICE_MAX_CONNECTIONS": "SGLang always sets it to 8",
    "NCCL_CUMEM_ENABLE": "SGLang overwrites it: before 0.5.6 always, later with --enable-symm-mem",
    "NCCL_NVLS_ENABLE": "SGLang overwrites it: before 0.5.2 always, later with --enable-nccl-nvls",
    "NCCL_ALGO": "SGLang overwrites it with --enable-deterministic-inference",
    "NCCL_MAX_NCHANNELS": "SGLang overwrites it with --enable-deterministic-inference",
    "NCCL_MIN_NCHANNELS": "SGLang overwrites it with --enable-deterministic-inference",
}
_SYSTEM_FILE = Path("/etc/nccl.conf")
_PLACEHOLDER = re.compile(r"\{(?:node_port|dist_port|inherited)\}")
_RANKS_WAIT_S = 5.0


def prove(subject: Subject) -> Proof:
    """Read /proc/<pid>/environ of every rank and compare it with what the cell asked for."""
    plan = subject.plan
    found = _all_ranks(subject)
    nodes = {root.pid: i for i, root in enumerate(subject.roots)}
    evidence: Evidence = {"ranks": [], "expected_ranks": plan.ranks}
    lines: list[str] = []
    notes: list[str] = []
    for rank in found:
        node = min(nodes.get(rank.launcher, 0), len(plan.env) - 1)
        wanted = _filled(plan.env[node], subject) if plan.env else {}
        added: dict[str, str] = {}
        before, _ = ranks.environ_of(rank.launcher)
        if rank.environ is not None and before is not None and rank.pid != rank.launcher:
            added = ranks.difference(before, rank.environ)
        unset = _unset(subject)
        one = compare(rank, wanted, unset, plan.profile_set, plan.axis_variables, added)
        one["added_by_sglang"] = added
        if plan.device != "cpu" and rank.environ is not None:
            files = leaks(rank.environ)
            one["config_files"] = files
            lines += _leaked(rank, files, unset, plan.profile_set)
            notes += [
                f"{file['path']} gives NCCL {name}={value}"
                for file in files
                for name, value in file["adds"].items()
            ]
        evidence["ranks"].append(one)
        lines += [f"{rank.title} (pid {rank.pid}): {p}" for p in one["problems"]]
        notes += one["overwritten"]
    subject.ranks = evidence["ranks"]
    if len(found) != plan.ranks:
        titles = [f"{r.title} (pid {r.pid})" for r in found]
        raise StageFailed(
            "environment",
            f"{counted(plan.ranks, 'rank')} asked for, {counted(len(found), 'scheduler process')} under our"
            " launcher",
            titles,
            evidence,
        )
    if lines:
        raise StageFailed("environment", lines[0], lines, evidence)
    return Proof(evidence, "; ".join(dict.fromkeys(notes)) or None)


def compare(
    rank: Rank,
    wanted: Mapping[str, str],
    unset: frozenset[str],
    profile_set: Mapping[str, str],
    axis_variables: frozenset[str] = frozenset(),
    added: Collection[str] = (),
) -> Evidence:
    """One rank's environment against what was asked for.

    A variable that SGLang is known to overwrite is a remark, but a problem where the NCCL profile or an
    axis of the grid sets it: then the cell is not what its name says. `added` are the variables that the
    rank has and its launcher had not.
    """
    base: Evidence = {
        "pid": rank.pid,
        "title": rank.title,
        "place": rank.place,
        "problems": [],
        "overwritten": [],
        "variables": {},
    }
    if rank.environ is None:
        base["problems"].append(f"its environment is unknown: {rank.why}")
        return base
    environ = rank.environ
    # The profile's own variables first: the first problem is the one that is shown.
    for name, value in sorted(wanted.items(), key=lambda item: item[0] not in profile_set):
        if name in environ and matches(value, environ[name]):
            continue
        seen = f"is {environ[name]!r}" if name in environ else "is absent"
        text = f"{name}={value} was asked for, but it {seen}"
        known = _OVERWRITTEN.get(name)
        if known and name in environ and name not in profile_set and name not in axis_variables:
            base["overwritten"].append(f"{text}: {known}")
        else:
            base["problems"].append(text + (f" ({known})" if known else ""))
    for name in sorted(unset & environ.keys()):
        text = f"{name}={environ[name]} is set, but was to be absent"
        if name in added and name in ranks.SGLANG_ADDS:
            base["overwritten"].append(f"{text}: SGLang adds it by itself")
        else:
            base["problems"].append(text)
    base["variables"] = {
        name: environ[name]
        for name in sorted(environ)
        if name in wanted or is_nccl(name) or name.startswith(("NCCL_", "SGLANG_", "CUDA_"))
    }
    return base


def leaks(environ: Mapping[str, str], system_file: Path = _SYSTEM_FILE) -> list[Evidence]:
    """The files that NCCL reads in a process with this environment, and what each would add.

    NCCL_CONF_FILE replaces ~/.nccl.conf; /etc/nccl.conf is always read. The process's own variables
    win over both, and the first file over the second.
    """
    named = environ.get("NCCL_CONF_FILE")
    home = environ.get("HOME")
    own = Path(named) if named else Path(home) / ".nccl.conf" if home else None
    taken = set(environ)
    found = []
    for path in (own, system_file):
        if path is None:
            continue
        try:
            text = path.read_text(errors="replace")
        except OSError:
            continue
        adds = {n: v for n, v in settings(text).items() if n not in taken}
        taken |= adds.keys()
        found.append({"path": str(path), "adds": adds})
    return found


def settings(text: str) -> dict[str, str]:
    """`NAME=value` lines of an NCCL config file; # begins a comment line, the first setting counts."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and not name.startswith("#"):
            found.setdefault(name.strip(), value.strip())
    return found


def _leaked(
    rank: Rank, files: list[Evidence], unset: frozenset[str], profile_set: Mapping[str, str]
) -> list[str]:
    """Settings of a file that contradict the profile: variables that it wants absent."""
    return [
        f"{rank.title} (pid {rank.pid}): {name}={value} comes from {file['path']}, but was to be absent"
        for file in files
        for name, value in file["adds"].items()
        if name in unset and name not in profile_set
    ]


def _unset(subject: Subject) -> frozenset[str]:
    return frozenset(subject.plan.unset) | frozenset(subject.plan.profile_unset)


def _filled(env: Mapping[str, str], subject: Subject) -> dict[str, str]:
    """The variables with the launch's own values in place of the placeholders."""
    live = subject.live
    known = {"{instance_dir}": str(live.instance_dir), "{port}": str(live.port), "{slot}": live.slot}
    filled = {}
    for name, value in env.items():
        for placeholder, text in known.items():
            value = value.replace(placeholder, text)
        filled[name] = value
    return filled


def matches(asked: str, found: str) -> bool:
    """Whether a value is the one asked for; a placeholder that the launch filled in stands for any text."""
    if not _PLACEHOLDER.search(asked):
        return asked == found
    if "{inherited}" in asked and found == asked.replace("{inherited}", "").strip(":"):
        return True  # nothing was inherited
    return re.fullmatch(".*".join(map(re.escape, _PLACEHOLDER.split(asked))), found, re.S) is not None


def _all_ranks(subject: Subject) -> list[Rank]:
    """The ranks; a title is set a moment after a process starts, so a short wait is fair."""
    end = time.monotonic() + _RANKS_WAIT_S
    while True:
        subject.poll()
        found = ranks.find(subject)
        if len(found) >= subject.plan.ranks or time.monotonic() > end:
            return found
        time.sleep(POLL_S)
