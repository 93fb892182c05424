"""The client against a server that sends what a test says, byte by byte."""

import contextlib
import json
import re
import socket
import threading
import time

import pytest

from quietgate.measure import client

SAMPLING = {"max_new_tokens": 4, "temperature": 0}


def event(total, finish=None, text="x", **meta):
    info = {"completion_tokens": total, "finish_reason": finish, "prompt_tokens": 3, **meta}
    value = {"text": text, "output_ids": list(range(total)), "meta_info": info}
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


LENGTH = {"type": "length", "length": 4}
WHOLE = [event(1), event(3, text="naïve"), event(4, LENGTH, "naïve →"), b"data: [DONE]\n\n"]


@contextlib.contextmanager
def server(*script, status=b"200 OK", close=True, hold_s=0.0):
    """Answers every connection with the pieces of `script`; a number is a pause in seconds."""
    listening = socket.create_server(("127.0.0.1", 0))
    received = []

    def talk(connection):
        with connection, contextlib.suppress(OSError):
            received.append(connection.recv(1 << 20))
            connection.sendall(
                b"HTTP/1.1 " + status + b"\r\ncontent-type: text/event-stream\r\n"
                b"transfer-encoding: chunked\r\n\r\n"
            )
            for piece in script:
                if isinstance(piece, float):
                    time.sleep(piece)
                else:
                    connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
            if close:
                connection.sendall(b"0\r\n\r\n")
            time.sleep(hold_s)

    def accept():
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=talk, args=(listening.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", received
    finally:
        listening.close()


def ask(url, timeout_s=20.0, stall_s=20.0, **options):
    return client.ask(url, "Hello", SAMPLING, timeout_s, stall_s, **options)


def test_a_whole_answer():
    with server(*WHOLE) as (url, received):
        got = ask(url)
    assert got.error is None
    assert got.text == "naïve →"
    assert got.output_ids == [0, 1, 2, 3]
    assert got.chunk_total == [1, 3, 4]
    assert got.chunk_s == sorted(got.chunk_s)
    sent = json.loads(received[0].split(b"\r\n\r\n", 1)[1])
    assert sent == {"text": "Hello", "sampling_params": SAMPLING, "stream": True}


def test_every_border_of_a_read():
    stream = b"".join(WHOLE)
    for at in range(1, len(stream), 29):
        with server(stream[:at], 0.01, stream[at:]) as (url, _):
            got = ask(url)
        assert (got.error, got.text, got.chunk_total) == (None, "naïve →", [1, 3, 4]), at


def test_a_text_that_imitates_the_counter_is_not_counted():
    text = 'he said "completion_tokens":99 and {"completion_tokens": 98'
    with server(event(1, text=text), event(4, LENGTH, text), b"data: [DONE]\n\n") as (url, _):
        got = ask(url)
    assert got.chunk_total == [1, 4]
    assert got.text == text


def test_token_ids_are_sent_as_such():
    with server(*WHOLE) as (url, received):
        client.ask(url, [1, 2, 3], SAMPLING, 20.0)
    assert json.loads(received[0].split(b"\r\n\r\n", 1)[1])["input_ids"] == [1, 2, 3]


def test_a_proxy_in_the_environment_is_not_used(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    with server(*WHOLE) as (url, _):
        assert ask(url).ok


ABORT = {"type": "abort", "message": "out of room"}


@pytest.mark.parametrize(
    ("script", "options", "reason"),
    [
        (WHOLE[:2], {"close": False}, "stream cut .* after 3 tokens"),
        (WHOLE[:2], {}, "ended before the answer did, after 3 tokens"),
        ([*WHOLE[:2], WHOLE[2][:-20]], {}, "ended before the answer did, after 3 tokens"),
        (WHOLE[:3], {}, "ended before the answer did, after 4 tokens"),
        ([], {}, "ended before the answer did, after 0 tokens"),
        ([b"data: nonsense\n\n"], {}, "not JSON"),
        ([b'data: {"error": {"message": "no room"}}\n\n'], {}, "the server reports: no room"),
        ([event(1, ABORT), b"data: [DONE]\n\n"], {}, "aborted by the server: out of room"),
        ([event(0, LENGTH), b"data: [DONE]\n\n"], {}, "empty"),
        ([b'{"error": {"message": "too long"}}'], {"status": b"400 Bad"}, "HTTP 400: too long"),
        ([b"<h1>oops</h1>"], {"status": b"502 Bad Gateway"}, "HTTP 502: <h1>oops</h1>"),
    ],
)
def test_what_is_no_answer_says_why(script, options, reason):
    with server(*script, **options) as (url, _):
        got = ask(url)
    assert not got.ok
    assert re.search(reason, got.error), got.error


def test_silence_and_length_have_limits_of_their_own():
    with server(WHOLE[0], hold_s=5.0, close=False) as (url, _):
        got = ask(url, stall_s=0.3)
        assert "silent for too long" in got.error
        assert got.error.endswith("after 1 token")
        assert got.end_s < 4
    drip = [x for i in range(1, 60) for x in (event(i), 0.05)]
    with server(*drip) as (url, _):
        got = ask(url, timeout_s=0.5)
        assert "not done within 0.5 s" in got.error
        assert got.end_s < 3


def test_nobody_there():
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    assert "no connection" in ask(f"http://127.0.0.1:{port}").error


def test_check_ends_a_pass_that_would_wait():
    class Stop(Exception):
        pass

    calls = []

    def check():
        calls.append(1)
        if len(calls) > 2:
            raise Stop

    began = time.monotonic()
    with server(WHOLE[0], hold_s=30.0, close=False) as (url, _), pytest.raises(Stop):
        ask(url, timeout_s=60.0, stall_s=60.0, check=check)
    assert time.monotonic() - began < 10


def test_after_a_failure_nothing_more_is_sent():
    with server(*WHOLE[:2]) as (url, received):
        timed = client.closed_loop(url, [client.body("x", SAMPLING)] * 9, 2, 20.0, 20.0)
        assert len(timed.answers) <= 3
        assert len(received) <= 3
    assert not any(answer.ok for _, answer in timed.answers)
