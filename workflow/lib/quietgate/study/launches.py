"""What the command line of an SGLang server looks like."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath


@dataclass
class Launch:
    """A server's command, freed of what stands around it.

    Attributes:
        line: where it starts in the file.
        words: the command: interpreter, entry, flags.
        environment: variables set for it.
        unset: variables removed for it.
        folder: its working folder, or None.
        notes: what was dropped or cannot be known.
    """

    line: int
    words: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    unset: list[str] = field(default_factory=list)
    folder: str | None = None
    notes: list[str] = field(default_factory=list)


def is_server(words: list[str]) -> bool:
    """Is this (the rest of) a command line that starts an SGLang server?"""
    return server_at(words) is not None and not {"-h", "--help"} & set(words)


def server_at(words: list[str]) -> int | None:
    """Index of the word behind which the server's flags begin (launch_server, or serve), or None."""
    python = False
    for i, word in enumerate(words):
        name = PurePosixPath(word).name
        if name == "launch_server.py" and (python or i == 0):
            return i
        if word == "sglang.launch_server" and python and words[i - 1] == "-m":
            return i
        if name == "sglang" and words[i + 1 : i + 2] == ["serve"]:
            return i + 1
        if word.startswith("--") and i:
            break
        python |= name.startswith("python")
    return None
