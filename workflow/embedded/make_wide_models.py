"""Widen a tiny target and its draft: `make_wide_models.py --tiny TINY --out OUT --hidden 8192`, minutes.

The all-reduces of a tiny model are tiny. A wide one repeats every channel, head and unit of the tiny one and
divides what it sums by the number of repeats: it moves and multiplies as much as a large model, and still
writes the tiny model's text and accepts the tiny model's drafts, which a model with random weights does not.
With --seed the weights are random all the same: noise for text, no draft accepted, only times mean anything.

Writes OUT/target, OUT/eagle3 and OUT/models.json, as make_tiny_models.py does and from what it wrote.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from tiny import eagle3, export, llama
from tokenizers import Tokenizer
from torch import Tensor, nn

State = dict[str, Tensor]


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """The command line, checked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", type=Path, required=True, help="folder of make_tiny_models.py")
    parser.add_argument("--out", type=Path, required=True, help="folder to write; replaced when it exists")
    parser.add_argument("--hidden", type=int, default=8192, help="channels (default %(default)s)")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16", help="of the weights")
    parser.add_argument("--seed", type=int, help="random weights by this seed instead of the tiny model's")
    args = parser.parse_args(argv)
    if not (args.tiny / "models.json").is_file():
        parser.error(f"--tiny: no models.json in {args.tiny}; make_tiny_models.py writes it")
    narrow = shape_of(args.tiny).hidden
    if args.hidden % narrow or args.hidden == narrow:
        parser.error(f"--hidden: a multiple of the tiny model's {narrow} is needed")
    return args


def shape_of(tiny: Path) -> llama.Shape:
    """The sizes of the tiny target."""
    config = json.loads((tiny / "target" / "config.json").read_text())
    keys = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    return llama.Shape(*(config[key] for key in keys))


def widened(name: str, weight: Tensor, times: int) -> Tensor:
    """A weight for `times` as many channels, in each of which it does what it did.

    Heads keep their size: there are more of them, in whole groups, so that each finds its keys.
    """
    if name.endswith("embed_tokens.weight"):
        return weight.repeat(1, times)
    if weight.dim() == 1:
        return weight.repeat(times)
    # The inputs of a draft's projections are several vectors side by side, each repeated for itself.
    sides = 3 if name == "fc.weight" else 2 if name.startswith("midlayer.self_attn.") else 1
    sides = 1 if name.endswith("o_proj.weight") else sides
    columns = [part.repeat(1, times) / times for part in weight.chunk(sides, 1)]
    rows = 1 if name == "lm_head.weight" else times
    return torch.cat(columns, 1).repeat(rows, 1)


def randomised(state: State, seed: int) -> State:
    """The same shapes with random numbers that keep the size of what passes through."""
    generator = torch.Generator().manual_seed(seed)
    out = {}
    for name, weight in sorted(state.items()):
        if weight.dim() == 2:
            scale = 1.0 if name.endswith("embed_tokens.weight") else weight.shape[1] ** -0.5
            weight = torch.empty_like(weight).normal_(std=scale, generator=generator)
        out[name] = weight
    return out


def filled(model: nn.Module, source: Path, times: int, args: argparse.Namespace) -> Any:
    """`model` with the weights of the tiny one in `source`, widened or random; every shape is checked."""
    narrow = load_file(source / "model.safetensors")
    mine = {n: w.to(getattr(torch, args.dtype)) for n, w in narrow.items() if n not in ("d2t", "t2d")}
    state = {name: widened(name, weight, times) for name, weight in mine.items()}
    if args.seed is not None:
        state = randomised(state, args.seed)
    model.load_state_dict(state, assign=True)
    return model


def make(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Write both models below `folder`; what models.json holds."""
    narrow = shape_of(args.tiny)
    times = args.hidden // narrow.hidden
    shape = llama.Shape(
        narrow.vocab, args.hidden, narrow.layers, narrow.heads * times, narrow.kv_heads * times
    )
    with torch.device("meta"):  # shapes only: the weights are put in their place
        target = llama.Llama(shape)
        draft = eagle3.Draft(target)
    tokenizer = Tokenizer.from_file(str(args.tiny / "target" / "tokenizer.json"))
    dtype = getattr(torch, args.dtype)
    about = json.loads((args.tiny / "target" / "config.json").read_text())
    length = about["max_position_embeddings"]
    record: dict[str, Any] = {
        "settings": {k: str(v) if isinstance(v, Path) else v for k, v in vars(args).items() if k != "out"},
        "tiny": json.loads((args.tiny / "models.json").read_text()),
    }
    for name, model, save in (("target", target, export.save_target), ("eagle3", draft, export.save_draft)):
        filled(model, args.tiny / name, times, args)
        weights = save(folder / name, model, tokenizer, dtype, length)
        parameters = sum(p.numel() for p in model.parameters())
        record[name] = {"parameters": parameters, "weights_sha256": weights}
        model.to("meta")  # one at a time in memory
        print(f"{name}: hidden {args.hidden}, {parameters / 1e9:.2f} billion parameters", flush=True)
    return record


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    args = arguments(argv)
    export.save_both(args.out, lambda folder: make(args, folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
