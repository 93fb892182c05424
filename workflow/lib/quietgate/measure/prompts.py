"""The prompts of a study: our own small set, or the user's file, as the texts that are sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from quietgate.errors import BadInput
from quietgate.measure import chat_template as templates
from quietgate.measure import prompt_formats

OWN = Path(__file__).parents[3] / "prompts" / "default.jsonl"
# Stands before what the person says while a template is applied: a character no text has.
_MARK = "\ue000"


@dataclass(frozen=True)
class Prompt:
    """One prompt.

    Attributes:
        id: its name in the file, else its line number.
        category: what kind of text it asks for ("other" where the file does not say).
        text: exactly what is sent.
        body_at: where in `text` the person's words begin (after a system prompt or a template).
    """

    id: str
    category: str
    text: str
    body_at: int = 0

    def variant(self, number: int) -> Prompt:
        """The same prompt with a number before the person's words, so that no cache knows it."""
        text = f"{self.text[: self.body_at]}({number}) {self.text[self.body_at :]}"
        return replace(self, id=f"{self.id}#{number}", text=text)


def load(
    path: Path | None = None, model_dir: Path | None = None, chat_template: str = "auto"
) -> list[Prompt]:
    """Read a prompts file.

    Args:
        path: JSON lines of any kind that `prompt_formats` knows; None: the project's own set.
        model_dir: the target model, for its chat template; None: it is not on this machine.
        chat_template: "auto" applies the model's template where it has one, "off" never.

    A text that an earlier line has already is left out: its answer would come from the cache.

    Raises:
        BadInput: names file and line.
    """
    if chat_template not in ("auto", "off"):
        raise BadInput(f"chat_template: {chat_template!r} is neither auto nor off")
    path = path or OWN
    template = templates.load(model_dir) if model_dir and chat_template == "auto" else None
    found: dict[str, Prompt] = {}
    names: dict[str, str] = {}
    for number, (where, entry) in enumerate(prompt_formats.read(path), 1):
        name = prompt_formats.name(entry, str(number))
        messages = prompt_formats.messages(entry, where)
        if not messages:
            continue
        try:
            text, body_at = _sent(messages, template)
        except BadInput as e:
            raise BadInput(f"{where}: {e}") from None
        if text in found:
            continue
        if name in names:
            raise BadInput(f"{where}: id {name!r} is taken by {names[name]}; ids must differ")
        names[name] = where
        found[text] = Prompt(name, str(entry.get("category") or "other"), text, body_at)
    if not found:
        raise BadInput(f"{path}: no prompt in it")
    return list(found.values())


def enough(prompts: Sequence[Prompt], count: int) -> list[Prompt]:
    """Exactly `count` prompts: the first ones, then numbered variants of all, round after round."""
    if not prompts:
        return []
    out = list(prompts[:count])
    number = 2
    while len(out) < count:
        out += [prompt.variant(number) for prompt in prompts[: count - len(out)]]
        number += 1
    return out


def _sent(messages: list[prompt_formats.Message], template: templates.Template | None) -> tuple[str, int]:
    """The text of a conversation and where the person's first words are in it."""
    if template is None:
        messages = [message for message in messages if message["content"]]
    first = next(i for i, message in enumerate(messages) if message["role"] == "user")
    if template is None:
        contents = [message["content"] for message in messages]
        return "\n\n".join(contents), len("\n\n".join([*contents[:first], ""]))
    marked = [dict(message) for message in messages]
    # Templates trim what a person says: a leading space would move the mark.
    marked[first]["content"] = _MARK + marked[first]["content"].lstrip()
    text = template(marked)
    return text.replace(_MARK, ""), max(text.find(_MARK), 0)
