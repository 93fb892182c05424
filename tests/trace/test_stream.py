"""Cutting the event array into blocks, odd JSON, cut and damaged files."""

from __future__ import annotations

import gzip
import json
import random

import pytest
import traces

from quietgate.errors import BadInput
from quietgate.inspect.trace import ranks, stream

# Names that try to be structure.
NAMES = [
    'k}, {"ph": "X"',
    "f<{lambda()#1}, {lambda()#2}>",
    '"},{"',
    "]}",
    "\\",
    "ünïcode",
    "a\nb",
    "traceEvents",
]


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of a few hundred bytes, so that a small file is cut at many places."""
    monkeypatch.setattr(stream, "READ_BYTES", 97)
    monkeypatch.setattr(stream, "BLOCK_BYTES", 300)


def documents():
    rng = random.Random(5)
    events = [
        traces.kernel(rng.choice(NAMES), i * 10, 1.5, i, extra=[{"a": 1}, {"b": {"c": 2}}], name2="}, {")
        for i in range(200)
    ]
    last = {"tail": [{"a": 1}, {"b": 2}]}
    return {
        "pretty": json.dumps(traces.document(events), indent=2),
        "one line": json.dumps(traces.document(events)),
        "compact": json.dumps(traces.document(events), separators=(",", ":")),
        "events first": json.dumps({"traceEvents": traces.document(events)["traceEvents"], **last}),
        "bare array": json.dumps(events, indent=1),
        "args before times": json.dumps(
            {"traceEvents": [{"args": e["args"], **e} for e in events] + [{"ph": "M", "args": {}}], **last}
        ),
    }


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("form", list(documents()))
@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_every_event_once_whatever_the_layout(tmp_path, form, suffix):
    text = documents()[form]
    path = traces.write(tmp_path / f"t{suffix}", text.encode())
    reader = stream.TraceFile(path)
    blocks = list(reader.blocks())
    events = [e for block in blocks for e in block]
    assert len(blocks) > 10
    whole = json.loads(text)
    expected = whole if isinstance(whole, list) else whole["traceEvents"]
    assert [(e.name, e.ts) for e in events] == [(e.get("name", ""), e.get("ts", 0)) for e in expected]
    assert reader.json_bytes == len(text.encode())
    if isinstance(whole, dict):
        assert set(reader.meta) == set(whole) - {"traceEvents"}


def test_bare_infinities_bad_bytes_and_quoted_numbers(tmp_path):
    good = json.dumps(traces.document([traces.kernel("k", 1, 2, note=0)]))
    odd = good.replace('"note": 0', '"note": -inf, "n2": nan')
    path = traces.write(tmp_path / "a.json", odd.encode())
    assert ranks.read([path])["kernels"] == {"count": 1, "ms": pytest.approx(0.002)}
    path = traces.write(tmp_path / "b.json", good.encode().replace(b'"k"', b'"k\xff"'))
    assert ranks.read([path])["kernels"]["count"] == 1
    quoted = good.replace('"ts": 1, "dur": 2', '"ts": "1", "dur": "2"').replace(
        '"correlation": 0', '"correlation": "12"'
    )
    path = traces.write(tmp_path / "c.json", quoted.encode())
    assert ranks.read([path])["kernels"] == {"count": 1, "ms": pytest.approx(0.002)}


def test_gzip_of_several_members(tmp_path):
    text = json.dumps(traces.document(traces.cycles(3))).encode()
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(text[:1000]) + gzip.compress(text[1000:]) + b"\0" * 64)
    assert ranks.read([path])["spans"]["verify"]["count"] == 3


def flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes(b ^ 0x55 for b in data[middle : middle + 40]) + data[middle + 40 :]


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda data: data[: len(data) // 2], "cut short"),
        (lambda data: data[:-6], "cut short"),
        (flipped, "damaged"),
        (lambda data: data[:-8] + b"\0" * 8, "damaged"),
        (lambda data: b"", "is empty"),
        (lambda data: gzip.compress(gzip.decompress(data)[:-700]), "cut short"),
        (lambda data: gzip.compress(b'{"a": 1}'), "torch profiler trace"),
        (lambda data: b"not json at all", "JSON expected"),
        (lambda data: gzip.compress(b'{"traceEvents": [' + b"[" * 100_000), "nested too deeply"),
        (lambda data: gzip.compress(b'{"a": ' + b"[" * 100_000), "nested too deeply"),
        (lambda data: gzip.compress(b'{"traceEvents": []}'), "no kernel, launch or span"),
    ],
)
def test_one_bad_file_is_one_line_and_the_others_are_used(tmp_path, spoil, says):
    documents = [traces.document(traces.cycles(40), rank=r, world_size=2) for r in (0, 1)]
    good, bad = [traces.write(tmp_path / f"1-TP-{r}.trace.json.gz", d) for r, d in enumerate(documents)]
    bad.write_bytes(spoil(bad.read_bytes()))
    found = ranks.read([good, bad])
    assert [r["rank"] for r in found["ranks"]] == [0]
    assert found["spans"]["verify"]["count"] == 40
    assert len(found["problems"]) == 2
    assert says in found["problems"][0]
    assert str(bad) in found["problems"][0]
    with pytest.raises(BadInput, match=says) as error:
        ranks.read([bad])
    assert "\n" not in str(error.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(BadInput, match=r"gone\.json\.gz: No such file"):
        ranks.read([tmp_path / "gone.json.gz"])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("ts", "nan"),
        ("dur", "inf"),
        ("tid", 2**63),
        ("tid", -(2**70)),
        ("ts", []),
        ("name", 7),
        ("args", {"stream": 2**64, "correlation": 5}),
        ("args", {"stream": 7, "correlation": 2**64}),
        ("args", {"stream": 7, "correlation": -(2**63) - 1}),
        ("args", None),
    ],
)
def test_one_odd_event_costs_no_more_than_itself(tmp_path, field, value):
    events = traces.cycles(4)
    odd = traces.kernel("odd", 20_000, 11, 9)
    odd[field] = value
    found = ranks.read([traces.write(tmp_path / "a.trace.json", traces.document([*events, odd]))])
    assert found["problems"] == []
    assert found["kernels"]["count"] in (20, 21)
    assert found["spans"]["verify"]["kernel_ms_per_span"] == pytest.approx(0.305)
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize(("head", "says"), [(b"PK\x03\x04", "zip archive"), (b"\x28\xb5\x2f\xfd", "zstd")])
def test_another_compression_is_named(tmp_path, head, says):
    path = tmp_path / "a.json.x"
    path.write_bytes(head + bytes(100))
    with pytest.raises(BadInput, match=says):
        ranks.read([path])
