"""Stage 4: the effective server arguments are the requested ones, or SGLang's own rule says why not."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from typing import Any

import requests

from quietgate.files import at_home
from quietgate.gate import rewrites
from quietgate.gate.stage import POLL_S, Evidence, Proof, StageFailed, Subject
from quietgate.inspect.log import arguments as logged
from quietgate.study.flags import Flags, effective_name, parse

_TIMEOUT_S = 10.0
# The line comes before the weights are loaded.
_HEAD_BYTES = 4_000_000
# Keys that name no argument: state, topology, what was typed.
_NOT_ARGUMENTS = ("internal_states", "startup_time", "launch_command", "frontend", "version", "status")
_SECRET = re.compile(r"api_key|password|secret|watermark", re.I)
# Filled in at launch.
_PLACEHOLDER = re.compile(r"\{(?:port|node_port|dist_port|instance_dir|slot)\}")
# Decided per launch by the workflow; whatever the server reports is right if it answers there.
_PLACE = ("host", "port")


def prove(subject: Subject) -> Proof:
    """Compare what was asked for with what the server reports, flag by flag."""
    info, source = _server_info(subject)
    from_log = arguments_of(_logged(subject))
    if info is None and not from_log:
        raise StageFailed(
            "arguments",
            "the server reports its arguments neither by /server_info, /get_server_info nor in its log",
        )
    effective = arguments_of(info) if info is not None else {}
    for name, value in from_log.items():
        effective.setdefault(name, value)
    subject.version = (info or {}).get("version")
    subject.effective = effective
    flags = parse(subject.plan.argv[0])
    result = compare(flags, effective, subject.plan.axis_flags)
    evidence = {
        "source": source or "log",
        "version": subject.version,
        "effective": effective,
        "runtime": _runtime(info or {}),
        **result,
        "set_unasked": rewrites.unasked(flags, effective),
    }
    wrong = result["different"] + _steps_differ(subject, effective)
    if wrong:
        one = wrong[0]
        raise StageFailed(
            "arguments",
            f"--{one['argument'].replace('_', '-')}: asked for {one['asked']!r}, the server runs with "
            f"{one['effective']!r}" + (f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""),
            [json.dumps(w, default=str) for w in wrong],
            evidence,
        )
    named = [f"{r['argument']}: {r['why']}" for r in result["rewritten"]]
    return Proof(evidence, "; ".join(named) or None)


def compare(flags: Flags, effective: Mapping[str, Any], axis_flags: frozenset[str] = frozenset()) -> Evidence:
    """Requested against effective arguments.

    Returns:
        `different`: without a reason, or a flag that the grid varies; `rewritten`: with SGLang's own
        reason; `unreported`: flags that the server does not report, so that nothing is proved;
        `resolved`: abbreviations and other names; `repeated`: flags given more than once, the last counts.
    """
    different, rewritten, unreported, resolved = [], [], [], {}
    for name, asked in flags.values.items():
        where, how = effective_name(name, effective.keys())
        if where is None:
            unreported.append(name)
            continue
        if how:
            resolved[name] = how
        value = effective[where]
        if where in _PLACE or same(asked, value, negated=bool(how and how.startswith("negation"))):
            continue
        why = rewrites.explanation(where, asked, value, effective)
        entry = {"argument": where, "asked": asked, "effective": value}
        if why is None or where in axis_flags:
            different.append(entry | ({"why": why} if why else {}))
        else:
            rewritten.append(entry | {"why": why})
    return {
        "different": different,
        "rewritten": rewritten,
        "unreported": unreported,
        "resolved": resolved,
        "repeated": {n: v for n, v in flags.repeated.items() if len({str(x) for x in v}) > 1},
    }


def same(asked: bool | str | list[str], effective: Any, negated: bool = False) -> bool:
    """Whether a requested value is the effective one, whatever type the server reports it in."""
    if negated:
        return effective in (False, None)
    if asked is True:
        # A bare flag; some have a value of their own when given bare.
        return effective is not None and effective is not False
    if isinstance(asked, list):
        if not isinstance(effective, list):
            return " ".join(map(str, asked)) == str(effective)
        return len(asked) == len(effective) and all(map(same, asked, effective))
    text = str(asked)
    if isinstance(effective, bool):
        return text.lower() in (("true", "1") if effective else ("false", "0"))
    if isinstance(effective, int | float):
        try:
            return bool(float(text) == float(effective))
        except ValueError:
            return False
    if isinstance(effective, list) and len(effective) == 1:
        return same(text, effective[0])
    if isinstance(effective, dict | list) or _is_json(text):
        return bool(_json(text) == (_json(effective) if isinstance(effective, str) else effective))
    if effective is None:
        return text.lower() in ("none", "")
    return _same_text(text, str(effective))


def _same_text(asked: str, effective: str) -> bool:
    """Texts, with `~` and the launch's placeholders open and a slash at the end of no account."""
    if asked.startswith("~/"):
        asked = str(at_home(asked))
    if _PLACEHOLDER.search(asked):
        parts = map(re.escape, _PLACEHOLDER.split(asked))
        return re.fullmatch(".+".join(parts), effective) is not None
    return asked.rstrip("/") == effective.rstrip("/")


