"""A model's own chat template, found beside its weights and applied without its tokenizer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from quietgate.errors import BadInput

Message = dict[str, str]
Template = Callable[[list[Message]], str]

# The special tokens a template may name.
TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token")


def load(model_dir: Path) -> Template | None:
    """The template of the model in `model_dir` as a function of messages; None if it has none.

    A leading begin-of-text token is taken off: the server's tokenizer adds its own to a text, and
    two of them are another prompt than the model was trained on.
    """
    config = _config(model_dir / "tokenizer_config.json")
    source, where = _source(model_dir, config)
    if source is None:
        return None
    # Imported here: most jobs have no template to compile.
    from quietgate.measure.sandbox import compiled

    tokens = {name: _token(config.get(name)) for name in TOKENS if config.get(name)}
    render = compiled(source, tokens, str(where))
    bos = tokens.get("bos_token", "")
    return lambda messages: render(messages).removeprefix(bos)


def _config(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as e:
        raise BadInput(f"{path}: not readable as JSON ({e})") from None
    if not isinstance(value, dict):
        raise BadInput(f"{path}: a JSON object is needed")
    return value


def _source(model_dir: Path, config: dict[str, Any]) -> tuple[str | None, Path]:
    """The template's text and the file it is in; a file of its own comes first, as in transformers."""
    own = model_dir / "chat_template.jinja"
    if own.is_file():
        return own.read_text(encoding="utf-8"), own
    where = model_dir / "tokenizer_config.json"
    found = config.get("chat_template")
    if isinstance(found, list):  # several by name
        named = {t.get("name"): t.get("template") for t in found if isinstance(t, dict)}
        found = named.get("default")
    return (found if isinstance(found, str) else None), where


def _token(value: Any) -> str:
    return str(value.get("content", "")) if isinstance(value, dict) else str(value)
