"""Every wording of a decode line from 0.3 to 0.5.23, and everything that may stand before it."""

# ruff: noqa: E501 - log lines stand as servers write them
from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from quietgate.errors import BadInput
from quietgate.inspect import log

HEAD_COMMA = "Decode batch, #running-req: 2, #token: 512, token usage: 0.03, "
HEAD_DOT = "Decode batch. #running-req: 2, #token: 512, token usage: 0.03, "

# version, line, accept length, accept rate as logged, throughput
LINES = [
    ("0.3", HEAD_DOT + "gen throughput (token/s): 88.20, #queue-req: 0", None, 88.2),
    ("0.4.3", HEAD_DOT + "accept len: 2.25, gen throughput (token/s): 88.20, #queue-req: 0", 2.25, 88.2),
    (
        "0.4.4",
        HEAD_DOT + "accept len: 2.25, gen throughput (token/s): 88.20, largest-len: 0, #queue-req: 0",
        2.25,
        88.2,
    ),
    (
        "0.4.8",
        HEAD_DOT + "pre-allocated usage: 0.00, #retracted-req: 0, cuda graph: True, "
        "gen throughput (token/s): 88.20, #queue-req: 0",
        None,
        88.2,
    ),
    (
        "0.4.10",
        HEAD_DOT + "accept len: 2.25, cuda graph: True, gen throughput (token/s): 88.20, #queue-req: 0, ",
        2.25,
        88.2,
    ),
    (
        "0.5.6",
        HEAD_COMMA + "accept len: 2.25, accept rate: 0.75, cuda graph: True, "
        "gen throughput (token/s): 88.20, #queue-req: 0, ",
        2.25,
        88.2,
    ),
    (
        "0.5.9 npu",
        HEAD_COMMA + "accept len: 2.25, accept rate: 0.75, npu graph: False, "
        "gen throughput (token/s): 88.20, #queue-req: 0",
        2.25,
        88.2,
    ),
    (
        "0.5.12 iterations",
        "Decode batch [1234], #running-req: 2, #token: 512, token usage: 0.03, accept len: 2.25, "
        "accept rate: 0.63, cuda graph: True, gen throughput (token/s): 88.20, #queue-req: 0",
        2.25,
        88.2,
    ),
    (
        "0.5.12 hybrid",
        "Decode batch, #running-req: 2, #full token: 512, full token usage: 0.03, #swa token: 40, "
        "swa token usage: 0.97, accept len: 2.25, accept rate: 0.63, cuda graph: True, "
        "gen throughput (token/s): 88.20, #queue-req: 0",
        2.25,
        88.2,
    ),
    (
        "0.5.9 mamba",
        "Decode batch, #running-req: 2, #full token: 512, full token usage: 0.03, mamba num: 2, "
        "mamba usage: 0.95, cuda graph: True, gen throughput (token/s): 88.20, #queue-req: 0, ",
        None,
        88.2,
    ),
    (
        "0.5.23",
        HEAD_COMMA
        + "accept len: 2.25, accept rate: 0.63, cuda graph: True, gen throughput (token/s): 88.20, "
        "#queue-req: 0, est. decode TFLOPS/s (per GPU): 1.20, fwd occupancy: 91.20%, fwd+idle occupancy: 99.10%",
        2.25,
        88.2,
    ),
]
PREFIXES = [
    "",
    "[12:00:00] ",
    "[12:00:00 TP0] ",
    "[2026-11-29 12:00:00] ",
    "[2026-11-29 12:00:00.123 TP0] ",
    "[2026-11-29 12:00:00 DP0 PP0 TP0 EP0] ",
    "2026-11-29T12:00:00.123456789+02:00 stderr F [2026-11-29 10:00:00 TP0] ",
    "[2026-11-29T12:00:00+08:00] node7 >> (SGLangEngine pid=311) [2026-11-29 04:00:00 TP0] ",
    "(pid=12, ip=10.0.0.1) [2026-11-29 12:00:00] ",
    "Nov 29 12:00:00 node7 sglang[311]: [2026-11-29 12:00:00] ",
    "  4%|4         | 1/23 [00:07<02:39,  7.23s/it][2026-11-29 12:00:00] ",
    "\x1b[32m[2026-11-29 12:00:00]\x1b[0m ",
    "Capturing: 50%\rCapturing: 100%\r[2026-11-29 12:00:00] ",
]


def read(tmp_path: Path, text: str | bytes, name: str = "server.log") -> dict:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    told = log.read(path)
    json.dumps(told, allow_nan=False)
    return told


@pytest.mark.parametrize("repeats", [1, 20], ids=["once", "often"])
@pytest.mark.parametrize("prefix", PREFIXES, ids=[repr(p[:24]) for p in PREFIXES])
@pytest.mark.parametrize(("version", "line", "length", "rate"), LINES, ids=[x[0] for x in LINES])
def test_every_wording_behind_every_prefix(tmp_path, version, line, length, rate, prefix, repeats):
    decode = read(tmp_path, (prefix + line + "\n") * repeats)["decode"]
    assert decode["lines"] == repeats
    assert decode["gen_throughput_mean"] == pytest.approx(rate)
    assert decode["accept_length_mean"] == (None if length is None else pytest.approx(length))
    assert decode["running_mean"] == 2
    assert decode["token_usage_max"] == pytest.approx(0.03)
    graph = "True" in line, "False" in line
    assert (decode["cuda_graph_true"], decode["cuda_graph_false"]) == (graph[0] * repeats, graph[1] * repeats)


