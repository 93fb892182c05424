"""A minimal HTTP/1.1 server on asyncio streams: keep-alive, fixed or chunked bodies."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass
class Call:
    """One HTTP request and the means to answer it."""

    method: str
    path: str
    query: dict[str, str]
    body: bytes
    writer: asyncio.StreamWriter
    status: int = 0

    def json(self) -> dict[str, Any]:
        """The body as a JSON object; ValueError where it is none."""
        value = json.loads(self.body or b"{}")
        if not isinstance(value, dict):
            raise ValueError("the body is no JSON object")
        return value

    def _head(self, status: int, kind: str, rest: str) -> None:
        self.status = status
        phrase = HTTPStatus(status).phrase
        self.writer.write(
            f"HTTP/1.1 {status} {phrase}\r\nserver: uvicorn\r\ncontent-type: {kind}\r\n"
            f"{rest}\r\n\r\n".encode()
        )

    def text(self, status: int, body: str, kind: str = "text/plain; charset=utf-8") -> None:
        """Answer with a whole body."""
        data = body.encode()
        self._head(status, kind, f"content-length: {len(data)}")
        self.writer.write(data)

    def value(self, status: int, value: Any) -> None:
        """Answer with JSON."""
        self.text(status, json.dumps(value, ensure_ascii=False), "application/json")

    def open_stream(self) -> None:
        """Begin a stream of server-sent events."""
        self._head(200, "text/event-stream; charset=utf-8", "transfer-encoding: chunked")

    def event(self, data: str) -> None:
        """Send one event of the stream."""
        raw = b"data: " + data.encode() + b"\n\n"
        self.writer.write(b"%x\r\n%s\r\n" % (len(raw), raw))

    def end_stream(self) -> None:
        """End the stream as HTTP wants it."""
        self.writer.write(b"0\r\n\r\n")

    def cut(self) -> None:
        """Close the connection here and now."""
        self.writer.close()


Handler = Callable[[Call], Awaitable[None]]


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Call | None:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {k.strip().lower(): v.strip() for k, _, v in (x.partition(":") for x in lines if x)}
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = b""
        while size := int((await reader.readline()).split(b";")[0], 16):
            body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
    else:
        body = await reader.readexactly(int(headers.get("content-length", 0)))
    url = urlsplit(target)
    return Call(method, url.path, dict(parse_qsl(url.query)), body, writer)


async def serve(host: str, port: int, handler: Handler) -> asyncio.Server:
    """Listen; `handler` answers each call. OSError where the port is taken."""

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        gone = (asyncio.IncompleteReadError, ConnectionError, ValueError, RuntimeError)
        with contextlib.suppress(*gone):
            while not writer.is_closing():
                call = await _read(reader, writer)
                if call is None:
                    break
                await handler(call)
                await writer.drain()
        writer.close()

    return await asyncio.start_server(connection, host, port, limit=1 << 22, backlog=512)
