"""Both trainings: the target on the corpus, the draft on what the target says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .eagle3 import Draft, captured_layers
from .llama import Llama

LATER_DEPTH_WEIGHT = 0.8  # a wrong guess makes the deeper ones worthless, so they count less
REPORT_EVERY = 100
OWN_TEXT_PROMPT = 24  # tokens of the corpus that start one of the target's own texts
OWN_TEXTS_AT_ONCE = 256  # PyTorch keeps each outgrown cache of keys and values: 2000 texts at once took 95 GB

Report = Callable[[str], None]


@dataclass(frozen=True)
class Schedule:
    """How long, how fast, and on how much text at once a model learns."""

    steps: int
    batch: int
    length: int
    peak_rate: float = 3e-3


class Excerpts:
    """Random excerpts of the corpus, the same ones for the same seed."""

    def __init__(self, tokens: Tensor, schedule: Schedule, seed: int):
        self.tokens = tokens
        self.schedule = schedule
        self.random = torch.Generator().manual_seed(seed)

    def next(self) -> Tensor:
        """[batch, length + 1] tokens."""
        length = self.schedule.length + 1
        starts = torch.randint(0, len(self.tokens) - length, (self.schedule.batch, 1), generator=self.random)
        return self.tokens[(starts + torch.arange(length)).to(self.tokens.device)]


class Learner:
    """AdamW with a short warm-up and a decay to nothing."""

    def __init__(self, model: nn.Module, schedule: Schedule):
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            self.parameters, lr=schedule.peak_rate, betas=(0.9, 0.95), weight_decay=0.01
        )
        self.rate = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, schedule.peak_rate, total_steps=max(schedule.steps, 2), pct_start=0.1
        )

    def step(self, loss: Tensor) -> None:
        """One step down."""
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.rate.step()


def train_target(model: Llama, tokens: Tensor, schedule: Schedule, seed: int, report: Report) -> list[float]:
    """Next-token training; the loss at every hundredth step and at the last."""
    excerpts, learner, losses = Excerpts(tokens, schedule, seed), Learner(model, schedule), []
    for step in range(schedule.steps):
        excerpt = excerpts.next()
        logits, _ = model(excerpt[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), excerpt[:, 1:].flatten())
        learner.step(loss)
        if step % REPORT_EVERY == 0 or step == schedule.steps - 1:
            losses.append(round(loss.item(), 4))
            report(f"target step {step}: loss {losses[-1]:.3f}")
    return losses


def own_text(
    target: Llama, tokens: Tensor, texts: int, length: int, seed: int, shuffled: float = 0.0
) -> Tensor:
    """What the target writes by itself, from excerpts of the corpus: `texts * length` tokens.

    The draft learns on it, because that is what it must guess when serving: off the corpus, a draft
    that knows the corpus alone agrees half as often. A share of the excerpts can be `shuffled`: a large
    target answers a strange prompt with the corpus too, but in states that the draft has never seen.
    """
    excerpts = Excerpts(tokens, Schedule(1, texts, OWN_TEXT_PROMPT - 1), seed)
    prompts = excerpts.next()
    if strange := round(shuffled * texts):
        flat = prompts[:strange].flatten()
        order = torch.randperm(len(flat), generator=excerpts.random)
        prompts[:strange] = flat[order.to(flat.device)].view(strange, -1)
    return torch.cat([target.continued(some, length) for some in prompts.split(OWN_TEXTS_AT_ONCE)]).flatten()


def train_draft(
    draft: Draft, target: Llama, tokens: Tensor, schedule: Schedule, depths: int, seed: int, report: Report
) -> list[float]:
    """Imitate the target's distribution at each depth; the loss at every hundredth step and at the last."""
    excerpts, learner, losses = Excerpts(tokens, schedule, seed), Learner(draft, schedule), []
    for step in range(schedule.steps):
        loss = torch.zeros((), device=tokens.device)
        for depth, (guess, truth) in enumerate(_guesses(draft, target, excerpts.next(), depths)):
            distance = -(truth.softmax(-1) * guess.log_softmax(-1)).sum(-1).mean()
            loss = loss + LATER_DEPTH_WEIGHT**depth * distance
        learner.step(loss)
        if step % REPORT_EVERY == 0 or step == schedule.steps - 1:
            losses.append(round(loss.item(), 4))
            report(f"draft step {step}: loss {losses[-1]:.3f}")
    return losses


@torch.no_grad()
def agreement(
    draft: Draft, target: Llama, tokens: Tensor, schedule: Schedule, depths: int, seed: int
) -> list[float]:
    """How often the draft's first choice is the target's, per depth, on fresh excerpts."""
    excerpts, rounds = Excerpts(tokens, schedule, seed), 4
    same = [0.0] * depths
    for _ in range(rounds):
        for depth, (guess, truth) in enumerate(_guesses(draft, target, excerpts.next(), depths)):
            same[depth] += (guess.argmax(-1) == truth.argmax(-1)).float().mean().item() / rounds
    return [round(share, 4) for share in same]


@torch.no_grad()
def tokens_per_cycle(draft: Draft, target: Llama, prompt: list[int], new_tokens: int, steps: int) -> float:
    """Tokens that a server would win per cycle on the target's greedy answer, at so many draft steps.

    A cycle keeps the draft's guesses up to the first that is not the target's, and one token of the target.
    """
    began = torch.tensor([prompt], device=draft.lm_head.weight.device)
    answer = target.continued(began, len(prompt) + new_tokens + steps)
    guesses = _guesses(draft, target, answer, steps)
    right = torch.stack([guess.argmax(-1) == truth.argmax(-1) for guess, truth in guesses], -1)[0]
    kept = right.cumprod(-1).sum(-1).tolist()
    # The first answered token comes from the prompt; a guess in column i is of the token at i + 2.
    known, cycles = len(prompt) + 1, 0
    while known < len(prompt) + new_tokens:
        known += kept[known - 2] + 1
        cycles += 1
    return (known - len(prompt) - 1) / cycles


def _guesses(draft: Draft, target: Llama, excerpt: Tensor, depths: int) -> list[tuple[Tensor, Tensor]]:
    """The draft's and the target's logits for the same token, per depth."""
    with torch.no_grad():
        said, entering = target(excerpt)
        captured = torch.cat([entering[layer] for layer in captured_layers(target.shape.layers)], -1)
    n = excerpt.shape[1] - depths
    guesses = draft(excerpt[:, 1:], captured[:, :n], depths)
    return [(guess, said[:, 1 + depth : 1 + depth + n]) for depth, guess in enumerate(guesses)]