@pytest.mark.parametrize("repeats", [1, 20])
def test_dockers_json_lines(tmp_path, repeats):
    line = json.dumps(
        {
            "log": f"[2026-11-29 12:00:00 TP0] {LINES[5][1]}\n",
            "stream": "stderr",
            "time": "2026-11-29T12:00:00.1Z",
        }
    )
    decode = read(tmp_path, (line + "\n") * repeats)["decode"]
    assert (decode["lines"], decode["accept_length_mean"]) == (repeats, 2.25)
    assert decode["gen_throughput_mean"] == pytest.approx(88.2)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends(tmp_path, end):
    told = read(tmp_path, end.join([f"[2026-11-29 12:00:00] {LINES[5][1]}"] * 30))
    assert told["decode"]["lines"] == 30


def test_lines_of_all_versions_mixed(tmp_path):
    text = "".join(f"[2026-11-29 12:00:00] {line}\n" for _, line, *_ in LINES * 7)
    decode = read(tmp_path, text)["decode"]
    assert decode["lines"] == 7 * len(LINES)
    assert decode["accept_lines"] == 7 * sum(length is not None for *_, length, _ in LINES)
    assert decode["gen_throughput_mean"] == pytest.approx(88.2)


@pytest.mark.parametrize("cut", range(1, 140))
def test_a_cut_line_lacks_a_value_and_never_has_a_wrong_one(tmp_path, cut):
    whole = "[2026-11-29 12:00:00] " + LINES[5][1].rstrip(", ")
    told = read(tmp_path, (whole + "\n") * 10 + whole[:-cut])["decode"]
    for name, value in (
        ("gen_throughput_mean", 88.2),
        ("accept_length_mean", 2.25),
        ("token_usage_max", 0.03),
    ):
        assert told[name] == pytest.approx(value), name


def test_a_cut_line_alone_is_null_not_zero(tmp_path):
    decode = read(tmp_path, "Decode batch, #running-req: 2, accept len: 2.2")["decode"]
    assert decode["accept_length_mean"] is None
    assert decode["gen_throughput_mean"] is None


def test_a_users_own_cut_of_the_lines(tmp_path):
    text = "accept len: 1.50, accept rate: 0.25, cuda graph: True, gen thro\n" * 3
    decode = read(tmp_path, text)["decode"]
    assert (decode["lines"], decode["accept_length_mean"]) == (3, 1.5)
    assert decode["gen_throughput_mean"] is None


def test_accept_in_the_arguments_is_no_accept_length(tmp_path):
    decode = read(tmp_path, "speculative_accept_threshold_single=1.0, accept_len=3\n")["decode"]
    assert decode["accept_length_mean"] is None


@pytest.mark.parametrize("repeats", [1, 20])
def test_nan_poisons_no_mean(tmp_path, repeats):
    line = "[12:00:00] Decode batch, #running-req: 1, accept len: nan, gen throughput (token/s): {}, #queue-req: 0\n"
    decode = read(tmp_path, (line.format("nan") + line.format("10.00") + line.format("20.00")) * repeats)[
        "decode"
    ]
    assert decode["gen_throughput_mean"] == pytest.approx(15.0)
    assert decode["accept_length_mean"] is None
    assert decode["not_finite"] == 4 * repeats


def test_prefill_lines(tmp_path):
    new = (
        "[2026-11-29 12:00:00 TP0] Prefill batch, #new-seq: 1, #new-token: 64, #cached-token: 8, token usage: 0.00, "
        "#running-req: 0, #queue-req: 0, #pending-token: 0, cuda graph: False, input throughput (token/s): 178.00, "
        "est. prefill TFLOPS/s (per GPU): 9.90, fwd occupancy: nan%\n"
    )
    old = (
        "[12:00:00 TP0] Prefill batch. #new-seq: 2, #new-token: 32, #cached-token: 2, cache hit rate: 0.00%\n"
    )
    prefill = read(tmp_path, (new + old) * 6)["prefill"]
    assert prefill["lines"] == 12
    assert (prefill["new_tokens"], prefill["cached_tokens"]) == (6 * 96, 60)
    assert prefill["input_throughput_mean"] == pytest.approx(178.0)
    assert prefill["forward_occupancy_percent_mean"] is None
    assert prefill["cuda_graph_false"] == 6


def test_gzip_is_told_by_its_bytes(tmp_path):
    text = f"[12:00:00] {LINES[0][1]}\n" * 5
    assert read(tmp_path, gzip.compress(text.encode()))["decode"]["lines"] == 5


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b"\x00\x01\x02\x03" * 4000, "binary"),
        (gzip.compress(b"[12:00:00] hello\n" * 9000)[:-50], "cut or damaged gzip"),
        (gzip.compress(b""), "empty"),
        (b"\x7fELF" + bytes(3000), "program"),
        (b"PK\x03\x04rest", "zip"),
        ("hello\n".encode("utf-16"), "UTF-16"),
    ],
    # gzip writes the time of day: ids made of it would differ between two workers
    ids=["nothing", "binary", "cut gzip", "gzip of nothing", "program", "zip", "UTF-16"],
)
def test_junk_is_refused_in_one_line(tmp_path, content, said):
    path = tmp_path / "x.log"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=said) as caught:
        log.read(path)
    assert "\n" not in str(caught.value)
    assert "x.log" in str(caught.value)


def test_a_folder_and_a_missing_file(tmp_path):
    with pytest.raises(BadInput, match="folder"):
        log.read(tmp_path)
    with pytest.raises(BadInput, match="cannot be read"):
        log.read(tmp_path / "none.log")


def test_a_batch_line_of_words_without_end(tmp_path):
    path = tmp_path / "server.log"
    path.write_text("[2026-11-29 12:00:00 TP0] Decode batch. " + "a " * 500_000 + ", accept len: 2.50, \n")
    assert log.read(path)["decode"]["accept_length_mean"] == 2.5
