"""Text that is a loop of a few tokens: a server that decodes garbage, or a text that has run dry.

The rule: the last half of the output, and at least `MIN_TOKENS` tokens, repeats with a period of at
most `MAX_PERIOD` tokens, and the text that is visible repeats too. A draft model guesses a loop
nearly always, so such an output would win any contest of tokens per cycle; it is not text. The second
condition spares an output that is only end-of-text tokens past a short answer. Where a server gives
no token ids, words take their place.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

MAX_PERIOD = 8
MIN_TOKENS = 24
# Eight tokens are seldom longer than this many characters.
_MAX_PERIOD_CHARACTERS = 96


def period_of_loop(
    items: Sequence[Hashable], max_period: int = MAX_PERIOD, least: int = MIN_TOKENS
) -> int | None:
    """The smallest period with which the last half (and at least `least`) repeats, or None."""
    length = max(least, len(items) // 2)
    if len(items) < length:
        return None
    end = items[-length:]
    for period in range(1, min(max_period, length // 2) + 1):
        if all(end[i] == end[i - period] for i in range(period, length)):
            return period
    return None


def loop_in_answer(token_ids: Sequence[int] | None, text: str) -> str | None:
    """What loops in an answer, as text for a person, or None."""
    items: Sequence[Hashable] = token_ids if token_ids else text.split()
    period = period_of_loop(items)
    if period is None:
        return None
    if token_ids and period_of_loop(text, _MAX_PERIOD_CHARACTERS, least=2) is None:
        return None
    unit = "tokens" if token_ids else "words"
    length = max(MIN_TOKENS, len(items) // 2)
    return f"the last {length} {unit} are {period} repeated: ...{text[-60:]!r}"
