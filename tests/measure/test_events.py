import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quietgate.measure.events import Events

PAYLOADS = ['{"text":"naïve → café"}', '{"text":"a\\n\\nb"}', "", "[DONE]"]
STREAM = "".join(f"data: {p}\n\n" for p in PAYLOADS).encode()


def split(stream: bytes, borders: list[int]) -> list[bytes]:
    events = Events()
    return [e for a, b in pairwise([0, *borders, len(stream)]) for e in events.feed(stream[a:b])]


EXPECTED = [p.encode() for p in PAYLOADS]


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_any_single_border_gives_the_same_events(newline):
    stream = STREAM.replace(b"\n", newline)
    for border in range(len(stream) + 1):
        assert split(stream, [border]) == EXPECTED, border


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_byte_by_byte(newline):
    stream = STREAM.replace(b"\n", newline)
    assert split(stream, list(range(1, len(stream)))) == EXPECTED


@given(
    st.lists(st.dictionaries(st.text(), st.text(), max_size=2), max_size=5),
    st.lists(st.integers(0, 400), max_size=12),
)
def test_any_payload_and_borders(values, borders):
    payloads = [json.dumps(v, ensure_ascii=False).encode() for v in values]
    stream = b"".join(b"data: " + p + b"\n\n" for p in payloads)
    inside = sorted(min(b, len(stream)) for b in borders)
    assert split(stream, inside) == payloads


def test_comments_and_other_fields_are_no_data():
    events = Events()
    stream = b": ping\n\nevent: x\nid: 3\ndata: one\ndata: two\n\nretry: 5\n\ndata:three\n\n"
    assert events.feed(stream) == [b"one\ntwo", b"three"]


def test_an_unfinished_event_is_never_given_out():
    assert Events().feed(b'data: {"half":') == []
