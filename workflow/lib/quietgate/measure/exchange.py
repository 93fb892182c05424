"""One plain request to the server under measurement, by the library that the client measures with."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import aiohttp

from quietgate.measure.client import session


class Unanswered(Exception):
    """No answer came: refused, cut or too late; the text is the kind of error."""


@dataclass(frozen=True)
class Reply:
    """An answer's HTTP status and text."""

    status: int
    text: str


def get(url: str, timeout_s: float) -> Reply:
    """GET `url`, past any proxy; Unanswered if nothing comes within `timeout_s`."""
    return asyncio.run(_exchange("GET", url, timeout_s, None))


def post(url: str, timeout_s: float, body: dict[str, Any] | None = None) -> Reply:
    """POST `body` as JSON (or nothing) to `url`; as `get`."""
    return asyncio.run(_exchange("POST", url, timeout_s, body))


async def _exchange(method: str, url: str, timeout_s: float, body: dict[str, Any] | None) -> Reply:
    try:
        async with (
            session(timeout_s, timeout_s) as http,
            http.request(method, url, json=body) as answer,
        ):
            return Reply(answer.status, await answer.text(errors="replace"))
    except (aiohttp.ClientError, OSError) as e:
        raise Unanswered(type(e).__name__) from None
