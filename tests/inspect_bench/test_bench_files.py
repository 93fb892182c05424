"""Benchmark results in every wording, and what speaks against each."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quietgate.errors import BadInput
from quietgate.inspect import bench

HEAD = "============ Serving Benchmark Result ============\n"
END = "==================================================\n"
BLOCK = (
    HEAD + "Backend:                                 sglang    \n"
    "Traffic request rate:                    inf       \n"
    "Max request concurrency:                 8         \n"
    "Successful requests:                     64        \n"
    "Benchmark duration (s):                  20.00     \n"
    "Total input tokens:                      6400      \n"
    "Total generated tokens:                  12800     \n"
    "Total generated tokens (retokenized):    12790     \n"
    "Request throughput (req/s):              3.20      \n"
    "Input token throughput (tok/s):          320.00    \n"
    "Output token throughput (tok/s):         640.00    \n"
    "Total token throughput (tok/s):          960.00    \n"
    "Concurrency:                             7.90      \n"
    "Accept length:                           2.83      \n"
    "----------------End-to-End Latency----------------\n"
    "Mean E2E Latency (ms):                   2400.00   \n"
    "Median E2E Latency (ms):                 2390.00   \n"
    "---------------Time to First Token----------------\n"
    "Mean TTFT (ms):                          90.00     \n"
    "Median TTFT (ms):                        80.00     \n"
    "P99 TTFT (ms):                           200.00    \n"
    "-----Time per Output Token (excl. 1st token)------\n"
    "Mean TPOT (ms):                          11.60     \n"
    "---------------Inter-Token Latency----------------\n"
    "Max ITL (ms):                            61.33     \n" + END
)


def read(tmp_path: Path, text: str, name: str = "result.txt") -> dict:
    path = tmp_path / name
    path.write_text(text)
    told = bench.read(path)
    json.dumps(told, allow_nan=False)
    return told


def one(tmp_path: Path, text: str, name: str = "result.txt") -> dict:
    (result,) = read(tmp_path, text, name)["results"]
    return result


def test_a_block(tmp_path):
    result = one(tmp_path, BLOCK)
    assert result["plausible"]
    assert result["problems"] == []
    assert (result["backend"], result["request_rate"], result["max_concurrency"]) == ("sglang", "inf", 8)
    assert (result["completed"], result["requested"], result["accept_length"]) == (64, None, 2.83)
    assert (result["output_tokens_per_s"], result["duration_s"]) == (640.0, 20.0)
    assert (result["p99_ttft_ms"], result["max_itl_ms"], result["mean_e2e_latency_ms"]) == (
        200.0,
        61.33,
        2400.0,
    )


def test_older_wordings(tmp_path):
    text = BLOCK.replace(
        "Max request concurrency:                 8", "Max reqeuest concurrency:          not set"
    )
    text = text.replace("Accept length:                           2.83      \n", "")
    result = one(tmp_path, text)
    assert result["plausible"]
    assert (result["max_concurrency"], result["accept_length"]) == (None, None)


@pytest.mark.parametrize("prefix", ["", "2026-11-29T12:00:00.1Z stdout F ", "(pid=12) "])
def test_the_requests_asked_for(tmp_path, prefix):
    lines = (
        "benchmark_args=Namespace(backend='sglang', num_prompts={n}, request_rate=inf, tag='a, b')\n" + BLOCK
    )
    lines = "".join(prefix + line for line in lines.splitlines(keepends=True))
    assert one(tmp_path, lines.replace("{n}", "64"))["plausible"]
    result = one(tmp_path, lines.replace("{n}", "100"))
    assert not result["plausible"]
    assert result["problems"] == ["only 64 of 100 requests completed (64.0%)"]
    result = one(tmp_path, "python -m sglang.bench_serving --num-prompts 65\n" + BLOCK)
    assert (result["requested"], result["requested_from"], result["plausible"]) == (65, "command", False)


@pytest.mark.parametrize("name", ["run_64_of_70.txt", "trace_1_70.txt"])
def test_the_requests_asked_for_by_the_files_name(tmp_path, name):
    result = one(tmp_path, BLOCK, name)
    assert (result["requested"], result["requested_from"]) == (70, "file name")
    assert "by its file name" in result["problems"][0]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "Successful requests:                     64",
            "Successful requests:                     0",
            "no request",
        ),
        (END, "", "cut"),
        ("640.00", "0.00", "throughput is 0"),
        ("640.00", "1640.00", "does not fit"),
        ("640.00", "inf", "no number"),
        ("12790", "0", "tokenized again"),
        ("2.83", "0.83", "below 1"),
        ("Output token throughput (tok/s):         640.00    \n", "", "no output throughput"),
    ],
)
def test_what_speaks_against_a_result(tmp_path, old, new, said):
    result = one(tmp_path, BLOCK.replace(old, new))
    assert not result["plausible"]
    assert any(said in problem for problem in result["problems"])


def test_a_ttft_of_zero_is_missing(tmp_path):
    text = BLOCK
    for value in ("90.00 ", "80.00 ", "200.00 "):
        text = text.replace(value, "0.00 ")
    result = one(
        tmp_path,
        text.replace(
            "Output token throughput (tok/s):         640.00", "Output token throughput (tok/s):  640.00"
        ),
    )
    assert result["mean_ttft_ms"] is None
    assert result["median_ttft_ms"] is None
    assert any("not zero" in p for p in result["problems"])


def test_an_overloaded_server_is_named(tmp_path):
    result = one(tmp_path, BLOCK.replace("80.00  ", "2000.00"))
    assert "overloaded" in result["problems"][0]


def test_several_runs_in_one_file(tmp_path):
    told = read(tmp_path, BLOCK + BLOCK.replace("640.00", "800.00").replace("20.00 ", "16.00 "))
    assert len(told["results"]) == 2
    assert "differ by 25.0%" in told["notes"][0]


JSON = {
    "backend": "sglang",
    "request_rate": float("inf"),
    "max_concurrency": None,
    "completed": 100,
    "duration": 10.0,
    "total_output_tokens": 5000,
    "output_throughput": 500.0,
    "median_ttft_ms": 12.5,
    "accept_length": 2.5,
    "num_prompts": 100,
}


def test_jsonl_with_a_bare_infinity(tmp_path):
    lines = json.dumps(JSON) + "\n\n" + json.dumps({**JSON, "completed": 0, "output_throughput": 0.0}) + "\n"
    first, second = read(tmp_path, lines, "x.jsonl")["results"]
    assert (first["request_rate"], first["plausible"], first["median_ttft_ms"]) == ("inf", True, 12.5)
    assert "no request succeeded" in second["problems"]


def test_other_names_and_server_info(tmp_path):
    record = {k: v for k, v in JSON.items() if k not in ("total_output_tokens", "num_prompts")}
    record |= {"total_generated_tokens": 5000, "server_info": {"version": "0.5.9"}, "errors": ["", "x"]}
    result = one(tmp_path, json.dumps(record), "x.json")
    assert (result["output_tokens"], result["sglang_version"], result["failed"]) == (5000, "0.5.9", 1)


def test_nan_is_null_and_a_problem(tmp_path):
    result = one(tmp_path, json.dumps({**JSON, "accept_length": float("nan")}), "x.json")
    assert result["accept_length"] is None
    assert not result["plausible"]


def test_a_cut_last_line_leaves_the_others(tmp_path):
    good, bad = read(tmp_path, json.dumps(JSON) + "\n" + json.dumps(JSON)[:40], "x.jsonl")["results"]
    assert good["plausible"]
    assert not bad["plausible"]
    assert "line 2" in bad["problems"][0]


def test_specforges_grid(tmp_path):
    def cell(steps: int) -> dict:
        return {
            "batch_size": 8,
            "steps": steps,
            "topk": 1,
            "num_draft_tokens": steps + 1,
            "metrics": [
                {"Name": "Wihtout EAGLE3", "output_throughput": 1000.0, "accept_length": 1.0},
                {"Name": "org/draft", "output_throughput": 1500.0, "accept_length": 2.5 + 9 * (steps == 5)},
            ],
        }

    told = read(tmp_path, json.dumps({"model": {"gsm8k": {"results": [cell(3), cell(5)]}}}), "x.json")
    baseline, draft, _, high = told["results"]
    assert (told["format"], baseline["baseline"], draft["baseline"]) == ("grid", True, False)
    assert (draft["model"], draft["benchmark"], draft["steps"], draft["topk"], draft["draft_tokens"]) == (
        "model", "gsm8k", 3, 1, 4,
    )  # fmt: skip
    assert draft["output_tokens_per_s"] == 1500.0
    assert baseline["plausible"]
    assert "above the 6 draft tokens" in high["problems"][0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        (" \n\n", "blank"),
        ("hello\n", "no benchmark result"),
        ('{"a": 1}', "no benchmark result"),
        ('{"duration": 3, "name": "a build"}', "no benchmark result"),
        ("[]", "no benchmark result"),
        ('{"completed": 5, "dura', "not JSON or cut"),
    ],
)
def test_no_result_in_it(tmp_path, text, said):
    with pytest.raises(BadInput, match=said) as caught:
        read(tmp_path, text)
    assert "\n" not in str(caught.value)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused(tmp_path, data):
    text = data.draw(st.sampled_from([BLOCK, json.dumps(JSON) + "\n" + json.dumps(JSON)]))
    start = data.draw(st.integers(0, len(text)))
    length = data.draw(st.integers(0, 40))
    with_what = data.draw(st.text(alphabet='0{}[]":,=inf \n\x00é', max_size=6))
    with contextlib.suppress(BadInput):
        read(tmp_path, text[:start] + with_what + text[start + length :])


def test_a_value_that_the_files_end_cuts_is_none(tmp_path):
    cut = BLOCK[: BLOCK.index("640.00") + 2]
    assert one(tmp_path, cut)["output_tokens_per_s"] is None
    assert one(tmp_path, BLOCK[: BLOCK.index("640.00") + 10])["output_tokens_per_s"] == 640.0  # padded: whole
    assert one(tmp_path, BLOCK.rstrip("\n"))["plausible"]


def test_latencies_of_no_request_are_none_and_not_zero(tmp_path):
    text = BLOCK
    for old, new in (
        ("64        \n", "0         \n"),
        ("640.00", "0.00"),
        ("90.00", "0.00"),
        ("2400.00", "nan"),
    ):
        text = text.replace(old, new)
    result = one(tmp_path, text)
    assert result["completed"] == 0
    assert {k: v for k, v in result.items() if k.endswith("_ms") and v is not None} == {}
    assert not result["plausible"]
    assert "no request succeeded" in result["problems"]
    assert not any("TTFT of 0.00" in problem for problem in result["problems"])


EVALSCOPE = {
    "Time taken for tests (s)": 10.0,
    "Number of concurrency": 2,
    "Total requests": 20,
    "Succeed requests": 20,
    "Failed requests": 0,
    "Output token throughput (tok/s)": 200.0,
    "Total token throughput (tok/s)": 300.0,
    "Request throughput (req/s)": 2.0,
    "Average latency (s)": 1.0,
    "Average time to first token (s)": 0.05,
    "Average time per output token (s)": 0.005,
}
GENAI_BENCH = {
    "aggregated_metrics": {
        "scenario": "D(100,1000)",
        "num_concurrency": 2,
        "iteration_type": "num_concurrency",
        "run_duration": 10.0,
        "mean_output_throughput_tokens_per_s": 200.0,
        "mean_total_tokens_throughput_tokens_per_s": 300.0,
        "requests_per_second": 2.0,
        "num_error_requests": 0,
        "num_completed_requests": 20,
        "num_requests": 20,
        "stats": {
            "ttft": {"mean": 0.05, "p50": 0.04},
            "tpot": {"mean": 0.005},
            "e2e_latency": {"mean": 1.0, "p50": None},
        },
    },
    "individual_request_metrics": [],
}


@pytest.mark.parametrize("summary", [EVALSCOPE, GENAI_BENCH], ids=["evalscope", "genai-bench"])
def test_other_load_generators(tmp_path, summary):
    result = one(tmp_path, json.dumps(summary, indent=1), "summary.json")
    assert result["plausible"], result["problems"]
    assert (result["completed"], result["requested"], result["failed"]) == (20, 20, 0)
    assert (result["output_tokens_per_s"], result["total_tokens_per_s"]) == (200.0, 300.0)
    assert (result["max_concurrency"], result["duration_s"], result["requests_per_s"]) == (2, 10.0, 2.0)
    assert result["mean_ttft_ms"] == pytest.approx(50.0)
    assert result["mean_e2e_latency_ms"] == pytest.approx(1000.0)
    assert result["accept_length"] is None


NO_EVALSCOPE = EVALSCOPE | {
    "Succeed requests": 0,
    "Failed requests": 20,
    "Output token throughput (tok/s)": -1,
    "Average latency (s)": 0,
}
NO_GENAI_BENCH = {
    "aggregated_metrics": {
        "num_completed_requests": 0,
        "num_error_requests": 20,
        "num_requests": 20,
        "run_duration": 10.0,
        "mean_output_throughput_tokens_per_s": 0.0,
        "stats": {"e2e_latency": {"mean": None}},
    }
}


@pytest.mark.parametrize("summary", [NO_EVALSCOPE, NO_GENAI_BENCH], ids=["evalscope", "genai-bench"])
def test_other_load_generators_without_a_success(tmp_path, summary):
    result = one(tmp_path, json.dumps(summary), "summary.json")
    assert not result["plausible"]
    assert "no request succeeded" in result["problems"]
    assert result["output_tokens_per_s"] in (None, 0.0)
    assert result.get("mean_e2e_latency_ms") is None


def test_vllms_acceptance(tmp_path):
    record = {"completed": 1, "duration": 1.0, "output_throughput": 5.0, "spec_decode_acceptance_length": 2.1}
    assert one(tmp_path, json.dumps(record), "r.json")["accept_length"] == 2.1


@pytest.mark.parametrize("prefix", ["> ", "    ", "> > ", "bench-1  | "])
def test_blocks_that_are_quoted_or_indented(tmp_path, prefix):
    quoted = "".join(prefix + line + "\n" for line in BLOCK.splitlines())
    assert one(tmp_path, quoted) == one(tmp_path, BLOCK)


def test_colours(tmp_path):
    assert one(tmp_path, "\x1b[1m" + BLOCK.replace("\n", "\x1b[0m\n")) == one(tmp_path, BLOCK)


def test_thousands(tmp_path):
    result = one(tmp_path, BLOCK.replace(" 12800 ", " 12,800 "))
    assert (result["output_tokens"], result["plausible"]) == (12800, True)


def test_a_value_that_stands_twice_is_not_believed(tmp_path):
    result = one(tmp_path, BLOCK.replace(END, "Output token throughput (tok/s):         645.00    \n" + END))
    assert not result["plausible"]
    assert "output_tokens_per_s stands in it twice" in result["problems"][0]


def test_a_block_without_its_first_line(tmp_path):
    result = one(tmp_path, BLOCK.removeprefix(HEAD))
    assert (result["completed"], result["output_tokens_per_s"], result["median_ttft_ms"]) == (64, 640.0, 80.0)
    assert result["problems"] == ["the block is cut: its first line is missing"]


def test_the_next_runs_settings_end_a_cut_block(tmp_path):
    first = "Namespace(backend='sglang', num_prompts=100)\n" + BLOCK[:300]
    cut, whole = read(tmp_path, f"{first}\nNamespace(backend='sglang', num_prompts=64)\n{BLOCK}")["results"]
    assert (cut["requested"], cut["plausible"]) == (100, False)
    assert (whole["requested"], whole["plausible"]) == (64, True)


def test_the_last_command_before_a_block_is_its_own(tmp_path):
    commands = "bench --num-prompts 8\nbench --num-prompts 64\n"
    assert one(tmp_path, commands + BLOCK)["requested"] == 64
    assert one(tmp_path, "bench --num-prompts 8\n" + BLOCK)["requested"] is None


def test_latencies_that_no_request_had_are_none(tmp_path):
    text = BLOCK.replace(" 61.33", " 0.00").replace("12800", "64").replace("640.00", "3.20")
    text = text.replace("80.00  ", "2380.00").replace(
        "Mean TPOT (ms):                          11.60", "Mean TPOT (ms): 0.00"
    )
    result = one(tmp_path, text)
    assert (result["mean_tpot_ms"], result["max_itl_ms"]) == (None, None)
    assert result["plausible"], "of one token each, the first is the last: nothing waits"


def test_answers_that_came_whole(tmp_path):
    result = one(tmp_path, BLOCK.replace(" 80.00  ", " 2390.00"))
    assert "or not streamed" in result["problems"][0]


def test_a_block_behind_a_log_that_begins_with_a_stamp(tmp_path):
    result = one(tmp_path, "[2026-01-01 00:00:00 TP0] Load weight begin.\n" + BLOCK)
    assert result["plausible"]
    assert result["line"] == 2


def test_json_lines_in_a_programs_log(tmp_path):
    log = "[2026-01-01 00:00:00] a line of a log\n[INFO] {not JSON}\n"
    told = read(tmp_path, log + json.dumps(JSON) + "\n" + log, "x.log")
    assert [r["plausible"] for r in told["results"]] == [True]


def test_json_lines_with_notes_between(tmp_path):
    first, second = read(tmp_path, f"bs 8\n{json.dumps(JSON)}\n\nbs 16\n{json.dumps(JSON)}\n", "x.log")[
        "results"
    ]
    assert (first["line"], second["line"], first["output_tokens_per_s"]) == (2, 5, 500.0)


@pytest.mark.parametrize("between", ["\n", "", "\n\n"])
def test_objects_on_several_lines_one_after_another(tmp_path, between):
    told = read(tmp_path, between.join([json.dumps(JSON, indent=2)] * 3), "x.json")
    assert [r["plausible"] for r in told["results"]] == [True] * 3


def test_an_array_that_is_cut(tmp_path):
    text = json.dumps([JSON] * 3, indent=2)
    told = read(tmp_path, text[: -len(text) // 6], "x.json")["results"]
    assert [r["plausible"] for r in told].count(True) == 2
    assert len(told) <= 4


def test_objects_that_are_no_result_are_counted(tmp_path):
    for text in (json.dumps([JSON, {"error": "x"}]), f'{json.dumps(JSON)}\n{{"error": "x"}}\n'):
        assert "no result: 1" in read(tmp_path, text, "x.jsonl")["notes"][-1]


def test_the_accept_length_of_a_run_is_no_servers_average(tmp_path):
    assert any("since its last cache flush" in n for n in read(tmp_path, BLOCK)["notes"])
    told = read(tmp_path, BLOCK.replace("Accept length: ", "Acceptance length: "))
    assert told["results"][0]["accept_length"] == 2.83
    assert not any("since its last cache flush" in n for n in told["notes"])


def test_the_offline_benchmarks_record_has_its_time(tmp_path):
    record = {
        "successful_requests": 10,
        "total_latency": 2.0,
        "total_output_tokens": 100,
        "output_throughput": 50.0,
    }
    result = one(tmp_path, json.dumps(record), "x.jsonl")
    assert (result["completed"], result["duration_s"], result["plausible"]) == (10, 2.0, True)
    assert not one(tmp_path, json.dumps(record | {"output_throughput": 80.0}), "x.jsonl")["plausible"]


def test_specforges_baseline_without_draft_tokens(tmp_path):
    metrics = [{"latency": 20.0, "output_throughput": 150.0, "accept_length": 1.0, "accuracy": 0.9}]
    cell = {"batch_size": 1, "steps": 0, "topk": 0, "num_draft_tokens": 0, "metrics": metrics}
    result = one(tmp_path, json.dumps({"model": "m", "gsm8k": [cell]}), "x.json")
    assert (result["baseline"], result["plausible"], result["accuracy"]) == (True, True, 0.9)


def test_specforge_without_its_settings(tmp_path):
    metrics = [{"latency": 12.0, "output_throughput": 320.0, "accept_length": 2.2, "accuracy": None}]
    cell = {"batch_size": 1, "steps": None, "topk": None, "num_draft_tokens": None, "metrics": metrics}
    told = read(tmp_path, json.dumps({"mtbench": [cell]}), "x.json")
    assert told["results"][0]["plausible"]
    assert told["notes"] == [], "its accept length is the run's own, its throughput over the whole time"


def test_a_peak_below_the_mean_is_explained(tmp_path):
    text = BLOCK.replace("Concurrency:", "Peak output token throughput (tok/s):    300.00    \nConcurrency:")
    told = read(tmp_path, text)
    assert told["results"][0]["peak_output_tokens_per_s"] == 300.0
    assert any("peak output tok/s is below the mean" in note for note in told["notes"])
