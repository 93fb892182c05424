"""SGLang's benchmarks of one batch and its accuracy scripts: one meaning of output_tokens_per_s for all."""

from __future__ import annotations

import json

import pytest

from quietgate.inspect import bench

SERVER = {
    "run_name": "default",
    "batch_size": 16,
    "input_len": 1000,
    "output_len": 500,
    "latency": 10.0,
    "input_throughput": 8000.0,
    "output_throughput": 1000.0,
    "overall_throughput": 2400.0,
    "last_ttft": 2.0,
    "acc_length": 2.4,
}
OFFLINE = {
    "run_name": "default",
    "batch_size": 4,
    "input_len": 256,
    "output_len": 16,
    "prefill_latency": 0.02,
    "prefill_throughput": 51200.0,
    "median_decode_latency": 0.008,
    "median_decode_throughput": 500.0,
    "total_latency": 0.16,
    "overall_throughput": 6800.0,
}


def results(tmp_path, text: str, name: str = "result.jsonl") -> list[dict]:
    path = tmp_path / name
    path.write_text(text)
    told = bench.read(path)
    json.dumps(told, allow_nan=False)
    return told["results"]


def test_a_batch_on_a_server(tmp_path):
    (result,) = results(tmp_path, json.dumps(SERVER))
    assert result["plausible"], result["problems"]
    assert result["output_tokens_per_s"] == 800.0  # 16 * 500 in 10 s, not in the 8 s after the first tokens
    assert (result["decode_tokens_per_s"], result["prefill_tokens_per_s"]) == (1000.0, 8000.0)
    assert "input_tokens_per_s" not in result
    assert (result["duration_s"], result["max_ttft_ms"], result["accept_length"]) == (10.0, 2000.0, 2.4)


def test_no_speculation_is_no_accept_length(tmp_path):
    (result,) = results(tmp_path, json.dumps(SERVER | {"acc_length": -1}))
    assert result["accept_length"] is None
    assert result["plausible"]


def test_a_batch_without_a_server(tmp_path):
    first, second = results(tmp_path, f"{json.dumps(OFFLINE)}\n{json.dumps(OFFLINE | {'batch_size': 8})}\n")
    assert (first["output_tokens_per_s"], second["output_tokens_per_s"]) == (400.0, 800.0)
    assert (first["median_decode_tokens_per_s"], first["prefill_tokens_per_s"]) == (500.0, 51200.0)
    assert first["plausible"]


def server_text(size: int, latency: float, more: str = "") -> str:
    return (
        f"batch size: {size}\ninput_len: 1000\noutput_len: 500\nlatency: {latency:.2f} s\n"
        f"input throughput: 8000.00 tok/s\noutput throughput: 1000.00 tok/s\n"
        f"last_ttft: 2.00 s\nlast generation throughput: 1100.00 tok/s\n{more}"
    )


def test_what_is_printed_of_batches_on_a_server_without_the_warm_up(tmp_path):
    text = (
        "======== Warmup Begin ========\nWarmup with batch_size=[1]\n"
        + server_text(1, 99.0)
        + "======== Warmup End   ========\n\n"
        + server_text(8, 5.0)
        + server_text(16, 10.0, "acc_length: 2.40 \n")
        + "\nResults are saved to result.jsonl\n| batch size | latency (s) |\n| 16 | 10.00 |\n"
    )
    first, second = results(tmp_path, text, "out.txt")
    assert (first["batch_size"], first["output_tokens_per_s"], first["accept_length"]) == (8, 800.0, None)
    assert (second["batch_size"], second["output_tokens_per_s"], second["accept_length"]) == (16, 800.0, 2.4)
    assert second["plausible"]


@pytest.mark.parametrize("prefix", ["", "[2026-01-01 00:00:00 TP0] "])
def test_what_is_printed_of_batches_without_a_server(tmp_path, prefix):
    def run(prefill: float) -> str:
        return (
            f"{prefix}Prefill. latency: 0.01014 s, throughput: {prefill:9.2f} token/s\n"
            f"{prefix}Decode 0. Batch size: 4, latency: 0.00572 s, throughput:    174.85 token/s\n"
            f"{prefix}Decode.  median latency: 0.00572 s, median throughput:    699.30 token/s\n"
            f"{prefix}Total. latency:  0.062 s, throughput:   1122.76 token/s\n"
        )

    (result,) = results(tmp_path, f"Warmup ...\n{run(10.0)}Benchmark ...\n{run(5916.43)}", "out.txt")
    assert (result["batch_size"], result["prefill_tokens_per_s"]) == (4, 5916.43)
    assert (result["median_decode_tokens_per_s"], result["output_tokens_per_s"]) == (699.3, None)
    assert result["plausible"], "output lengths are not printed, which speaks against nothing"


def test_an_accuracy_script(tmp_path):
    text = (
        "100%|###| 200/200 [00:12<00:00]\nAccuracy: 0.955\nInvalid: 0.000\n"
        "Latency: 12.514 s\nOutput throughput: 1598.312 token/s\n"
    )
    (printed,) = results(tmp_path, text * 2, "out.txt")[1:]
    assert (printed["accuracy"], printed["duration_s"], printed["output_tokens_per_s"]) == (
        0.955,
        12.514,
        1598.312,
    )
    (written,) = results(
        tmp_path, json.dumps({"accuracy": 0.955, "latency": 12.514, "output_throughput": 1598.312})
    )
    assert (written["accuracy"], written["duration_s"], written["output_tokens_per_s"]) == (
        0.955,
        12.514,
        1598.312,
    )


def test_answers_that_ended_early_are_counted_as_they_were(tmp_path):
    (written,) = results(tmp_path, json.dumps(SERVER | {"total_output_tokens": 6000, "num_early_stopped": 9}))
    assert (written["output_tokens"], written["output_tokens_per_s"]) == (6000, 600.0)
    early = "total output tokens: 6000 (requested 8000)\nearly-stopped requests: 9/16\n"
    clamped = "WARNING: generated 6000 tokens but requested 8000; the server clamped max_new_tokens\n"
    for text in (server_text(16, 10.0, early), clamped + server_text(16, 10.0)):
        (printed,) = results(tmp_path, text, "out.txt")
        assert (printed["output_tokens"], printed["output_tokens_per_s"]) == (6000, 600.0)


def test_older_wording_and_a_batch_without_decode_steps(tmp_path):
    text = (
        "# Benchmark ...\n# Prefill. latency: 3.73642 s, throughput:   1096.24 token/s\n"
        "# Total. latency:  3.736 s, throughput:   1097.31 token/s\n"
        "# Prefill. latency: 3.50000 s, throughput:   1100.00 token/s\n"
        "# Decode.  latency: 0.03126 s, throughput:    127.94 token/s\n"
        "# Decode.  median latency: 0.01914 s, median throughput:    209.03 token/s\n"
        "# Total. latency:  3.900 s, throughput:   1100.31 token/s\n"
    )
    prefill, both = results(tmp_path, text, "out.txt")
    assert prefill["plausible"]
    assert "median_decode_tokens_per_s" not in prefill
    assert both["median_decode_tokens_per_s"] == 209.03


def test_a_number_that_is_none_is_left_out(tmp_path):
    text = f"batch size: {'1' * 5000}\nbatch size: 2\ninput len: 4\noutput len: 8\nlatency: 2.0 s\n"
    (found,) = results(tmp_path, text, "out.txt")
    assert (found["batch_size"], found["output_tokens_per_s"]) == (2, 8)
