"""Where in a text the launches are: scripts, fenced blocks, files of other tools, sentences."""

from __future__ import annotations

import re

from quietgate.study.importing import container_specs, dialects, pasted_text, python_sources, shell_script
from quietgate.study.importing.launches import Launch
from quietgate.study.importing.wrappers import server_launches

_QUOTED = tuple(
    re.compile(rf"{q}([^{q}\n]*(?:-m sglang\.launch_server|sglang serve) [^{q}\n]*){q}") for q in "`\"'"
)
_MENTION = re.compile(r"-m sglang\.launch_server\b|\bsglang serve\b")
_MOST_MENTIONS = 20


def launches(text: str) -> tuple[list[Launch], list[str]]:
    """The servers that a text starts, in its order, and what could not be done in it.

    Args:
        text: a script, a page, a terminal, a file of another tool.
    """
    text, notes = pasted_text.cleaned(text)
    found: list[Launch] = []
    shell: list[str] = []
    for block in pasted_text.fenced(text) or [text]:
        inside = container_specs.launches(block) or python_sources.launches(block)
        found += inside
        shell += [] if inside else [block]
    if shell:
        in_shell, more = _shell_launches(pasted_text.overlaid(shell))
        found, notes = sorted([*found, *in_shell], key=lambda launch: launch.line), notes + more
    if not found:
        found, more = _from_its_line(text)
        notes += more
    # A command in the middle of a sentence, or in a string of any language.
    for quoted in _QUOTED:
        for words in quoted.finditer(text) if not found else ():
            commands = shell_script.read(words[1], text.count("\n", 0, words.start()) + 1).commands
            found += [launch for command in commands for launch in server_launches(command)]
    return found, notes


def _shell_launches(text: str) -> tuple[list[Launch], list[str]]:
    shell, about = dialects.as_shell(text)
    script = shell_script.read(shell)
    found = [launch for command in script.commands for launch in server_launches(command)]
    # A script that only writes another one.
    for heredoc in script.heredocs if not found else ():
        inner = shell_script.read(
            heredoc.text, heredoc.line, script.variables if heredoc.is_expanded else None
        )
        found += [launch for command in inner.commands for launch in server_launches(command)]
        script.notes += inner.notes
    return found, [*script.notes, *about] if found else []


def _from_its_line(text: str) -> tuple[list[Launch], list[str]]:
    """The servers of a text read from the line of a launch on: an apostrophe before it may quote it."""
    lines = text.split("\n")
    mentions = [i for i, line in enumerate(lines) if _MENTION.search(line)]
    for i in mentions[:_MOST_MENTIONS]:
        script = shell_script.read("\n".join(lines[i:]), i + 1)
        if found := [launch for command in script.commands for launch in server_launches(command)]:
            note = f"line {i + 1}: an open quotation closes behind this line; what stands before is not read"
            return found, [note, *script.notes]
    return [], []
