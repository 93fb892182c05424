"""What the command line of an SGLang server looks like."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath


@dataclass
class Launch:
    """A server's command, freed of what stands around it.

    Attributes:
        line: where it starts in the file.
        program: the command up to its flags: what stands in front and stays, interpreter, entry.
        flags: the words behind.
        environment: variables set for it.
        unset: variables removed for it.
        folder: its working folder, or None.
        notes: what was dropped or cannot be known.
        unknown: expansions that stand as they are written -> a line that says so.
        conditions: the conditions before it, which are not followed: line -> word.
    """

    line: int
    program: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    unset: list[str] = field(default_factory=list)
    folder: str | None = None
    notes: list[str] = field(default_factory=list)
    unknown: dict[str, str] = field(default_factory=dict)
    conditions: dict[int, str] = field(default_factory=dict)


def server_at(words: list[str]) -> int | None:
    """Index of the word behind which the server's flags begin (launch_server, or serve), or None.

    None too where the command only asks for help.
    """
    if {"-h", "--help"} & set(words):
        return None
    python = False
    for i, word in enumerate(words):
        if word == "sglang.launch_server" and i and words[i - 1] == "-m":
            return i
        name = PurePosixPath(word).name
        if name == "launch_server.py" and (python or i == 0):
            return i
        if starts_cli(words[i:]):
            return i + 1
        python |= is_python(word)
    return None


def is_python(word: str) -> bool:
    """Is this the name or the path of a Python interpreter?"""
    return PurePosixPath(word).name.startswith("python")


def starts_cli(words: list[str]) -> bool:
    """Do these words begin with `sglang serve`?"""
    return PurePosixPath(words[0]).name == "sglang" and words[1:2] == ["serve"]
