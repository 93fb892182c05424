"""Stage 7: the server decodes: many tokens, with speculation exactly where it was asked for.

One generated token, which is what a health probe asks for, is a prefill. Here several prompts are
decoded greedily, one at a time, and SGLang's own count of verify passes is read from each answer.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import requests

from quietgate.gate.degenerate import loop_in_answer
from quietgate.gate.stage import POLL_S, Evidence, Proof, StageFailed, Subject
from quietgate.gate.waiting import standstill
from quietgate.measure import stages as metrics
from quietgate.wording import counted

# More than this share of the possible tokens per cycle is no model's guess any more.
_SUSPICIOUS = 0.98
# The overlap scheduler may run a pass or two whose tokens are not used.
_SPARE_CYCLES = 2


def prove(subject: Subject) -> Proof:
    """Decode the gate's prompts and check counts, bounds and text; fingerprints are kept."""
    plan = subject.plan
    prompts = list(plan.prompts)[: plan.decode_prompts]
    if not prompts:
        raise StageFailed("decode", "there is no prompt to decode")
    subject.log_before_decode = _size(subject)
    subject.metrics_before_decode = metrics.snapshot(subject.live.base_url)
    sampling = {"temperature": 0, "max_new_tokens": plan.decode_tokens, "ignore_eos": True}
    end = time.monotonic() + plan.decode_s
    answers = []
    for prompt in prompts:
        body = {"text": prompt.text, "sampling_params": sampling}
        answer = _ask(subject, body, end)
        answers.append((prompt.id, answer))
    evidence: Evidence = {"prompts": [], "most_tokens_per_cycle": plan.most_tokens_per_cycle}
    lines: list[str] = []
    loops: list[str] = []
    for prompt_id, answer in answers:
        one = measure(prompt_id, answer)
        evidence["prompts"].append(one["summary"])
        subject.fingerprints.append(one["fingerprint"])
        lines += [f"{prompt_id}: {p}" for p in problems(one["summary"], plan)]
        if one["summary"]["loop"]:
            loops.append(f"{prompt_id}: {one['summary']['loop']}")
    evidence.update(_totals(evidence["prompts"]))
    if lines:
        raise StageFailed("decode", lines[0], lines, evidence)
    # One prompt may end in a loop by itself; where most do, the model or the server is broken.
    if len(loops) * 2 > len(answers):
        raise StageFailed(
            "degenerate_text",
            f"{len(loops)} of {len(answers)} outputs are a loop of a few tokens ({loops[0]})",
            loops,
            evidence,
        )
    notes = [f"loop in {line}" for line in loops]
    rate = evidence["tokens_per_cycle"]
    if plan.steps and rate is not None and rate >= _SUSPICIOUS * plan.most_tokens_per_cycle:
        notes.append(
            f"{rate:.2f} tokens per cycle of {plan.most_tokens_per_cycle} possible: nearly every draft "
            "is accepted, which simulated acceptance or a loop would explain"
        )
    return Proof(evidence, "; ".join(notes) or None)


def measure(prompt_id: str, answer: Evidence) -> dict[str, Evidence]:
    """One answer of /generate as {"summary": counts and what loops, "fingerprint": text and ids}."""
    meta = answer.get("meta_info") or {}
    text = str(answer.get("text", ""))
    ids = answer.get("output_ids") or meta.get("output_ids")
    token_ids = [int(i) for i in ids] if isinstance(ids, list) else None
    tokens = int(meta.get("completion_tokens") or 0)
    cycles = meta.get("spec_verify_ct")
    rate = (tokens - 1) / cycles if cycles and tokens > 1 else None
    return {
        "summary": {
            "prompt_id": prompt_id,
            "completion_tokens": tokens,
            "spec_verify_ct": cycles,
            "tokens_per_cycle": rate,
            "loop": loop_in_answer(token_ids, text),
            "finish_reason": meta.get("finish_reason"),
        },
        "fingerprint": {
            "prompt_id": prompt_id,
            "token_ids": token_ids,
            "text_sha256": hashlib.sha256(text.encode()).hexdigest(),
            "text": text,
            "completion_tokens": tokens,
            "spec_verify_ct": cycles,
        },
    }


def problems(summary: Evidence, plan: Any) -> list[str]:
    """What one answer's counts say against the cell: too few tokens, speculation off or on, bounds."""
    tokens, cycles = summary["completion_tokens"], summary["spec_verify_ct"] or 0
    if tokens < 2:
        return [f"{counted(tokens, 'token')} of {plan.decode_tokens} generated: no decode happened"]
    if plan.steps == 0:
        if cycles:
            return [f"{counted(cycles, 'verify pass')} without speculation asked for"]
        return []
    if not cycles:
        return [
            f"no verify pass in {tokens} tokens: speculation with {counted(plan.steps, 'step')} is not on"
        ]
    most = plan.most_tokens_per_cycle
    if tokens - 1 > cycles * most:
        rate = (tokens - 1) / cycles
        return [f"{rate:.2f} tokens per cycle, more than {counted(plan.steps, 'step')} can give ({most})"]
    if cycles > tokens - 1 + _SPARE_CYCLES:
        return [
            f"{counted(cycles, 'verify pass')} for {counted(tokens, 'token')}: fewer than one token per cycle"
        ]
    return []


def _totals(summaries: list[Evidence]) -> Evidence:
    cycles = sum(s["spec_verify_ct"] or 0 for s in summaries)
    tokens = sum(s["completion_tokens"] for s in summaries)
    rate = (tokens - len(summaries)) / cycles if cycles else None
    return {"completion_tokens": tokens, "spec_verify_ct": cycles or None, "tokens_per_cycle": rate}


def _ask(subject: Subject, body: Evidence, end: float) -> Evidence:
    """One request, watched: the server's death or the deadline ends the wait, not the time-out alone."""
    left = end - time.monotonic()

    def post() -> requests.Response:
        return subject.http.post(subject.url("/generate"), json=body, timeout=max(left, 1.0))

    answer = watched(subject, post, end, "no whole answer")
    if answer.status_code != 200:
        raise StageFailed(
            "decode",
            f"/generate answered {answer.status_code}",
            answer.text.splitlines()[:5],
        )
    try:
        found = answer.json()
    except ValueError:
        raise StageFailed(
            "decode", "/generate answered something that is not JSON", [answer.text[:300]]
        ) from None
    return dict(found[0] if isinstance(found, list) else found)


def watched(
    subject: Subject, work: Callable[[], requests.Response], end: float, what: str
) -> requests.Response:
    """Run a request in a thread and watch the server meanwhile."""
    pool = ThreadPoolExecutor(1, "decode")
    asked: Future[requests.Response] = pool.submit(work)
    try:
        while not asked.done():
            subject.poll()
            if time.monotonic() > end:
                raise _no_answer(subject, what)
            time.sleep(POLL_S)
        return asked.result()
    except requests.Timeout:
        subject.poll()
        raise _no_answer(subject, what) from None
    except requests.RequestException as e:
        subject.linger()
        raise StageFailed("decode", f"the request broke off: {type(e).__name__}: {e}") from None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _no_answer(subject: Subject, what: str) -> StageFailed:
    stage, lines, evidence = standstill(subject)
    return StageFailed(
        "hang",
        f"the server answers HTTP, but {what} came within {subject.plan.decode_s:g} s; "
        f"its log's last stage is {stage!r}",
        lines,
        evidence,
    )


def _size(subject: Subject) -> int:
    try:
        return subject.live.log.stat().st_size
    except OSError:
        return 0
