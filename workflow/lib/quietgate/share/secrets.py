"""What looks like a secret: by its shape, or by the name of the variable, flag or field that holds it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

SECRET = "[secret]"

_START = r"(?<![A-Za-z0-9])"
SHAPES = re.compile(
    "|".join(
        (
            _START + r"hf_[A-Za-z0-9]{20,}",
            _START + r"(?:sk|rk|pk)-[A-Za-z0-9_-]{20,}",
            _START + r"gh[pousr]_[A-Za-z0-9]{20,}",
            _START + r"github_pat_[A-Za-z0-9_]{20,}",
            _START + r"glpat-[A-Za-z0-9_-]{16,}",
            _START + r"nvapi-[A-Za-z0-9_-]{20,}",
            _START + r"A(?:KIA|SIA)[0-9A-Z]{16}",
            _START + r"AIza[A-Za-z0-9_-]{35}",
            _START + r"xox[abprs]-[A-Za-z0-9-]{10,}",
            _START + r"eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}",
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----",
            r"(?<=://)[^/\s:@\"']+:[^/\s@\"']+(?=@)",
            r"(?i:(?<=bearer )[A-Za-z0-9._~+/=-]{8,})",
        )
    ),
    re.DOTALL,
)

# A name that ends like this holds a secret; `tokens` counts them and `eos_token` is a word of the model.
_WORDS = r"(?:token|secret|password|passwd|api[_-]?key|credentials?|access[_-]?key|private[_-]?key)"
_NAME = re.compile(rf"(?i)(?:.*[_.-])?{_WORDS}")
_NOT_SECRET = re.compile(
    r"(?i)(?:.*[_.-])?(?:bos|eos|pad|unk|mask|sep|cls|stop|first|last|next|new)[_-]token"
)
_ASSIGNED = re.compile(
    rf"(?i)(?<![A-Za-z0-9_.-])(?P<name>[A-Za-z0-9_.-]*{_WORDS})"
    r"(?:\"\s*:\s*|'\s*:\s*|=|(?<=[a-z])\s+(?=\S))(?P<quote>[\"']?)(?P<value>[^\s\"',;)\]}]+)"
)
# Shorter or plain values are no secrets, and replacing them would hide what matters.
_SHORTEST = 6


def is_secret_name(name: str) -> bool:
    """Whether a variable, flag or field of that name holds a secret."""
    bare = name.lstrip("-")
    return bool(_NAME.fullmatch(bare)) and not _NOT_SECRET.fullmatch(bare)


def is_secret_value(value: str) -> bool:
    """Whether a value may be one: long enough, and neither a number nor a switch."""
    return (
        len(value) >= _SHORTEST
        and not SECRET.startswith(value)
        and re.search(r"[A-Za-z]", value) is not None
        and value.lower() not in ("false", "default", "disabled", "enabled", "required")
    )


def assigned(text: str) -> Iterator[str]:
    """Values in free text behind a name that says so: NAME=value, --name value, "name": "value"."""
    for found in _ASSIGNED.finditer(text):
        name, value = found["name"], found["value"]
        gap = text[found.end("name") : found.start("value")]
        # Without a sign between them only an option has a value: `the token expired` has none.
        if gap.isspace() and not name.startswith("--"):
            continue
        if is_secret_name(name) and is_secret_value(value):
            yield value


def held(value: Any) -> Iterator[str]:
    """Values in parsed JSON under a name that says so: fields, variables, and options in command lines."""
    if isinstance(value, dict):
        for key, one in value.items():
            if isinstance(one, str) and is_secret_name(str(key)) and is_secret_value(one):
                yield one
            else:
                yield from held(one)
    elif isinstance(value, list):
        for i, one in enumerate(value):
            if isinstance(one, str):
                flag = value[i - 1] if i else None
                if (
                    isinstance(flag, str)
                    and flag.startswith("--")
                    and is_secret_name(flag)
                    and is_secret_value(one)
                ):
                    yield one
            else:
                yield from held(one)
