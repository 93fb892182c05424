"""Chat templates as transformers runs them: jinja2 in a sandbox, with what templates may call."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from quietgate.errors import BadInput

# Some templates print today's date. Prompts must be the same in every cell and on every day.
DATE = dt.datetime(2026, 1, 1)


class _Generation(Extension):
    """`{% generation %}...{% endgeneration %}` marks what a model wrote: only its body counts here."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 reads the set from the class

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def compiled(source: str, tokens: Mapping[str, str], where: str) -> Callable[[list[dict[str, str]]], str]:
    """A template as a function of messages; `where` names it in BadInput, raised here and by the function."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = DATE.strftime
    try:
        template = environment.from_string(source)
    except TemplateError as e:
        raise BadInput(f"{where}: not a chat template that jinja2 can read ({e})") from None

    def render(messages: list[dict[str, str]]) -> str:
        try:
            return template.render(
                messages=messages, add_generation_prompt=True, tools=None, documents=None, **tokens
            )
        except (TemplateError, TypeError, ValueError) as e:
            raise BadInput(
                f"{where}: does not take these messages ({e}); set chat_template: off to send the text alone"
            ) from None

    return render


def _to_json(value: Any, **options: Any) -> str:
    # jinja2's own filter escapes for HTML.
    return json.dumps(value, ensure_ascii=False, **options)


def _raise(message: str) -> None:
    raise TemplateError(message)
