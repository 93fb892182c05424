"""The flags of a server's command line, taken apart as config: arguments, speculative section, steps."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from quietgate.study.importing.shell_variables import is_expansion

Config = dict[str, Any]

# Flags that the grid and the speculative section decide, by the word argparse knows them by.
_SPECULATIVE = {
    "speculative-algorithm": "algorithm",
    "speculative-draft-model-path": "draft_model_path",
    "speculative-draft-model": "draft_model_path",
    "speculative-num-steps": "steps",
    "speculative-eagle-topk": "topk",
    "speculative-num-draft-tokens": "draft_tokens",
}
# Flags of these names take no value: an expansion behind them stands for further flags.
_BARE = re.compile(r"(?:enable|disable|skip|trust)[-_]")
# What stands for any number of words.
_MANY = re.compile(r"\$[@*]|\$\{\w+:?\+\s*[\"']?-.*\}", re.S)


@dataclass
class Speculation:
    """What a command says of speculation.

    Attributes:
        section: server.speculative.
        steps: grid.steps; 0 without speculation.
        notes: what it does not say.
    """

    section: Config = field(default_factory=dict)
    steps: int = 0
    notes: list[str] = field(default_factory=list)


def read(words: list[str], notes: list[str]) -> Config:
    """Flags without dashes, in order; True for a bare one, a list for several values.

    Args:
        words: the command line behind the program.
        notes: is told what is left out.
    """
    flags: Config = {}
    name: str | None = None
    for word in words:
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            if name in flags:
                notes.append(f"--{name} stands twice; the last one counts, as for SGLang")
                del flags[name]
            flags[name] = typed(value) if equals else True
        elif _is_more_flags(word, name, flags):
            notes.append(
                f"{word} stands for flags that are not known here and is left out; add them to server.args"
            )
        elif name is None and not flags:
            flags["model-path"] = word
            notes.append(f"{word} stands before any flag, where sglang serve takes the model: --model-path")
        elif name is None:
            notes.append(f"{word!r} stands before any flag and is left out")
        elif flags[name] is True:
            flags[name] = typed(word)
        else:
            before = flags[name]
            flags[name] = [*(before if isinstance(before, list) else [before]), typed(word)]
    return flags


def _is_more_flags(word: str, name: str | None, flags: Config) -> bool:
    """Does an expansion that is not known stand for flags, and not for the value of the one before it?"""
    if not is_expansion(word):
        return False
    return name is None or flags[name] is not True or bool(_MANY.fullmatch(word) or _BARE.match(name))


def typed(text: str) -> str | int | float:
    """A number only where it is written back exactly as it was read; else the text."""
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        if str(number) == text:
            return number
    return text


def split(flags: Config) -> tuple[Config, Speculation]:
    """The plain arguments, and what the command says of speculation."""
    args: Config = {}
    found: Config = {}
    others: Config = {}
    for flag, value in flags.items():
        key = _speculative_key(flag)
        if key is not None:
            found[key] = value
        elif flag.replace("_", "-").startswith("speculative-"):
            others[flag] = value
        else:
            args[flag] = value
    return args, _speculation(found, others) if found or others else Speculation()


def _speculative_key(flag: str) -> str | None:
    """Of a flag, spelled or abbreviated as argparse allows: its key in the speculative section."""
    name = flag.replace("_", "-")
    if name in _SPECULATIVE:
        return _SPECULATIVE[name]
    longer = {key for known, key in _SPECULATIVE.items() if known.startswith(name)}
    return longer.pop() if len(name) > len("speculative-") and len(longer) == 1 else None


def _speculation(found: Config, others: Config) -> Speculation:
    algorithm, steps = found.get("algorithm"), found.get("steps")
    if algorithm is None:
        note = "speculative flags without --speculative-algorithm: SGLang runs without speculation, steps 0"
        return Speculation({"args": others} if others else {}, 0, [note])
    said = Speculation({"algorithm": str(algorithm)})
    if found.get("draft_model_path") is not None:
        said.section["draft_model_path"] = str(found["draft_model_path"])
    if isinstance(steps, int):
        said.steps = steps
    else:
        said.steps = 3
        said.notes.append(
            f"--speculative-algorithm {algorithm} without a number of steps: SGLang would choose steps, "
            "topk and draft tokens itself; grid.steps [3] is a guess, write yours"
            if steps is None
            else f"--speculative-num-steps is {steps}, no number known here; grid.steps [3] is a guess, "
            "write yours"
        )
    for key, flag, default in (
        ("topk", "--speculative-eagle-topk", "1"),
        ("draft_tokens", "--speculative-num-draft-tokens", "steps + 1"),
    ):
        value = found.get(key)
        if isinstance(value, int):
            said.section[key] = value
        else:
            what = "not in the command" if value is None else f"{value}, no number known here"
            said.notes.append(f"{flag} is {what}; the config's default ({default}) is put in")
    if others:
        said.section["args"] = others
    return said
