"""The prompt files people have: what one line of each kind says.

    {"prompt": "..."}                                           plain
    {"messages": [{"role": "user", "content": "..."}]}          OpenAI (and its batch files, by `body`)
    {"conversations": [{"from": "human", "value": "..."}]}      ShareGPT
    {"turns": ["..."]}                                          MT-Bench and its relatives

The kind is seen from the keys, line by line. `id` (or `question_id`, `custom_id`) and `category` are
taken where they are. A conversation is cut after what the person said last before an answer is due:
ShareGPT and MT-Bench after the first turn, as SGLang's own benchmark does, OpenAI messages after the
last one; what comes after the cut is not looked at. ShareGPT as it is handed round has conversations in which
nobody says anything: these are left out.
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
ROLES |= {"developer": "system"}  # OpenAI's newer name


def read(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, object) of every entry: JSON lines, or one JSON array as ShareGPT is handed round."""
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors begin a file with a byte-order mark
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
        # Not splitlines: it also cuts at separators that a text in JSON may hold as they are.
        for number, line in enumerate(text.split("\n"), 1):
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
    """What one entry asks, as messages that end with the person's turn; none of an empty ShareGPT one."""
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
    items = _several(value, where, "messages")
    for i, item in enumerate(items):
        if not isinstance(item, dict):
            raise BadInput(f"{where}: messages[{i}]: an object with role and content is needed")
    # Answers behind the last question need not be texts: a call of a tool has none.
    asked = [i for i, item in enumerate(items) if ROLES.get(str(item.get("role")).lower()) == "user"]
    found = []
    for i, item in enumerate(items[: asked[-1] + 1] if asked else items):
        place = f"messages[{i}]"
        if item.get("role") in ("tool", "function") or item.get("tool_calls"):
            raise BadInput(f"{where}: {place}: calls of tools cannot be sent; leave this entry out")
        if "content" not in item:
            raise BadInput(f"{where}: {place}: an object with role and content is needed")
        found.append(_message(_role(item.get("role"), where, place), item["content"], where, place))
    return _asking(found, where, "messages")


def _share_gpt(value: Any, where: str) -> list[Message]:
    if not isinstance(value, list):
        raise BadInput(f"{where}: conversations: a list is needed")
    found: list[Message] = []
    for i, item in enumerate(value):
        place = f"conversations[{i}]"
        if not isinstance(item, dict) or "value" not in item:
            raise BadInput(f"{where}: {place}: an object with from and value is needed")
        role = _role(item.get("from"), where, place)
        if isinstance(item["value"], str) and not item["value"].strip():
            if role == "user":
                return []
            continue
        if role == "assistant":
            continue  # shared conversations may begin in the middle
        found.append(_message(role, item["value"], where, place))
        if role == "user":
            return found
    return []


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
    if isinstance(content, str):
        try:
            content.encode()
        except UnicodeEncodeError:
            raise BadInput(
                f"{where}: {place}: half a surrogate pair in the text, which is no character"
            ) from None
    # An empty system message says something to a template: not to put its own there.
    if not isinstance(content, str) or not (content.strip() or role == "system"):
        raise BadInput(f"{where}: {place}: a text is needed, not {_brief(content)}")
    return {"role": role, "content": content}


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 60 else text[:57] + "..."
