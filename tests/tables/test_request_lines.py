from __future__ import annotations

import json

import pytest

from quietgate.analyse.request_lines import positions, read_requests
from quietgate.errors import BadInput


def line(**fields):
    base = {"phase": "timed", "concurrency": 1, "repeat": 1, "prompt_id": "p", "category": "c", "ok": True}
    return json.dumps({**base, **fields})


def test_timed_requests_in_a_fixed_order(tmp_path):
    path = tmp_path / "requests.jsonl"
    lines = [
        line(start_s=2.0, prompt_id="b"),
        line(phase="warm_up"),
        line(start_s=1.0, prompt_id="a", chunk_s=[0.1], text="kept out"),
        line(concurrency=4, start_s=0.0, prompt_id="c"),
        "",
    ]
    path.write_text("\n".join(lines))
    assert [r.prompt_id for r in read_requests(path)] == ["a", "b", "c"]


@pytest.mark.parametrize("bad", ["{", '{"phase": "timed"}', line(repeat="one")])
def test_a_bad_line_is_named(tmp_path, bad):
    path = tmp_path / "requests.jsonl"
    path.write_text(line() + "\n" + bad + "\n")
    with pytest.raises(BadInput, match=r"requests\.jsonl:2: not a request line"):
        read_requests(path)


def read(tmp_path, *lines):
    path = tmp_path / "requests.jsonl"
    path.write_text("\n".join(lines))
    return read_requests(path)


def test_positions_from_either_name_of_the_histogram(tmp_path):
    found = positions(
        read(
            tmp_path,
            line(spec={"spec_accept_histogram": [2, 1, 1]}),
            line(spec={"spec_correct_drafts_histogram": [0, 0, 4]}),
            line(ok=False, spec={"spec_accept_histogram": [100]}),
            line(spec={}),
        )
    )
    assert found == [
        {"concurrency": 1, "position": 1, "cycles": 8, "accepted": 6 / 8, "accepted_given_previous": 6 / 8},
        {"concurrency": 1, "position": 2, "cycles": 8, "accepted": 5 / 8, "accepted_given_previous": 5 / 6},
    ]


def test_no_histogram_no_positions(tmp_path):
    assert positions(read(tmp_path, line(), line(spec={"spec_accept_histogram": None}))) == []
