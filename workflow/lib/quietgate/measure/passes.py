"""The timed passes: closed loop over the prompts, and the rules by which a pass is a result.

A pass is no result when a request failed, was empty, was shorter than asked, came back in one piece
(there is no decode time in it), or found its prompt in the prefix cache; or when the client was the
bottleneck. Every reason is named; a failed pass has no numbers, so that none can be quoted.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from quietgate.measure import answer, client, exchange
from quietgate.measure.prompts import Prompt, enough
from quietgate.wording import counted

# A client that used this share of one core may have been what was measured.
SATURATED = 0.9
# Requests per stream, at least: the first ones all begin with a prefill at the same moment.
ROUNDS = 2
FLUSH_TIMEOUT_S = 30.0
NUMBERS = (
    "decode_tokens_per_s",
    "request_tokens_per_s",
    "output_tokens_per_s",
    "tokens_per_cycle",
    "cycle_ms",
    "ttft_s",
    "end_to_end_s",
    "server_decode_tokens_per_s",
)


@dataclass
class PassResult:
    """One pass: its lines of requests.jsonl, seconds from first to last byte, CPU of the client."""

    requests: list[dict[str, Any]]
    wall_s: float
    client_cpu_s: float


def flush_cache(base_url: str, timeout_s: float = FLUSH_TIMEOUT_S) -> bool:
    """Empty the server's prefix cache; False where it refused (requests still run) or cannot."""
    try:
        return exchange.post(f"{base_url}/flush_cache", timeout_s).status < 400
    except exchange.Unanswered:
        return False


def planned(prompts: Sequence[Prompt], concurrency: int) -> list[Prompt]:
    """The requests of one pass: the prompts, and variants of them where there are too few.

    Every stream gets the same number of requests and at least two, so that the tail, in which fewer
    streams run than asked for, is short. One stream gets the prompts as they are.
    """
    if concurrency == 1:
        return list(prompts)
    rounds = max(ROUNDS, math.ceil(len(prompts) / concurrency))
    return enough(prompts, rounds * concurrency)


def run(
    base_url: str,
    prompts: Sequence[Prompt],
    sampling: client.Sampling,
    *,
    concurrency: int,
    repeat: int,
    timeout_s: float,
    stall_s: float | None = None,
    check: Callable[[], None] | None = None,
    phase: str = "timed",
) -> PassResult:
    """Run one pass over the prompts, as `planned` for this number of streams."""
    return send(
        base_url,
        planned(prompts, concurrency),
        sampling,
        concurrency=concurrency,
        repeat=repeat,
        timeout_s=timeout_s,
        stall_s=stall_s,
        check=check,
        phase=phase,
    )


def send(
    base_url: str,
    chosen: Sequence[Prompt],
    sampling: client.Sampling,
    *,
    concurrency: int,
    repeat: int,
    timeout_s: float,
    stall_s: float | None,
    check: Callable[[], None] | None,
    phase: str,
) -> PassResult:
    """Send exactly the `chosen`; each line has `problem`: why it spoils the pass, or None."""
    bodies = [client.body(prompt.text, sampling) for prompt in chosen]
    timed = client.closed_loop(base_url, bodies, concurrency, timeout_s, stall_s or timeout_s, check)
    shared = shared_prefixes([prompt.text for prompt in chosen])
    lines = []
    unsent = set(range(len(chosen)))
    for i, got in timed.answers:
        unsent.discard(i)
        line = answer.record(got, phase=phase, concurrency=concurrency, repeat=repeat, began_s=timed.began_s)
        line["prompt_id"], line["category"] = chosen[i].id, chosen[i].category
        line["problem"] = problem(line, sampling, len(chosen[i].text.encode()), shared[i])
        lines.append(line)
    for i in sorted(unsent):
        never = answer.Answer(error="not sent: the pass had failed", started_s=timed.began_s)
        line = answer.record(
            never, phase=phase, concurrency=concurrency, repeat=repeat, began_s=timed.began_s
        )
        line |= {"prompt_id": chosen[i].id, "category": chosen[i].category, "problem": never.error}
        lines.append(line)
    return PassResult(lines, timed.wall_s, timed.client_cpu_s)


def shared_prefixes(texts: Sequence[str]) -> list[int]:
    """For each text, the bytes of its longest beginning that another of them has too.

    Sorted neighbours share the longest beginnings.
    """
    order = sorted(range(len(texts)), key=lambda i: texts[i])
    shared = [0] * len(texts)
    for a, b in itertools.pairwise(order):
        n = _common(texts[a], texts[b])
        shared[a], shared[b] = max(shared[a], n), max(shared[b], n)
    return shared


