"""Train a tiny Llama and its EAGLE-3 draft: `make_tiny_models.py --out OUT`, some three minutes on two cores.

Writes OUT/target, OUT/eagle3 and OUT/models.json (settings, losses, agreement per depth, tokens per cycle,
SHA-256 of the weights). Everything is made in OUT.partial, which becomes OUT at the end. The same seed,
Python, PyTorch and processor give the same weights; GPUs do not: train several there and keep the best.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

# Threads that wait by spinning slow each other down tenfold where other work runs on the same cores.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from tiny import conversations, corpus, eagle3, export, llama, training

CONTEXT_LENGTH = 2048
KV_HEADS = 2
PROMPTS = Path(__file__).parents[1] / "prompts/default.jsonl"
JUDGED_PROMPTS, JUDGED_TOKENS, JUDGED_STEPS = 8, 128, 3


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """The command line, checked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder to write; replaced when it exists")
    parser.add_argument("--hidden", type=int, default=96, help="channels (default %(default)s)")
    parser.add_argument("--layers", type=int, default=10, help="of the target, 4 or more (%(default)s)")
    parser.add_argument("--heads", type=int, default=4, help="query heads, an even number (%(default)s)")
    parser.add_argument("--vocab", type=int, default=384, help="tokens of the vocabulary (%(default)s)")
    parser.add_argument("--corpus-chars", type=int, default=60_000, help="text to learn (%(default)s)")
    parser.add_argument(
        "--conversations", type=int, default=0,
        help="exchanges in the chat template's form to learn the text from, some 400 for 60 000 characters;"
        " for models that can learn it by heart, larger than the default (%(default)s: the bare text)",
    )  # fmt: skip
    parser.add_argument("--train-steps", type=int, default=600, help="of the target (%(default)s)")
    parser.add_argument("--draft-steps", type=int, default=300, help="of the draft (%(default)s)")
    parser.add_argument("--length", type=int, default=256, help="tokens of a training excerpt (%(default)s)")
    parser.add_argument("--batch", type=int, default=4, help="excerpts per step (%(default)s)")
    parser.add_argument("--depths", type=int, default=3, help="draft depths to train (%(default)s)")
    parser.add_argument(
        "--own-texts", type=int, default=128, help="of the target, for the draft (%(default)s)"
    )
    parser.add_argument(
        "--shuffled", type=float, default=0.3, help="share of them from shuffled prompts (%(default)s)"
    )
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="of the weights")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where to train")
    args = parser.parse_args(argv)
    for wrong, why in {
        args.layers < 4: "--layers: EAGLE-3 reads three different layers of its target; 4 or more are needed",
        bool(args.heads % KV_HEADS): f"--heads: a multiple of {KV_HEADS} is needed",
        bool(args.hidden % (2 * args.heads)): "--hidden: a multiple of twice --heads is needed",
        args.vocab < 300: "--vocab: 300 or more are needed (256 bytes and some words)",
        min(args.train_steps, args.draft_steps) < 1: "--train-steps, --draft-steps: 1 or more are needed",
        not 0 <= args.shuffled <= 1: "--shuffled: a share between 0 and 1 is needed",
        args.conversations < 0: "--conversations: 0 or more are needed",
        args.corpus_chars < 1: "--corpus-chars: 1 or more are needed",
        args.own_texts < 2: "--own-texts: 2 or more are needed",
        args.device == "cuda" and not torch.cuda.is_available(): "--device cuda: PyTorch sees no GPU",
    }.items():
        if wrong:
            parser.error(why)
    return args


def make(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Train both models and write them below `folder`; what models.json holds."""
    began = time.monotonic()

    def report(text: str) -> None:
        print(f"[{time.monotonic() - began:5.0f} s] {text}", flush=True)

    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")  # TF32 on a GPU; no change on a CPU
    texts = corpus.paragraphs(args.corpus_chars)
    tokenizer = corpus.train_tokenizer(texts, args.vocab)
    text = " ".join(texts)
    if args.conversations:
        text = conversations.conversations(texts, args.conversations, args.seed)
    tokens = torch.tensor(tokenizer.encode(text).ids, device=args.device)
    if len(tokens) < args.length + 2:
        sys.exit(f"--length: the text has {len(tokens)} tokens; more --corpus-chars or --conversations help")
    report(f"corpus: {len(texts)} paragraphs, {len(tokens)} tokens")

    shape = llama.Shape(args.vocab, args.hidden, args.layers, args.heads, KV_HEADS)
    schedule = training.Schedule(args.train_steps, args.batch, args.length)
    target = llama.Llama(shape).to(args.device)
    target_losses = training.train_target(target, tokens, schedule, args.seed, report)
    target.eval().requires_grad_(False)

    own = training.own_text(target, tokens, args.own_texts, args.length, args.seed + 1, args.shuffled)
    report(f"the target wrote {len(own)} tokens for the draft to learn from")
    schedule = training.Schedule(args.draft_steps, args.batch, args.length)
    draft = eagle3.Draft(target).to(args.device)
    draft_losses = training.train_draft(draft, target, own, schedule, args.depths, args.seed + 2, report)
    agreement = training.agreement(draft, target, own, schedule, args.depths, args.seed + 3)
    report(f"draft agrees with the target at depth 1, 2, ...: {agreement}")
    judged = [
        training.tokens_per_cycle(draft, target, tokenizer.encode(prompt).ids, JUDGED_TOKENS, JUDGED_STEPS)
        for prompt in export.as_served(PROMPTS, JUDGED_PROMPTS)
    ]
    report(f"tokens per cycle at {JUDGED_STEPS} steps, by prompt: {[round(x, 2) for x in judged]}")

    dtype = getattr(torch, args.dtype)
    return {
        "settings": {k: v for k, v in vars(args).items() if k != "out"},
        "corpus": {
            "paragraphs": len(texts),
            "tokens": len(tokens),
            "sha256": hashlib.sha256(text.encode()).hexdigest(),
        },
        "target": {
            "parameters": sum(p.numel() for p in target.parameters()),
            "losses": target_losses,
            "weights_sha256": export.save_target(folder / "target", target, tokenizer, dtype, CONTEXT_LENGTH),
        },
        "eagle3": {
            "parameters": sum(p.numel() for p in draft.parameters()),
            "losses": draft_losses,
            "agreement_per_depth": agreement,
            "tokens_per_cycle": round(statistics.median(judged), 3),
            "weights_sha256": export.save_draft(folder / "eagle3", draft, tokenizer, dtype, CONTEXT_LENGTH),
        },
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "seconds": round(time.monotonic() - began, 1),
    }


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    args = arguments(argv)
    export.save_both(args.out, lambda folder: make(args, folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
