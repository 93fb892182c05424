"""A streaming client of SGLang's `/generate` that takes time stamps first and reads later.

In the loop of a stream only the arrival time and the number of tokens so far are taken; of the
cumulative text that every event repeats, only the last one is ever decoded. At one stream this
costs some 0.1 ms a chunk; the CPU time of a pass is measured, so that a client that has become the
bottleneck is seen (`passes.SATURATED`).
"""

from __future__ import annotations

import asyncio
import gc
import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from quietgate.measure.answer import Answer
from quietgate.measure.events import Events
from quietgate.wording import counted

Sampling = dict[str, Any]

CONNECT_S = 10.0
# How often a pass asks whether it must stop.
CHECK_EVERY_S = 0.25
# The key with its raw quote: inside a text the quote is escaped, so it cannot be taken for it.
_COUNT_KEY = b'"completion_tokens":'
_COUNT = re.compile(rb'"completion_tokens":\s*(\d+)')


@dataclass
class Timed:
    """All answers of one closed-loop pass, in order of finishing, with the index of their prompt."""

    answers: list[tuple[int, Answer]]
    began_s: float
    wall_s: float
    client_cpu_s: float


def body(prompt: str | Sequence[int], sampling: Sampling) -> bytes:
    """The body of a streaming request for a text or for token ids."""
    what = {"text": prompt} if isinstance(prompt, str) else {"input_ids": list(prompt)}
    return json.dumps({**what, "sampling_params": sampling, "stream": True}).encode()


def session(timeout_s: float, stall_s: float) -> aiohttp.ClientSession:
    """A session for one server: no proxy from the environment, no cap on connections.

    Args:
        timeout_s: limit of a whole request.
        stall_s: limit of silence inside it.
    """
    return aiohttp.ClientSession(
        trust_env=False,
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(
            total=timeout_s, sock_connect=min(CONNECT_S, timeout_s), sock_read=stall_s
        ),
    )


async def generate(
    base_url: str,
    prompt: str | Sequence[int] | bytes,
    sampling: Sampling,
    timeout_s: float,
    session: aiohttp.ClientSession,
) -> Answer:
    """One streamed generation. Never raises for what the server or the network does: `error` says it.

    Args:
        prompt: text, token ids, or a request's `body` made beforehand.
        timeout_s: limit of the whole request; silence is limited by the session's own.

    A server run with --incremental-streaming-output sends pieces of text instead of the text so far:
    all numbers hold, but `text` is then the last piece only.
    """
    data = prompt if isinstance(prompt, bytes) else body(prompt, sampling)
    answer = Answer()
    events = Events()
    last = b""
    done = False
    clock = time.perf_counter
    began = answer.started_s = clock()
    try:
        async with session.post(
            f"{base_url}/generate",
            data=data,
            headers={"Content-Type": "application/json"},
            timeout=aiohttp.ClientTimeout(
                total=timeout_s,
                sock_connect=session.timeout.sock_connect,
                sock_read=session.timeout.sock_read,
            ),
        ) as response:
            if response.status >= 400:
                answer.error = f"HTTP {response.status}: {_message(await response.read())}"
                return answer
            async for piece in response.content.iter_any():
                now = clock() - began
                for event in events.feed(piece):
                    if event == b"[DONE]":
                        done = True
                        continue
                    last = event
                    at = event.rfind(_COUNT_KEY)
                    if at >= 0 and (found := _COUNT.match(event, at)):
                        answer.chunk_s.append(now)
                        answer.chunk_total.append(int(found[1]))
    except aiohttp.ServerTimeoutError as e:
        answer.error = _so_far(f"silent for too long ({e})", answer)
    except TimeoutError:
        answer.error = _so_far(f"not done within {timeout_s:g} s", answer)
    except aiohttp.ClientConnectorError as e:
        answer.error = f"no connection: {e}"
    except (aiohttp.ClientError, OSError) as e:
        answer.error = _so_far(f"stream cut ({type(e).__name__}: {str(e)[:200]})", answer)
    finally:
        answer.end_s = clock() - began
    _finish(answer, last, done)
    return answer


