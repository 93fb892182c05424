"""The prompt files people have: what one line of each kind says.

    {"prompt": "..."}                                           plain
    {"messages": [{"role": "user", "content": "..."}]}          OpenAI (and its batch files, by `body`)
    {"conversations": [{"from": "human", "value": "..."}]}      ShareGPT
    {"turns": ["..."]}                                          MT-Bench and its relatives

The kind is seen from the keys, line by line. `id` (or `question_id`, `custom_id`) and `category` are
taken where they are. A conversation is cut after what the person said last before an answer is due:
ShareGPT and MT-Bench after the first turn, as SGLang's own benchmark does, OpenAI messages after the
last one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from quietgate.errors import BadInput

Message = dict[str, str]
KINDS = '"prompt", "messages", "conversations" or "turns"'
ROLES = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant"}
ROLES |= {"chatgpt": "assistant", "bing": "assistant", "bard": "assistant", "system": "system"}


def read(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, object) of every entry: JSON lines, or one JSON array as ShareGPT is handed round."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadInput(f"{path}: no such prompts file") from None
    except (OSError, UnicodeDecodeError) as e:
        raise BadInput(f"{path}: not readable as UTF-8 text ({e})") from None
    entries: list[tuple[str, Any]] = []
    if text.lstrip().startswith("["):
        try:
            entries = [(f"{path}: entry {i}", v) for i, v in enumerate(json.loads(text), 1)]
        except ValueError as e:
            raise BadInput(f"{path}: begins like a JSON array but is none ({e})") from None
    else:
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip():
                continue
            try:
                entries.append((f"{path}:{number}", json.loads(line)))
            except ValueError as e:
                raise BadInput(f"{path}:{number}: not JSON ({e})") from None
    for where, value in entries:
        if not isinstance(value, dict):
            raise BadInput(f"{where}: an object with {KINDS} is needed, not {_brief(value)}")
        yield where, value


def messages(entry: dict[str, Any], where: str) -> list[Message]:
    """What one entry asks, as messages that end with the person's turn."""
    if isinstance(entry.get("body"), dict):
        entry = entry["body"]
    if "prompt" in entry:
        found = [_message("user", entry["prompt"], where, "prompt")]
    elif "messages" in entry:
        found = _openai(entry["messages"], where)
    elif "conversations" in entry:
        found = _share_gpt(entry["conversations"], where)
    elif "turns" in entry:
        turns = _several(entry["turns"], where, "turns")
        found = [_message("user", turns[0], where, "turns[0]")]
    else:
        raise BadInput(f"{where}: no {KINDS} in it (it has: {', '.join(sorted(entry)) or 'nothing'})")
    return found


def name(entry: dict[str, Any], fallback: str) -> str:
    """The entry's own name."""
    for key in ("id", "question_id", "custom_id"):
        if entry.get(key) is not None:
            return str(entry[key])
    return fallback


def _openai(value: Any, where: str) -> list[Message]:
    found = []
    for i, item in enumerate(_several(value, where, "messages")):
        place = f"messages[{i}]"
        if not isinstance(item, dict) or "content" not in item:
            raise BadInput(f"{where}: {place}: an object with role and content is needed")
        found.append(_message(_role(item.get("role"), where, place), item["content"], where, place))
    while found and found[-1]["role"] != "user":
        found.pop()
    return _asking(found, where, "messages")


def _share_gpt(value: Any, where: str) -> list[Message]:
    found: list[Message] = []
    for i, item in enumerate(_several(value, where, "conversations")):
        place = f"conversations[{i}]"
        if not isinstance(item, dict) or "value" not in item:
            raise BadInput(f"{where}: {place}: an object with from and value is needed")
        role = _role(item.get("from"), where, place)
        if role == "assistant" and not found:
            continue  # shared conversations may begin in the middle
        found.append(_message(role, item["value"], where, place))
        if role != "system":
            break
    return _asking(found, where, "conversations")


def _asking(found: list[Message], where: str, key: str) -> list[Message]:
    if not found or found[-1]["role"] != "user":
        raise BadInput(f"{where}: {key}: nobody asks anything in it")
    return found


def _several(value: Any, where: str, key: str) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise BadInput(f"{where}: {key}: a list with at least one entry is needed")
    return value


def _role(value: Any, where: str, place: str) -> str:
    role = ROLES.get(str(value).lower())
    if role is None:
        raise BadInput(f"{where}: {place}: role {value!r} is none of {', '.join(ROLES)}")
    return role


def _message(role: str, content: Any, where: str, place: str) -> Message:
    if isinstance(content, list):  # OpenAI's content parts; only text can be sent here
        parts = [p.get("text") for p in content if isinstance(p, dict) and p.get("type") == "text"]
        if len(parts) != len(content) or not all(isinstance(p, str) for p in parts):
            raise BadInput(f"{where}: {place}: only text can be sent, no image or audio")
        content = "".join(str(p) for p in parts)
    if not isinstance(content, str) or not content.strip():
        raise BadInput(f"{where}: {place}: a text is needed, not {_brief(content)}")
    return {"role": role, "content": content}


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 60 else text[:57] + "..."
