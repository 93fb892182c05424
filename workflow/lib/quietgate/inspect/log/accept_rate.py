"""Which of its two meanings a log's "accept rate" has: told from the numbers, never guessed.

SGLang 0.5.6 to 0.5.10 wrote accept length / draft tokens (the bonus token counted in); 0.5.11 and later
write (accept length - 1) / (draft tokens - 1). At one number of draft tokens, one of the two fits every
line within rounding and the other as a rule does not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

WITH_BONUS = "accept length / draft tokens, bonus token included (SGLang 0.5.6 to 0.5.10)"
WITHOUT_BONUS = "(accept length - 1) / (draft tokens - 1), drafts only (SGLang 0.5.11 and later)"

_ROUNDING = 0.0051  # both are written with two decimals
_MOST_PAIRS = 4000


class AcceptRate:
    """Collects (accept length, accept rate) pairs of lines of one server."""

    def __init__(self) -> None:
        self._raw: set[tuple[bytes | None, bytes | None]] = set()
        self._pairs: set[tuple[float, float]] = set()

    def add(self, lengths: Sequence[bytes | None], rates: Sequence[bytes | None]) -> None:
        """Take the lines' values, side by side."""
        if len(self._pairs) < _MOST_PAIRS:
            new = set(zip(lengths, rates, strict=True)) - self._raw
            self._raw |= new
            for length, rate in new:
                if length is not None and rate is not None:
                    pair = float(length), float(rate)
                    if all(map(math.isfinite, pair)):
                        self._pairs.add(pair)

    def definition(self, draft_tokens: int | None, by_version: str | None = None) -> str | None:
        """WITH_BONUS, WITHOUT_BONUS, or None where neither fits, or both and no version is known.

        Args:
            draft_tokens: --speculative-num-draft-tokens where the log tells, which settles more.
            by_version: which of them the server's version writes, where the log tells.
        """
        old, new = (self._fits(shift, draft_tokens) for shift in (0, 1))
        if old and new:
            return by_version
        return WITH_BONUS if old else WITHOUT_BONUS if new else None

    def _fits(self, shift: int, draft_tokens: int | None) -> bool:
        """Is there a whole number of draft tokens with rate = (length - shift) / (tokens - shift)?"""
        low, high = 1.0, 512.0
        for length, rate in self._pairs:
            numerator = length - shift
            if rate <= _ROUNDING:
                # A rate of 0.00 bounds the tokens from below only.
                low = max(low, (numerator - _ROUNDING) / (rate + _ROUNDING))
                continue
            low = max(low, (numerator - _ROUNDING) / (rate + _ROUNDING))
            high = min(high, (numerator + _ROUNDING) / (rate - _ROUNDING))
        if draft_tokens is not None:
            return bool(self._pairs) and low <= draft_tokens - shift <= high
        return bool(self._pairs) and math.ceil(low) <= math.floor(high)
