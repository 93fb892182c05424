"""The text to learn: prose of Python's own language reference, which every Python brings along.

The paragraphs are taken without code, tables, grammar and rules, and without their line breaks. A tiny
model that sees those learns to repeat newlines for ever, and a draft guesses them all: tokens per cycle
would then measure an artefact.
"""

from __future__ import annotations

import re
from pydoc_data.topics import topics

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

BOS, EOS = "<s>", "</s>"
SHORTEST_PARAGRAPH = 80
LEAST_PROSE = 0.94  # share of letters and ordinary punctuation; code and tables have less


def paragraphs(characters: int) -> list[str]:
    """The first prose paragraphs, in the order of topics and each once, up to so many characters.

    Few enough for the model to know them well: what it half knows, it repeats.
    """
    found: dict[str, None] = {}
    room = characters
    for topic in sorted(topics):
        for block in re.split(r"\n\s*\n", topics[topic]):
            paragraph = re.sub(r"\s+", " ", block).strip()
            if _is_prose(paragraph) and paragraph not in found:
                found[paragraph] = None
                room -= len(paragraph)
                if room < 0:
                    return list(found)
    return list(found)


def _is_prose(text: str) -> bool:
    if len(text) < SHORTEST_PARAGRAPH or not text[0].isupper() or not text.endswith("."):
        return False
    ordinary = sum(c.isalpha() or c in " ,.'" for c in text)
    return ordinary >= LEAST_PROSE * len(text)


def train_tokenizer(texts: list[str], vocab_size: int) -> Tokenizer:
    """A byte-level BPE of `vocab_size` tokens; nothing is out of vocabulary."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[BOS, EOS],
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer
