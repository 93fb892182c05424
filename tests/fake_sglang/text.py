"""What the fake model says and what its draft guesses: functions of the prompt alone."""

from __future__ import annotations

import hashlib
import random

BOS = 1
EOS = 2
FIRST_WORD = 100
_VOCABULARY = (
    "the a return value object list of index string when called with each item raises error if"
    " key is missing default argument function method class module file path name type number"
    " float integer tuple dictionary set sequence iterator yields next element until end and or"
    " not true false none import from package loads text bytes encoding naïve café → reads line"
    " writes data buffer stream opens closes context manager exits after before while loop range"
    " start stop step length sorted order reverse copy deep shallow equal compare hash table"
    " lookup time second minute clock thread process queue task event future result wait signal"
    " handler callback socket server client request response header body status code version"
    " platform system user group home directory temporary archive compress extract random seed"
    " sample choice shuffle mean median variance sum product maximum minimum absolute round power"
    " root logarithm angle point line shape colour window button menu widget layout pixel image"
    " format pattern match search replace split join strip upper lower digit letter space symbol"
    " token parse tree node leaf branch depth width graph edge cycle visit mark stack heap push"
    " pop peek empty full size limit bound check guard assert test case suite runner report"
)
WORDS = _VOCABULARY.split()


def tokens_of(prompt: str) -> list[int]:
    """Token ids of a prompt: BOS, then one per word."""
    ids = [BOS]
    for word in prompt.split():
        ids.append(5000 + int.from_bytes(hashlib.blake2b(word.encode(), digest_size=3).digest()))
    return ids


class Answer:
    """The endless answer to one prompt: token ids, their text, and which ones a draft guesses."""

    def __init__(self, ids: list[int], accept: float, loop: bool = False, salt: str = ""):
        seed = repr(ids) + salt
        self._words = random.Random("words" + seed)
        self._guess = random.Random("guess" + seed)
        self._accept = accept
        self._loop = loop
        self._ids: list[int] = []
        self._guessed: list[bool] = []
        # Where the model would stop by itself.
        self.eos_at = 150 + random.Random("eos" + seed).randrange(200)

    def _extend(self, count: int) -> None:
        while len(self._ids) < count:
            position = len(self._ids)
            word = position % 3 if self._loop else self._words.randrange(len(WORDS))
            self._ids.append(FIRST_WORD + word)
            self._guessed.append(self._loop or self._guess.random() < self._accept)

    def ids(self, count: int) -> list[int]:
        """The first `count` token ids."""
        self._extend(count)
        return self._ids[:count]

    def text(self, start: int, stop: int) -> str:
        """Text of the tokens from `start` up to `stop`."""
        self._extend(stop)
        return "".join(" " + WORDS[i - FIRST_WORD] for i in self._ids[start:stop])

    def guessed_from(self, position: int, steps: int) -> int:
        """How many of the `steps` drafts from `position` on the target accepts."""
        self._extend(position + steps)
        for n in range(steps):
            if not self._guessed[position + n]:
                return n
        return steps