def _common(a: str, b: str) -> int:
    n = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return len(a[:n].encode())


def cached_explained(prompt_tokens: int, prompt_bytes: int, shared_bytes: int) -> int:
    """Cached tokens that the prompts themselves explain.

    Within one pass a server may rightly reuse what prompts share: the token that begins every
    prompt, a system prompt, a chat template. The shared bytes are counted in tokens of this
    prompt's own mean length, with a quarter on top, and two for tokens that have no text.
    """
    if not prompt_bytes:
        return 2
    return 2 + math.ceil(1.25 * shared_bytes * prompt_tokens / prompt_bytes)


def problem(
    line: dict[str, Any], sampling: client.Sampling, prompt_bytes: int, shared_bytes: int
) -> str | None:
    """Why this request spoils its pass, or None."""
    if not line["ok"]:
        return str(line["error"])
    asked = sampling.get("max_new_tokens")
    got = line["completion_tokens"]
    if asked and sampling.get("ignore_eos") and got < asked:
        return f"{counted(got, 'token')} where {asked} were asked for (finished by {line['finish_reason']})"
    if asked and got > asked:
        return f"{counted(got, 'token')} where at most {asked} were asked for"
    if got == 1:
        return "one token only: there is no decode in it"
    if line["decode_tokens_per_s"] is None:
        return "came in one piece: no decode time can be taken from it (no streaming?)"
    cached, length = line["cached_tokens"], line["prompt_tokens"]
    if cached and length:
        explained = cached_explained(length, prompt_bytes, shared_bytes)
        # Prefill always leaves one token to compute: a replayed prompt is cached but for that.
        if cached > explained or (cached >= length - 1 and length > 4):
            return (
                f"{cached} of {length} prompt tokens came from the prefix cache"
                f" (what the prompts share explains {min(explained, length - 1)})"
            )
    return None


def summarise(
    requests: Sequence[dict[str, Any]],
    concurrency: int,
    repeat: int,
    wall_s: float,
    client_cpu_s: float,
    flushed: bool,
) -> dict[str, Any]:
    """One pass as an entry of benchmark.json, with its status and every problem by name."""
    problems = _problems(requests, wall_s, client_cpu_s)
    numbers: dict[str, float | None] = dict.fromkeys(NUMBERS)
    if not problems:
        numbers = _numbers(requests, wall_s)
    return {
        "concurrency": concurrency,
        "repeat": repeat,
        "status": "failed" if problems else "passed",
        "problems": problems,
        "requests": len(requests),
        "wall_s": wall_s,
        "client_cpu_s": client_cpu_s,
        "flushed": flushed,
        **numbers,
    }


def _problems(requests: Sequence[dict[str, Any]], wall_s: float, client_cpu_s: float) -> list[str]:
    problems = []
    seen: dict[str, list[str]] = {}
    for line in requests:
        why = line.get("problem") or (None if line["ok"] else line["error"])
        if why:
            seen.setdefault(str(why), []).append(str(line["prompt_id"]))
    for why, ids in seen.items():
        named = ", ".join(ids[:3]) + (f" and {len(ids) - 3} more" if len(ids) > 3 else "")
        problems.append(f"{named}: {why}")
    if not requests:
        problems.append("no request was sent")
    if wall_s > 0 and client_cpu_s > SATURATED * wall_s:
        problems.append(
            f"client saturated: it used {client_cpu_s:.1f} s of CPU in {wall_s:.1f} s; lower the"
            " concurrency or run on a faster or freer core"
        )
    return problems


def _numbers(requests: Sequence[dict[str, Any]], wall_s: float) -> dict[str, float | None]:
    def middle(name: str) -> float | None:
        values = [line[name] for line in requests if line.get(name) is not None]
        return statistics.median(values) if values else None

    cycles = speculated = 0.0
    for line in requests:
        verify_ct = line["spec_verify_ct"] or 0
        cycles += verify_ct or line["completion_tokens"] - line["first_chunk_tokens"]
        speculated += verify_ct
    decode_s = sum(line["decode_s"] for line in requests)
    tokens = sum(line["completion_tokens"] for line in requests)
    return {
        "decode_tokens_per_s": middle("decode_tokens_per_s"),
        "request_tokens_per_s": middle("request_tokens_per_s"),
        "output_tokens_per_s": tokens / wall_s if wall_s > 0 else None,
        "tokens_per_cycle": (tokens - len(requests)) / speculated if speculated else 1.0,
        "cycle_ms": 1000 * decode_s / cycles if cycles else None,
        "ttft_s": middle("ttft_s"),
        "end_to_end_s": middle("end_to_end_s"),
        "server_decode_tokens_per_s": middle("server_decode_tokens_per_s"),
    }