def _is_json(text: str) -> bool:
    return text[:1] in "{["


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def arguments_of(info: Mapping[str, Any]) -> Evidence:
    """The arguments in an answer of /server_info, without state and without secrets."""
    return {
        name: value
        for name, value in info.items()
        if name not in _NOT_ARGUMENTS and not name.startswith("_") and not _SECRET.search(name)
    }


def _steps_differ(subject: Subject, effective: Evidence) -> list[Evidence]:
    """Speculation that is on although the cell has none, or has other steps than the cell's."""
    found = effective.get("speculative_num_steps")
    algorithm = effective.get("speculative_algorithm")
    if subject.plan.steps == 0:
        if algorithm in (None, "", "NONE"):
            return []
        return [{"argument": "speculative_algorithm", "asked": None, "effective": algorithm}]
    if algorithm and found == subject.plan.steps:
        return []
    return [{"argument": "speculative_num_steps", "asked": subject.plan.steps, "effective": found}]


def _server_info(subject: Subject) -> tuple[Evidence | None, str | None]:
    """(answer, endpoint): /server_info from 0.5.6, /get_server_info before."""
    end = time.monotonic() + subject.plan.answer_s
    while True:
        for path in ("/server_info", "/get_server_info"):
            subject.poll()
            try:
                answer = subject.http.get(subject.url(path), timeout=_TIMEOUT_S)
                if answer.status_code == 200 and isinstance(answer.json(), dict):
                    return answer.json(), path
            except (requests.RequestException, ValueError):
                pass
        if time.monotonic() > end:
            return None, None
        time.sleep(POLL_S)


def _runtime(info: Evidence) -> Evidence:
    """What the scheduler decided at start-up: sizes of pools and graphs, the limit of requests."""
    states = info.get("internal_states")
    state = states[0] if isinstance(states, list) and states else {}
    if not isinstance(state, dict):
        return {}
    keep = (
        "effective_max_running_requests_per_dp",
        "max_running_requests",
        "memory_usage",
        "token_capacity",
        "decode_cuda_graph_bs",
        "world_size",
    )
    found = {name: state[name] for name in keep if name in state}
    total = info.get("max_total_num_tokens")
    return found | ({"max_total_num_tokens": total} if total is not None else {})


def _logged(subject: Subject) -> Evidence:
    """The arguments of the log's `server_args=` line; empty where there is none or it is cut."""
    try:
        with subject.live.log.open("rb") as f:
            for line in f:
                if logged.starts(line):
                    return logged.parse(line.decode(errors="replace")) or {}
                if f.tell() > _HEAD_BYTES:
                    break
    except OSError:
        pass
    return {}