def _finish(answer: Answer, last: bytes, done: bool) -> None:
    """Read the last event; decide whether the answer is whole."""
    value: Any = None
    if last:
        try:
            value = json.loads(last)
        except ValueError:
            answer.error = answer.error or f"not JSON: {last[:100]!r}"
    if isinstance(value, dict):
        answer.text = str(value.get("text") or "")
        answer.output_ids = value.get("output_ids")
        answer.meta = value.get("meta_info") or {}
    if answer.error:
        return
    finish = answer.meta.get("finish_reason")
    if isinstance(value, dict) and "error" in value:
        answer.error = f"the server reports: {_message(last)}"
    elif isinstance(finish, dict) and finish.get("type") == "abort":
        answer.error = f"aborted by the server: {finish.get('message')}"
    elif not done or finish is None:
        answer.error = _so_far("stream ended before the answer did", answer)
    elif answer.completion_tokens < 1:
        answer.error = "empty: no token generated"


def _so_far(why: str, answer: Answer) -> str:
    return f"{why}, after {counted(answer.chunk_total[-1] if answer.chunk_total else 0, 'token')}"


def _message(raw: bytes) -> str:
    """The reason in an error body, in one short line."""
    try:
        value = json.loads(raw)
        error = value.get("error", value) if isinstance(value, dict) else value
        text = error.get("message", error) if isinstance(error, dict) else error
    except ValueError:
        text = raw.decode(errors="replace")
    return " ".join(str(text).split())[:300]


def ask(
    base_url: str,
    prompt: str | Sequence[int],
    sampling: Sampling,
    timeout_s: float,
    stall_s: float | None = None,
    check: Callable[[], None] | None = None,
) -> Answer:
    """One generation for callers without an event loop."""
    timed = closed_loop(base_url, [body(prompt, sampling)], 1, timeout_s, stall_s or timeout_s, check)
    return timed.answers[0][1]


def closed_loop(
    base_url: str,
    bodies: Sequence[bytes],
    concurrency: int,
    timeout_s: float,
    stall_s: float,
    check: Callable[[], None] | None = None,
) -> Timed:
    """Send all `bodies`, `concurrency` at a time, each stream its next one when the last has ended.

    After a failure no further request is sent: the pass is no result any more, and a dead server
    must not cost a time-out for each of them.

    Args:
        check: called every quarter of a second; what it raises ends the pass and is raised here.
    """
    return asyncio.run(_closed_loop(base_url, bodies, concurrency, timeout_s, stall_s, check))


async def _closed_loop(
    base_url: str,
    bodies: Sequence[bytes],
    concurrency: int,
    timeout_s: float,
    stall_s: float,
    check: Callable[[], None] | None,
) -> Timed:
    answers: list[tuple[int, Answer]] = []
    order = iter(range(len(bodies)))
    failed = False

    async def stream(session: aiohttp.ClientSession) -> None:
        nonlocal failed
        for i in order:
            if failed:
                return
            answer = await generate(base_url, bodies[i], {}, timeout_s, session)
            answers.append((i, answer))
            failed = failed or not answer.ok

    async def watch() -> None:
        while check is not None:
            check()
            await asyncio.sleep(CHECK_EVERY_S)

    collecting = gc.isenabled()
    gc.disable()  # a collection in the middle of a stream would be read as server time
    try:
        async with session(timeout_s, stall_s) as s:
            began, cpu = time.perf_counter(), time.thread_time()
            streams = [asyncio.create_task(stream(s)) for _ in range(min(concurrency, len(bodies)))]
            everything = asyncio.gather(*streams)
            watcher = asyncio.create_task(watch())
            waiting: set[asyncio.Future[Any]] = {everything}
            if check is not None:
                waiting.add(watcher)
            try:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if watcher.done() and check is not None:
                    watcher.result()
                await everything
                wall_s, cpu_s = time.perf_counter() - began, time.thread_time() - cpu
            finally:
                everything.cancel()
                watcher.cancel()
                await asyncio.gather(everything, watcher, return_exceptions=True)
    finally:
        if collecting:
            gc.enable()
    return Timed(answers, began, wall_s, cpu_s)
