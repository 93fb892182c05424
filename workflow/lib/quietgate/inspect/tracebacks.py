"""Python's exceptions in a log: their type and words, where they were raised, and in whose name."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence

from quietgate.inspect.prefixes import stamp, unwrapped

_EXCEPTION = re.compile(
    r"(?:[A-Za-z_]\w*\.)*"
    r"(?:[A-Z]\w*(?:Error|Exception|Timeout|Interrupt|Exit|Refused)|Exception|OutOfResources)(?::|$)\s*(.*)"
)
_MARKS = (b"Error", b"xception", b"Timeout", b"Interrupt", b"Exit", b"Refused")
_FRAME = re.compile(rb'File "([^"]+)", line (\d+)(?:, in (\S+))?')
_BEGINS = b"Traceback (most recent call last)"
_CHAINED = (b"During handling of the above exception", b"was the direct cause of the following exception")
_QUOTED = ("raise ", "assert ", "return ", "except ", 'File "')
# Triton names the place first, quotes the source, and gives the reason as the last line.
_COMPILATION = re.compile(r"CompilationError: at \d+:\d+:$")
_REASON = re.compile(rb"\w+(?:Error|Exception)\(.*\)")
_WORDS_WITHIN = 80  # lines after a compiler's error in which it gives its reason
_DRAFT = (b"raft_worker", b"raftWorker", b"eagle_worker", b"EAGLEWorker")
_LOADING = (b"load_weights", b"load_model", b"weight_loader")
# What a server writes before the traceback of a request, or of a task of its own, that it survives.
_SURVIVED = (
    b"Exception in ASGI application",
    b"Error in request",
    b"exception was never retrieved",
    b"[http_server] Error",
    b"Unexpected transfer worker error",
)


def may_raise(line: bytes) -> bool:
    """Is it worth looking for an exception in this line?"""
    return any(mark in line for mark in _MARKS)


def quoted(text: str) -> bool:
    """Is this message source code that a traceback quotes? It says what might happen, not what did."""
    return text.startswith(_QUOTED)


def raised(text: str) -> tuple[str, str] | None:
    """An exception's own type (without its module) and its whole line, where a message is one."""
    found = _EXCEPTION.match(text)
    # A structured shipper has a whole traceback in one line.
    found = found or _EXCEPTION.match(text.rpartition("\n")[2])
    if found is None:
        return None
    return found[0].partition(":")[0].rsplit(".", 1)[-1].strip(), found[0]


def with_reason(text: str, before: Sequence[bytes], after: Sequence[bytes]) -> str:
    """An exception's line, with its words where they stand on other lines.

    Args:
        before, after: the lines around it, from its nearest ones on.
    """
    if _COMPILATION.search(text):
        return _joined(text, (line for line in after[:_WORDS_WITHIN] if _REASON.match(line.strip())))
    if text.endswith("AssertionError"):  # its words are what was asserted
        lines = (line.strip() for line in before[:4])
        asserted = next((line for line in lines if line.startswith(b"assert ")), b"")
        return f"{text}: {asserted.decode('utf-8', 'replace')}" if asserted else text
    if text.endswith("Error:"):
        return _joined(text, (line for line in after[:2] if line.strip()))
    return text


def _joined(text: str, lines: Iterable[bytes]) -> str:
    return f"{text} {next(iter(lines), b'').decode('utf-8', 'replace').strip()}".strip()


def place(lines: Iterable[bytes]) -> str | None:
    """The first of these lines that names a place in a source, as "file.py:123 function"."""
    for line in lines:
        if found := _FRAME.search(unwrapped(line)):
            file, number, function = (g.decode("utf-8", "replace") if g else "" for g in found.groups())
            return f"{file.rsplit('/', 1)[-1]}:{number} {function}".rstrip()
    return None


def loads_a_draft(before: Iterable[bytes]) -> bool:
    """Was an exception raised while a draft's weights were loaded? By the lines above it, nearest first."""
    loading = False
    for line in before:
        if _BEGINS in line:
            break
        loading = loading or any(mark in line for mark in _LOADING)
        if loading and any(mark in line for mark in _DRAFT):
            return True
    return False


def ends_a_server(kind: str, before: Iterable[bytes]) -> bool:
    """Is this kind of exception how a stopped web server ends? By the lines above it, nearest first."""
    if kind != "CancelledError":
        return False
    frames = itertools.takewhile(lambda line: _BEGINS not in line, before)
    return any(b", in lifespan" in line for line in frames)


class Survived:
    """Follows whether a log's lines belong to the traceback of something that the server survives."""

    def __init__(self) -> None:
        self._here = False

    def see(self, line: bytes, before: Sequence[bytes]) -> bool:
        """Take a line, given the lines above it, nearest first: is it of such a traceback?"""
        if any(mark in line for mark in _SURVIVED):
            self._here = True
        elif b"hit an exception" in line or stamp(line)[1] is not None:
            self._here = False  # a line of the server's own
        elif _BEGINS in line and self._here:
            introduced = (*_SURVIVED, *_CHAINED)
            self._here = any(mark in above for above in before[:3] for mark in introduced)
        return self._here
