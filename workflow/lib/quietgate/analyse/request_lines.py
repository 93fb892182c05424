"""The lines of requests.jsonl as compact rows, and how far the drafts were accepted in them.

A large study has several hundred thousand requests with all their texts and chunk times; only the
fields that tables need are decoded.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from quietgate.errors import BadInput

# The histogram's name changed between SGLang releases; its meaning did not.
HISTOGRAMS = ("spec_correct_drafts_histogram", "spec_accept_histogram")


class RequestLine(msgspec.Struct):
    """What tables need of one request."""

    phase: str
    concurrency: int
    repeat: int
    prompt_id: str
    category: str | None
    ok: bool
    start_s: float | None = None
    ttft_s: float | None = None
    end_to_end_s: float | None = None
    decode_s: float | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    decode_tokens_per_s: float | None = None
    request_tokens_per_s: float | None = None
    tokens_per_cycle: float | None = None
    cycle_ms: float | None = None
    spec: dict[str, Any] | None = None


FIELDS = tuple(f for f in RequestLine.__struct_fields__ if f not in ("phase", "spec"))

_decoder = msgspec.json.Decoder(RequestLine)


def read_requests(path: Path) -> list[RequestLine]:
    """The timed requests of a launch in a fixed order: concurrency, repeat, start; BadInput on a bad line."""
    found = []
    with path.open("rb") as f:
        for number, text in enumerate(f, start=1):
            if not text.strip():
                continue
            try:
                line = _decoder.decode(text)
            except msgspec.DecodeError as e:
                raise BadInput(f"{path}:{number}: not a request line ({e})") from None
            if line.phase == "timed":
                found.append(line)
    found.sort(key=lambda r: (r.concurrency, r.repeat, r.start_s or 0.0, r.prompt_id))
    return found


def positions(lines: Iterable[RequestLine]) -> list[dict[str, Any]]:
    """How often each drafted position was accepted, per concurrency.

    `accepted` is the share of cycles in which the draft at this position was accepted, so that tokens
    per cycle is 1 plus their sum; `accepted_given_previous` counts only cycles that got that far.
    """
    counts: dict[int, list[int]] = {}
    for line in lines:
        histogram = next((h for n in HISTOGRAMS if isinstance(h := (line.spec or {}).get(n), list)), None)
        if not histogram or not line.ok:
            continue
        total = counts.setdefault(line.concurrency, [])
        total.extend([0] * (len(histogram) - len(total)))
        for accepted, cycles in enumerate(histogram):
            total[accepted] += cycles
    rows = []
    for concurrency, total in sorted(counts.items()):
        cycles = sum(total)
        for position in range(1, len(total)):
            reached, got = sum(total[position - 1 :]), sum(total[position:])
            rows.append(
                {
                    "concurrency": concurrency,
                    "position": position,
                    "cycles": cycles,
                    "accepted": got / cycles if cycles else None,
                    "accepted_given_previous": got / reached if reached else None,
                }
            )
    return rows
