"""Saved and pasted answers of /metrics: what stands around them, several readings, several servers."""

from __future__ import annotations

import pytest

from quietgate.errors import BadInput
from quietgate.inspect import metrics_file

TIMER = "sglang:forward_execution_seconds_total"
PASSES = "sglang:cuda_graph_passes_total"


def answer(verify_s: float = 12.0, more: str = "") -> str:
    """A reading of one rank: 100 decode passes."""
    labels = f'model_name="m",pp_rank="0",tp_rank="0"{more}'
    return (
        f"# HELP {TIMER} Seconds of forwards.\n# TYPE {TIMER} counter\n"
        f'{TIMER}{{category="target_verify",{labels}}} {verify_s}\n'
        f'{TIMER}{{category="draft",{labels}}} 1.0\n'
        f'# TYPE {PASSES} counter\n{PASSES}{{mode="decode_cuda_graph",{labels}}} 100.0\n'
        "# TYPE sglang:generation_tokens_total counter\n"
        f'sglang:generation_tokens_total{{model_name="m"{more}}} 270.0\n'
        f"# TYPE sglang:spec_accept_length gauge\nsglang:spec_accept_length{{{labels}}} 2.5\n"
        f"# TYPE sglang:gen_throughput gauge\nsglang:gen_throughput{{{labels}}} NaN\n"
    )


def read(tmp_path, text: str) -> dict:
    path = tmp_path / "metrics.txt"
    path.write_text(text)
    return metrics_file.read(path)


def test_one_reading(tmp_path):
    found = read(tmp_path, answer())
    assert found["ranks"] == ["TP0"]
    assert found["ms_per_decode_pass"]["TP0"] == pytest.approx({"verify": 120, "draft": 10})
    assert found["counters"]["generation_tokens"] == 270.0
    assert found["counters"]["prompt_tokens"] is None
    assert found["gauges"]["spec_accept_length"] == 2.5
    assert found["gauges"]["gen_throughput"] is None
    assert found["notes"] == []


@pytest.mark.parametrize(
    "around",
    [
        "```\n{}```\n",
        "$ curl -s 127.0.0.1:30000/metrics\n{}",
        "HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/plain; version=0.0.4\r\n\r\n{}",
        "  % Total    % Received % Xferd\n100  3210  100  3210    0     0   445k\n{}",
        "{}# EOF\n",
    ],
    ids=["fence", "command", "headers", "progress", "OpenMetrics"],
)
def test_what_a_paste_has_around_it(tmp_path, around):
    assert read(tmp_path, around.format(answer())) == read(tmp_path, answer())


def test_names_without_a_colon(tmp_path):
    assert read(tmp_path, answer().replace("sglang:", "sglang_")) == read(tmp_path, answer())


def test_exemplars_and_times(tmp_path):
    text = (
        answer()
        .replace("} 270.0", '} 270.0 # {trace_id="a b"} 1.0')
        .replace("} 1.0\n", "} 1.0 1690000000123\n")
    )
    assert read(tmp_path, text) == read(tmp_path, answer())


def test_of_several_readings_the_last_is_shown_and_the_others_are_named(tmp_path):
    found = read(tmp_path, answer(12.0) + answer(13.0) + answer(14.0))
    assert found["seconds"]["TP0"]["target_verify"] == 14.0
    assert found["notes"] == ["3 readings in this file: shown is the last"]


def test_servers_are_not_mixed(tmp_path):
    found = read(tmp_path, answer(12.0, ',instance="a:1"') + answer(24.0, ',instance="b:1"'))
    assert found["ranks"] == ["a:1 TP0", "b:1 TP0"]
    assert {n: ms["verify"] for n, ms in found["ms_per_decode_pass"].items()} == {
        "a:1 TP0": 120,
        "b:1 TP0": 240,
    }
    assert found["counters"]["generation_tokens"] == 540.0
    assert "2 servers" in found["notes"][0]
    assert read(tmp_path, answer(more=',instance="a:1"'))["ranks"] == ["TP0"]


def test_two_categories_of_one_stage_add_up(tmp_path):
    labels = 'pp_rank="0",tp_rank="0"'
    text = answer() + f'{TIMER}{{category="eagle_draft",model_name="m",{labels}}} 2.0\n'
    assert read(tmp_path, text)["ms_per_decode_pass"]["TP0"]["draft"] == pytest.approx(30)


def test_a_line_that_the_files_end_cuts_is_left_out(tmp_path):
    found = read(tmp_path, answer()[:-30])
    assert found["gauges"]["spec_accept_length"] == 2.5
    assert found["notes"] == ["the last line is cut: it is left out"]


@pytest.mark.parametrize("content", ["<html>\n<body>503</body>", "a{b 1\n", "# only a comment\n", "a{b 1"])
def test_what_is_no_reading_is_one_line(tmp_path, content):
    with pytest.raises(BadInput, match=r"metrics\.txt: ") as error:
        read(tmp_path, content)
    assert "\n" not in str(error.value)
    with pytest.raises(BadInput, match="No such file"):
        metrics_file.read(tmp_path / "gone")


@pytest.mark.parametrize("name", ["vllm:num_requests_running", "process_cpu_seconds_total"])
def test_metrics_of_something_else_are_refused_by_name(tmp_path, name):
    with pytest.raises(BadInput, match=f"no metric of SGLang.*{name[:4]}"):
        read(tmp_path, f"# TYPE {name} gauge\n{name} 1.0\n")


def test_blank_lines_without_end_between_readings(tmp_path):
    assert read(tmp_path, answer(1.0) + "\n" * 200_000 + answer()) == read(tmp_path, answer(1.0) + answer())
