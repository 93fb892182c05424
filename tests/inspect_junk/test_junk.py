"""`python -m quietgate inspect KIND` of what cannot be read: exit status 2, one line that names the file."""

import gzip
import json
import os
import random

import pytest

from quietgate.__main__ import main

NOISE = random.Random(1).randbytes(5000)
JUNK = {
    "empty": b"",
    "blank": b"\n \n\n",
    "binary": NOISE,
    "utf-16": "sglang:gen_throughput 1.0\n".encode("utf-16"),
    "empty gzip": gzip.compress(b""),
    "cut gzip": gzip.compress(NOISE.hex().encode())[:-50],
    "gzip of noise": gzip.compress(NOISE),
    "zip": b"PK\x03\x04" + NOISE,
}
# Text about something else. The reader of server logs takes any text: a launch may die in its shell.
OTHER = {
    "prose": b"Dear diary,\nnothing happened.\n",
    "null": b"null\n",
    "empty object": b"{}\n",
    "empty list": b"[]\n",
    "cut object": b'{"traceEvents": [{"ph": "X", ',
    "comments": b"# HELP a b\n# TYPE a counter\n",
    "open label": b'a{b="c\n',
    "html": b"<html><body>502 Bad Gateway</body></html>\n",
}


def refused(capsys, kind, path):
    assert main(["inspect", kind, str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(str(path)), err
    assert err.count("\n") == 1, err
    assert err.strip().isprintable(), err
    assert len(err) < len(str(path)) + 200, err


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (kind, name)
        for kind in ("log", "nccl", "trace", "bench", "metrics")
        for name in (*JUNK, *OTHER, "a folder", "no file", "not ours")
        if kind != "log" or name not in OTHER
    ],
)
def test_junk(tmp_path, capsys, kind, name):
    path = tmp_path / "what"
    if name == "a folder":
        path.mkdir()
    elif name == "not ours":
        if os.getuid() == 0:
            pytest.skip("root may read everything")
        path.write_bytes(b"x")
        path.chmod(0)
    elif name != "no file":
        path.write_bytes({**JUNK, **OTHER}[name])
    refused(capsys, kind, path)


def test_a_reading_in_gzip_and_a_gauge_without_a_value(tmp_path, capsys):
    path = tmp_path / "metrics.gz"
    path.write_bytes(gzip.compress(b"sglang:gen_throughput NaN\nsglang:spec_accept_length 2.5\n"))
    assert main(["inspect", "metrics", str(path)]) == 0
    gauges = json.loads(capsys.readouterr().out)["gauges"]
    assert (gauges["gen_throughput"], gauges["spec_accept_length"]) == (None, 2.5)
