"""A model's own chat template, applied without its tokenizer: jinja2 in a sandbox."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from quietgate.errors import BadInput

Message = dict[str, str]
Template = Callable[[list[Message]], str]

# Some templates print today's date. Prompts must be the same in every cell and on every day.
DATE = dt.datetime(2026, 1, 1)
# The special tokens a template may name.
TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token")


class _Generation(Extension):
    """`{% generation %}...{% endgeneration %}` marks what a model wrote: only its body counts here."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 reads the set from the class

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def load(model_dir: Path) -> Template | None:
    """The template of the model in `model_dir` as a function of messages; None if it has none.

    A leading begin-of-text token is taken off: the server's tokenizer adds its own to a text, and
    two of them are another prompt than the model was trained on.
    """
    config = _config(model_dir / "tokenizer_config.json")
    source, where = _source(model_dir, config)
    if source is None:
        return None
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = DATE.strftime
    tokens = {name: _token(config.get(name)) for name in TOKENS if config.get(name)}
    bos = tokens.get("bos_token", "")
    try:
        template = environment.from_string(source)
    except TemplateError as e:
        raise BadInput(f"{where}: not a chat template that jinja2 can read ({e})") from None

    def apply(messages: list[Message]) -> str:
        try:
            text = template.render(
                messages=messages, add_generation_prompt=True, tools=None, documents=None, **tokens
            )
        except (TemplateError, TypeError, ValueError) as e:
            raise BadInput(
                f"{where}: does not take these messages ({e}); set chat_template: off to send the text alone"
            ) from None
        return text.removeprefix(bos) if bos else text

    return apply


def _config(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text())
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
        return own.read_text(), own
    where = model_dir / "tokenizer_config.json"
    found = config.get("chat_template")
    if isinstance(found, list):  # several by name
        named = {t.get("name"): t.get("template") for t in found if isinstance(t, dict)}
        found = named.get("default")
    return (found if isinstance(found, str) else None), where


def _token(value: Any) -> str:
    return str(value.get("content", "")) if isinstance(value, dict) else str(value)


def _to_json(value: Any, **options: Any) -> str:
    # jinja2's own filter escapes for HTML.
    return json.dumps(value, ensure_ascii=False, **options)


def _raise(message: str) -> None:
    raise TemplateError(message)
