"""One answer of `/generate` as the client saw it, and its line of requests.jsonl."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Answer:
    """What came back for one request.

    Attributes:
        error: why it is no result; None where it is one.
        started_s: on the clock of `time.perf_counter`, when the request was sent.
        chunk_s: arrival of each event since then.
        chunk_total: completion tokens so far, as each event says.
        end_s: when the stream had ended, since it was sent.
        meta: `meta_info` of the last event.
    """

    error: str | None = None
    started_s: float = 0.0
    chunk_s: list[float] = field(default_factory=list)
    chunk_total: list[int] = field(default_factory=list)
    end_s: float = 0.0
    text: str = ""
    output_ids: list[int] | None = None
    meta: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether it is a whole answer."""
        return self.error is None

    @property
    def completion_tokens(self) -> int:
        """Tokens generated: the server's count, else what the stream had reached."""
        told = self.meta.get("completion_tokens")
        return int(told) if told is not None else (self.chunk_total[-1] if self.chunk_total else 0)


def timings(answer: Answer) -> dict[str, Any]:
    """The numbers of one answer, named and defined as in requests.jsonl.

    A chunk may carry no new token (the last one of some releases): the first and last that do are
    the ends of the decode time. decode tok/s leaves out the tokens that came with the first of
    them, whose time is the prefill's. With speculation a cycle is one verify of the target; without,
    one decode forward, and tokens per cycle is 1 by definition.
    """
    totals = answer.chunk_total
    new = [total - before for total, before in zip(totals, [0, *totals], strict=False)]
    with_tokens = [i for i, count in enumerate(new) if count > 0]
    completion = answer.completion_tokens
    verify_ct = answer.meta.get("spec_verify_ct")
    out: dict[str, Any] = {
        "ttft_s": None,
        "end_to_end_s": answer.end_s,
        "decode_s": None,
        "prompt_tokens": answer.meta.get("prompt_tokens"),
        "completion_tokens": completion,
        "first_chunk_tokens": None,
        "cached_tokens": answer.meta.get("cached_tokens"),
        "finish_reason": _reason(answer.meta.get("finish_reason")),
        "chunk_s": [round(s, 6) for s in answer.chunk_s],
        "chunk_tokens": new,
        "decode_tokens_per_s": None,
        "request_tokens_per_s": completion / answer.end_s if answer.end_s > 0 else None,
        "spec": {k: v for k, v in answer.meta.items() if k.startswith("spec_")},
        "spec_verify_ct": verify_ct,
        "tokens_per_cycle": (completion - 1) / verify_ct if verify_ct else 1.0,
        "cycle_ms": None,
        "server_decode_tokens_per_s": answer.meta.get("decode_throughput"),
    }
    if not with_tokens:
        return out
    first, last = with_tokens[0], with_tokens[-1]
    decode_s = answer.chunk_s[last] - answer.chunk_s[first]
    out["ttft_s"] = answer.chunk_s[first]
    out["decode_s"] = decode_s
    out["first_chunk_tokens"] = new[first]
    later = completion - new[first]
    if decode_s > 0 and later > 0:
        out["decode_tokens_per_s"] = later / decode_s
        out["cycle_ms"] = 1000 * decode_s / (verify_ct or later)
    return out


def record(answer: Answer, *, phase: str, concurrency: int, repeat: int, began_s: float) -> dict[str, Any]:
    """The fields of requests.jsonl that do not depend on the prompt."""
    return {
        "phase": phase,
        "concurrency": concurrency,
        "repeat": repeat,
        "ok": answer.ok,
        "error": answer.error,
        "start_s": answer.started_s - began_s,
        **timings(answer),
        "text_sha256": hashlib.sha256(answer.text.encode()).hexdigest(),
        "text": answer.text,
    }


def _reason(finish: Any) -> str | None:
    if isinstance(finish, dict):
        return str(finish.get("type"))
    return str(finish) if finish is not None else None
