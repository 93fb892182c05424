"""The two folders that SGLang serves, in the files and names of the Hugging Face layout."""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from jinja2 import Template  # PyTorch brings it
from safetensors.torch import save_file
from tokenizers import Tokenizer

from .corpus import BOS, EOS
from .eagle3 import Draft, captured_layers
from .llama import NORM_EPS, ROPE_THETA, Llama, Shape

CHAT_TEMPLATE = (
    "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
_CHAT = Template(CHAT_TEMPLATE)


def rendered(turns: Sequence[str]) -> str:
    """What is said in turns, the user's first, in CHAT_TEMPLATE's form; after a question up to the answer."""
    roles = itertools.cycle(("user", "assistant"))
    messages = [{"role": role, "content": said} for role, said in zip(roles, turns, strict=False)]
    return _CHAT.render(messages=messages, add_generation_prompt=len(turns) % 2 == 1)


def as_served(prompts: Path, count: int) -> list[str]:
    """The first prompts of the workflow's own file as the text that is sent."""
    return [rendered([json.loads(line)["prompt"]]) for line in prompts.read_text().splitlines()[:count]]


def save_both(out: Path, make: Callable[[Path], dict[str, Any]]) -> None:
    """Let `make` write both models and put its record beside them as models.json.

    Everything is made in OUT.partial, which becomes OUT (replacing an older one) at the end.
    """
    partial = out.with_name(f"{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    record = make(partial)
    (partial / "models.json").write_text(json.dumps(record, indent=1) + "\n")
    shutil.rmtree(out, ignore_errors=True)
    partial.replace(out)
    print(f"done: {out}", flush=True)


def save_target(folder: Path, model: Llama, tokenizer: Tokenizer, dtype: torch.dtype, length: int) -> str:
    """Write the target; the SHA-256 of its weights."""
    config = _config(model.shape, dtype, length) | {
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": model.shape.layers,
    }
    return _save(folder, config, model.state_dict(), tokenizer, dtype, length)


def save_draft(folder: Path, draft: Draft, tokenizer: Tokenizer, dtype: torch.dtype, length: int) -> str:
    """Write the draft, which has the target's whole vocabulary; the SHA-256 of its weights."""
    shape = draft.shape
    config = _config(shape, dtype, length) | {
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_hidden_layers": 1,
        "draft_vocab_size": shape.vocab,
        "target_hidden_size": shape.hidden,
        # SGLang counts the state that leaves a layer, `captured_layers` the one that enters the next.
        "eagle_config": {
            "eagle_aux_hidden_state_layer_ids": [layer - 1 for layer in captured_layers(shape.layers)],
            "use_aux_hidden_state": True,
        },
    }
    same_vocabulary = {
        "d2t": torch.zeros(shape.vocab, dtype=torch.int64),  # offsets from draft to target tokens
        "t2d": torch.ones(shape.vocab, dtype=torch.bool),  # target tokens that the draft knows
    }
    return _save(folder, config, draft.state_dict() | same_vocabulary, tokenizer, dtype, length)


def _config(shape: Shape, dtype: torch.dtype, length: int) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.mlp,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_size,
        "hidden_act": "silu",
        "max_position_embeddings": length,
        "rms_norm_eps": NORM_EPS,
        "rope_theta": ROPE_THETA,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "dtype": str(dtype).removeprefix("torch."),
    }


def _save(
    folder: Path,
    config: dict[str, Any],
    state: dict[str, torch.Tensor],
    tokenizer: Tokenizer,
    dtype: torch.dtype,
    length: int,
) -> str:
    folder.mkdir(parents=True)
    weights = {
        name: (t.to(dtype) if t.is_floating_point() else t).detach().cpu().contiguous()
        for name, t in state.items()
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    _write(folder / "config.json", config)
    tokenizer.save(str(folder / "tokenizer.json"))
    about = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": EOS,
        "model_max_length": length,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    _write(folder / "tokenizer_config.json", about)
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def _write(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")
