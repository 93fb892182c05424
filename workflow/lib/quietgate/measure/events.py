"""Server-sent events out of a byte stream, whatever the borders of its reads."""

from __future__ import annotations


class Events:
    """Splits what `feed` gets into the data of whole events.

    JSON escapes line breaks, so a raw one always belongs to the protocol. An event that the stream
    leaves unfinished is never given out.
    """

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The events that `data` completes, in order; comments and other fields are left out."""
        if self._rest:
            data = self._rest + data
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n")
        *whole, self._rest = data.split(b"\n\n")
        return [event for block in whole if (event := _data(block)) is not None]


def _data(block: bytes) -> bytes | None:
    if block.startswith(b"data: ") and b"\n" not in block:
        return block[6:]
    lines = [line[5:].removeprefix(b" ") for line in block.split(b"\n") if line[:5] == b"data:"]
    return b"\n".join(lines) if lines else None
