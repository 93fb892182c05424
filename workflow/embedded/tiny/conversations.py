"""Questions and answers to learn, in the form in which a server sends its prompts.

A model that learnt the bare text meets the chat template for the first time when it is served: it goes on
in half-known words, and a draft follows it only half as far as on its own text. One that learnt the text as
answers, to whatever question, answers with passages that it knows by heart. That takes more room in a model
than the text alone: where there is too little, it learns neither.
"""

from __future__ import annotations

import random

from . import export

QUESTION_WORDS = 4, 40
ANSWER_CHARACTERS = 1000  # longer than what a benchmark asks for, so that no answer ends within it


def conversations(texts: list[str], count: int, seed: int) -> str:
    """So many exchanges as one text: words of a paragraph, half the time shuffled; then paragraphs in order.

    Args:
        texts: the paragraphs of the corpus.
        count: how many exchanges; every paragraph should begin several answers.
        seed: the same one gives the same text.
    """
    chance = random.Random(seed)
    return "".join(
        export.rendered([_question(texts, chance), _answer(texts, chance.randrange(len(texts)))])
        for _ in range(count)
    )


def _question(texts: list[str], chance: random.Random) -> str:
    words = chance.choice(texts).split()[: chance.randint(*QUESTION_WORDS)]
    if chance.random() < 0.5:
        chance.shuffle(words)
    return " ".join(words)


def _answer(texts: list[str], first: int) -> str:
    """Paragraphs from the `first` on, round the end of the corpus, until they are long enough."""
    answer: list[str] = []
    while sum(map(len, answer)) < ANSWER_CHARACTERS:
        answer.append(texts[(first + len(answer)) % len(texts)])
    return " ".join(answer)
