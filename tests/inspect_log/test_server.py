"""What a log tells of a server: ready, arguments, several boots, ranks, pauses, acceptance, plausibility."""

# ruff: noqa: E501 - log lines stand as servers write them
from __future__ import annotations

import math
from pathlib import Path

import pytest

from quietgate.inspect import log
from quietgate.inspect.log import arguments
from quietgate.inspect.log.accept_rate import WITH_BONUS, WITHOUT_BONUS, AcceptRate
from quietgate.inspect.log.numbers import Numbers

READY = "[2026-11-29 12:01:00] The server is fired up and ready to roll!\n"


def read(tmp_path: Path, text: str) -> dict:
    path = tmp_path / "server.log"
    path.write_text(text)
    return log.read(path)


def boot(clock: str = "12:00:00", more: str = "") -> str:
    return (
        f"[2026-11-29 {clock}] server_args=ServerArgs(model_path='m', tp_size=2, node_rank=0, nnodes=1{more})\n"
        f"[2026-11-29 {clock} TP0] Load weight begin. avail mem=70.00 GB\n"
    )


def decode(
    rate: float, *, clock: str = "12:02:00", ranks: str = "", running: int = 1, accept: str = ""
) -> str:
    return (
        f"[2026-11-29 {clock}{ranks}] Decode batch, #running-req: {running}, #token: 100, token usage: 0.10, "
        f"{accept}cuda graph: True, gen throughput (token/s): {rate:.2f}, #queue-req: 0\n"
    )


def clocks(count: int, every_s: int = 1, start_s: int = 43200) -> list[str]:
    return [
        f"{s // 3600:02d}:{s // 60 % 60:02d}:{s % 60:02d}"
        for s in range(start_s, start_s + count * every_s, every_s)
    ]


def test_uvicorn_up_is_not_ready(tmp_path):
    up = boot() + "[2026-11-29 12:00:30] INFO:     Application startup complete.\n"
    assert not read(tmp_path, up)["ready"]
    told = read(tmp_path, up + READY)
    assert (told["ready"], told["ready_line"], told["seconds_to_ready"]) == (True, 4, 60.0)


def test_several_boots_the_last_decides(tmp_path):
    crash = "[2026-11-29 12:00:20 TP0] Scheduler hit an exception: Traceback (most recent call last):\nValueError: odd\n"
    told = read(tmp_path, boot() + crash + boot("13:00:00") + READY + decode(50.0) * 3)
    assert told["boots"] == 2
    assert told["ready"]
    assert told["failure"] is None
    first, second = told["servers"]
    assert first["failure"]["class"] == "unknown"
    assert not first["ready"]
    assert (second["first_line"], second["ready_line"]) == (5, 7)
    told = read(tmp_path, boot() + READY + decode(50.0) * 3 + boot("13:00:00") + crash)
    assert not told["ready"]
    assert told["failure"]["class"] == "unknown"
    assert told["decode"]["lines"] == 3


def test_another_nodes_arguments_are_no_boot(tmp_path):
    node = "[2026-11-29 12:00:05] server_args=ServerArgs(model_path='m', tp_size=2, node_rank=1, nnodes=2)\n"
    assert read(tmp_path, boot() + node + READY)["boots"] == 1


def test_pipeline_ranks_repeat_a_batch(tmp_path):
    text = "".join(decode(200.0 + p, ranks=f" PP{p}", clock=c) for c in clocks(10) for p in range(4))
    told = read(tmp_path, text)["decode"]
    assert told["lines"] == 40
    assert told["server_throughput_mean"] == pytest.approx(200.0)
    assert told["gen_throughput_mean"] == pytest.approx(201.5)


@pytest.mark.parametrize("rounds", [1, 30])
def test_data_ranks_add_up(tmp_path, rounds):
    text = "".join(
        decode(100.0 + d, ranks=f" DP{d} TP{d * 4}", clock=c) for c in clocks(rounds) for d in range(4)
    )
    told = read(tmp_path, text)
    assert told["decode"]["server_throughput_mean"] == pytest.approx(406.0)
    assert told["decode"]["data_ranks"] == [0, 1, 2, 3]
    text = "".join(decode(100.0, ranks=f" DP{d}", clock=c) for c in clocks(rounds) for d in (0, 1, 3))
    assert any("DP2" in note for note in read(tmp_path, text)["notes"])


def test_the_first_line_after_a_pause_counts_the_pause(tmp_path):
    lines = [decode(2.0, clock="12:00:00")]
    lines += [decode(100.0 + i % 3, clock=c) for i, c in enumerate(clocks(40, 1, 43201))]
    lines += [decode(3.0, clock="12:05:00")]
    lines += [decode(100.0 + i % 3, clock=c) for i, c in enumerate(clocks(40, 1, 43501))]
    told = read(tmp_path, "".join(lines))["decode"]
    assert told["lines_after_pause"] == 2
    assert told["gen_throughput_mean_busy"] == pytest.approx(101.0, abs=0.1)
    assert told["gen_throughput_mean"] < told["gen_throughput_mean_busy"]


def test_fewer_requests_are_no_pause(tmp_path):
    text = "".join(decode(800.0, clock=c, running=8) for c in clocks(20))
    text += "".join(decode(100.0, clock=c, running=1) for c in clocks(20, 1, 43220))
    assert read(tmp_path, text)["decode"]["lines_after_pause"] == 0


def test_slow_throughout_is_not_a_cold_first_line(tmp_path):
    told = read(tmp_path, "".join(decode(0.6 + i % 2 / 10, clock=c) for i, c in enumerate(clocks(12, 60))))
    assert told["decode"]["lines_after_pause"] == 0
    assert not told["plausible"]
    assert "throughout" in told["problems"][0]


def test_a_full_kv_pool_is_named(tmp_path):
    told = read(tmp_path, decode(30.0).replace("0.10", "0.95") * 5 + decode(30.0) * 5)
    assert "5 of 10" in told["problems"][0]


def test_retractions_count_once_for_all_ranks(tmp_path):
    text = "".join(
        f"[2026-11-29 12:00:{s:02d} TP{t}] Decode out of memory happened. #retracted_reqs: 2, "
        f"#new_token_ratio: 0.10 -> 0.2{s}\n"
        for s in range(3)
        for t in range(8)
    )
    told = read(tmp_path, decode(30.0) * 4 + text)
    assert told["retractions"] == {"events": 3, "requests": 6}
    assert told["failure"] is None


def test_a_stop_by_us_is_no_crash(tmp_path):
    tail = (
        "[2026-11-29 12:17:43] SIGTERM received. signum=None frame=None. Draining requests and shutting down...\n"
        "[2026-11-29 12:17:43] Subprocess detokenizer (pid=3) crashed with exit code -15. Triggering SIGQUIT ...\n"
        "[2026-11-29 12:17:43] SIGQUIT received. signum=None, frame=None. It usually means one child failed.\n"
    )
    told = read(tmp_path, boot() + READY + decode(50.0) * 3 + tail)
    assert told["failure"] is None
    assert told["stopped"]["line"] == 7


def test_what_a_living_server_survived_is_no_failure(tmp_path):
    sick = "[2026-11-29 12:03:00] Health check failed. Server couldn't get a response from detokenizer for 20 s\n"
    told = read(tmp_path, boot() + READY + sick + decode(50.0) * 6)
    assert told["failure"] is None
    assert "1 health check failed" in told["notes"][0]
    assert read(tmp_path, boot() + READY + decode(50.0) * 6 + sick)["failure"]["class"] == "hang"
    assert read(tmp_path, boot() + READY + sick + decode(50.0))["failure"] is None


def test_numbers_of_a_failed_server_are_partial(tmp_path):
    told = read(
        tmp_path,
        boot()
        + READY
        + decode(50.0) * 6
        + "torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n",
    )
    assert told["failure"]["class"] == "illegal_access"
    assert any("partial" in problem for problem in told["problems"])


def test_what_users_say_is_no_failure(tmp_path):
    said = (
        "[2026-11-29 12:02:00] Receive: obj=GenerateReqInput(text='CUDA out of memory. Segmentation fault')\n"
    )
    assert read(tmp_path, boot() + READY + said)["failure"] is None


def test_http_answers_are_counted(tmp_path):
    ok = '[2026-11-29 12:02:00] INFO:     127.0.0.1:5 - "POST /generate HTTP/1.1" 200 OK\n'
    told = read(tmp_path, READY + ok * 3 + ok.replace("200 OK", "400 Bad Request"))
    assert told["http_statuses"] == {"200": 3, "400": 1}


@pytest.mark.parametrize(
    "text",
    [
        "[x] server_args=ServerArgs(model_path='/a (b), c', tp_size=8, api_key=None, rate=inf, bs=[1, 2], at=(1, 1e999), "
        "mode=<Mode.FAST: 'fast'>, override='{\"a\": [1, {}]}', obj=<object at 0x7f>, on=True)",
        "[x] server_args={'model_path': '/a (b), c', 'tp_size': 8, 'api_key': None, 'rate': inf, 'bs': [1, 2], 'at': (1, 1e999), "
        "'mode': <Mode.FAST: 'fast'>, 'override': '{\"a\": [1, {}]}', 'obj': <object at 0x7f>, 'on': True}",
    ],
)
def test_arguments_as_repr_and_as_dict(text):
    told = arguments.parse(text)
    assert told == {
        "model_path": "/a (b), c",
        "tp_size": 8,
        "api_key": None,
        "rate": "inf",
        "bs": [1, 2],
        "at": [1, "inf"],
        "mode": "fast",
        "override": '{"a": [1, {}]}',
        "obj": "<object at 0x7f>",
        "on": True,
    }
    for cut in (len(text) - 1, len(text) - 20, 40):
        assert arguments.parse(text[:cut]) is None


def test_cut_arguments_are_null_and_said_so(tmp_path):
    told = read(tmp_path, "[2026-11-29 12:00:00] server_args=ServerArgs(model_path='m', tp_si\n" + READY)
    assert told["server_args"] is None
    assert "cut" in told["notes"][0]
    assert told["boots"] == 1


def pairs(tokens: int, shift: int) -> AcceptRate:
    rate = AcceptRate()
    lengths = [1.0 + (tokens - 1) * i / 20 for i in range(1, 20)]
    rate.add(
        [f"{a:.2f}".encode() for a in lengths],
        [f"{(a - shift) / (tokens - shift):.2f}".encode() for a in lengths],
    )
    return rate


@pytest.mark.parametrize("tokens", [2, 3, 4, 6, 8, 16])
@pytest.mark.parametrize("known", [True, False])
def test_both_meanings_of_accept_rate(tokens, known):
    given = tokens if known else None
    assert pairs(tokens, 0).definition(given) == WITH_BONUS
    assert pairs(tokens, 1).definition(given) == WITHOUT_BONUS


def test_an_accept_rate_that_fits_neither_or_both_is_left_out(tmp_path):
    accept = "accept len: 2.00, accept rate: 0.50, "
    told = read(tmp_path, decode(50.0, accept=accept) * 4)
    assert told["decode"]["accept_rate_mean"] is None
    assert told["decode"]["accept_length_mean"] == 2.0
    told = read(tmp_path, boot(more=", speculative_num_draft_tokens=3") + decode(50.0, accept=accept) * 4)
    assert told["decode"]["accept_rate_mean"] == 0.5
    assert told["decode"]["accept_rate_definition"] == WITHOUT_BONUS


def test_servers_with_different_meanings_are_not_mixed(tmp_path):
    old = "".join(
        decode(50.0, accept=f"accept len: {a:.2f}, accept rate: {a / 4:.2f}, ") for a in (1.5, 2.1, 3.3)
    )
    new = "".join(
        decode(50.0, accept=f"accept len: {a:.2f}, accept rate: {(a - 1) / 3:.2f}, ") for a in (1.5, 2.1, 3.3)
    )
    told = read(tmp_path, boot() + READY + old + boot("13:00:00") + READY + new)
    assert told["decode"]["accept_rate_mean"] is None
    assert [s["decode"]["accept_rate_definition"] for s in told["servers"]] == [WITH_BONUS, WITHOUT_BONUS]
    assert "several meanings" in told["notes"][0]


def test_a_large_log_in_little_memory(tmp_path):
    import tracemalloc

    path = tmp_path / "large.log"
    piece = "".join(decode(100 + i / 7, clock=c) for i, c in enumerate(clocks(2000))).encode()
    with path.open("wb") as f:
        for _ in range(30):
            f.write(piece)
    tracemalloc.start()
    told = log.read(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert told["decode"]["lines"] == 60_000
    assert peak < 12 << 20


QUOTED = "Decode batch, #running-req: 99, #token: 9, token usage: 0.99, accept len: 9.99, gen throughput (token/s): 99999.00, #queue-req: 0"


@pytest.mark.parametrize(
    "line",
    [
        f"[2026-11-29 12:03:00] Receive: obj=GenerateReqInput(rid='a', text='{QUOTED}')",
        f"[2026-11-29 12:03:00] Finish: obj=GenerateReqInput(rid='a'), out={{'text': '[2026-11-29 11:00:00 TP0] {QUOTED}'}}",
        f'[2026-11-29 12:03:00] {{"timestamp": "2026", "event": "request.received", "obj": {{"text": "{QUOTED}"}}}}',
        '{"timestamp": "2026", "event": "request.finished", "out": {"text": "accept len: 9.99, torch.OutOfMemoryError: CUDA out of memory"}}',
        f'[2026-11-29 12:03:00] A client said "{QUOTED}"',
        f'[2026-11-29 12:03:00] {{"event": "request.received", "obj": {{"text": "{READY.strip()}"}}}}',
        "[2026-11-29 12:03:00] Receive: obj=X(text='KV cache pool is full. Retract requests. #retracted_reqs: 9')",
    ],
)
def test_what_users_say_is_no_line_of_the_server(tmp_path, line):
    lines = "".join(decode(50.0, clock=c) for c in clocks(5))
    told = read(tmp_path, boot() + READY + lines + f"{line}\n" * 6 + lines)
    assert (told["decode"]["lines"], told["decode"]["gen_throughput_max"]) == (10, 50.0)
    assert told["decode"]["accept_lines"] == 0
    assert (told["failure"], told["plausible"]) == (None, True)
    assert told["retractions"]["events"] == 0
    assert (told["boots"], told["ready_line"]) == (1, 3)


def prefill(ranks: str, *, clock: str = "12:02:00", tokens: int = 100) -> str:
    return (
        f"[2026-11-29 {clock}{ranks}] Prefill batch, #new-seq: 1, #new-token: {tokens}, #cached-token: 10, "
        "token usage: 0.01, #running-req: 0, #queue-req: 0, #pending-token: 0, cuda graph: False, "
        "input throughput (token/s): 500.00\n"
    )


def test_a_block_in_which_only_repeating_ranks_speak(tmp_path):
    other = prefill(" PP1 TP0").replace("token usage", "full token usage")
    told = read(tmp_path, prefill(" PP0 TP0") * 5 + other * 5)["prefill"]
    assert (told["lines"], told["new_tokens"]) == (10, 500)


def test_prompt_tokens_that_pipeline_ranks_repeat_count_once(tmp_path):
    ranks = [f" DP{d} PP{p} TP{d}" for d in range(2) for p in range(3)]
    told = read(tmp_path, "".join(prefill(r, clock=c) for c in clocks(5) for r in ranks))["prefill"]
    assert told["lines"] == 30
    assert (told["new_tokens"], told["cached_tokens"]) == (5 * 2 * 100, 5 * 2 * 10)


@pytest.mark.parametrize("cut", ["#new-token: 81", "#cached-token: 1", "#new-seq: 1"])
def test_a_count_that_the_cut_ends_is_no_count(tmp_path, cut):
    line = prefill(" TP0", tokens=8192)
    told = read(tmp_path, line + line[: line.index(cut) + len(cut)])["prefill"]
    assert told["new_tokens"] in (8192, 2 * 8192)
    assert told["cached_tokens"] == 10


def test_a_running_count_that_the_cut_ends_is_no_count(tmp_path):
    line = decode(50.0, running=16)
    cut = line[: line.index("#running-req: 1") + len("#running-req: 1")]
    assert read(tmp_path, line + cut)["decode"]["running_mean"] == 16
    assert read(tmp_path, line + (cut + "\n") * 8)["decode"]["running_mean"] == 16


def test_retractions_are_counted_by_rank(tmp_path):
    def full(clock: str, rank: str, ratio: str) -> str:
        return f"[2026-11-29 {clock}{rank}] Decode out of memory happened. #retracted_reqs: 2, #new_token_ratio: {ratio}\n"

    text = (
        "# Decode out of memory happened, all night\n"
        + full("12:00:00", " TP0", "0.1 -> 0.2")
        + full("12:00:01", " TP1", "0.1 -> 0.2")  # the same event, a second later
        + full("12:05:00", " TP0", "0.1 -> 0.2")  # and again
        + full("12:06:00", " TP1", "0.3 -> 0.4")
    )
    assert read(tmp_path, text)["retractions"] == {"events": 3, "requests": 6}


def test_servers_without_arguments_are_counted_by_their_ready_lines(tmp_path):
    told = read(tmp_path, READY + decode(50.0) * 3 + READY + decode(100.0) * 3)
    assert told["boots"] == 2
    assert told["decode"]["server_throughput_mean"] is None
    assert "2 servers became ready" in told["notes"][0]
    assert read(tmp_path, boot() + READY + decode(50.0))["boots"] == 1


def test_every_line_of_a_long_log_is_seen_once(tmp_path):
    """Whole kinds of line are read at once, block by block; what stands between them keeps its number."""
    answer = '[2026-11-29 12:02:00] INFO:     127.0.0.1:{} - "POST /generate HTTP/1.1" {}\n'
    prefill = "[2026-11-29 12:02:00 TP0] Prefill batch, #new-seq: 1, #new-token: {}, #cached-token: 0, token usage: 0.00\n"
    retracted = "[2026-11-29 12:02:00] KV cache pool is full. Retract requests. #retracted_reqs: {}\n"
    lines = [boot(), READY]
    for i in range(6000):
        lines.append(
            decode(100 + i / 100, ranks=" TP0", running=1 + i % 3, accept=f"accept len: {1 + i % 4}.00, ")
        )
        if i % 3 == 0:
            lines.append(prefill.format(i))
        if i % 5 == 0:
            lines.append(answer.format(30000 + i, "200 OK" if i % 10 else "500 Internal Server Error"))
        if i % 1500 == 0:
            lines.append(retracted.format(i // 1500))
        if i % 100 == 0:
            lines.append(decode(-1.0) if i % 200 else "\n")
    lines.append("[2026-11-29 12:02:00 TP0] Scheduler hit an exception: Traceback (most recent call last):\n")
    lines.append("ValueError: odd\n")
    told = read(tmp_path, "".join(lines))
    assert told["lines"] == sum(line.count("\n") for line in lines)
    assert told["decode"]["lines"] == 6030
    assert told["decode"]["accept_lines"] == 6000
    assert told["decode"]["accept_length_mean"] == 2.5
    assert told["decode"]["gen_throughput_max"] == 159.99
    assert (told["prefill"]["lines"], told["prefill"]["new_tokens"]) == (2000, sum(range(0, 6000, 3)))
    assert told["http_statuses"] == {"200": 600, "500": 600}
    assert told["retractions"] == {"events": 4, "requests": 6}
    assert told["failure"]["message"] == "ValueError: odd"
    assert told["failure"]["line"] == told["lines"]


@pytest.mark.parametrize("repeats", [1, 50])
def test_what_users_quote_is_no_batch(tmp_path, repeats):
    said = "[2026-11-29 12:02:00] Receive: obj=GenerateReqInput(text='why does it say " + decode(9.0).strip()
    told = read(tmp_path, boot() + READY + (said + " in my log?')\n" + decode(50.0)) * repeats)
    assert told["decode"]["lines"] == repeats
    assert told["decode"]["gen_throughput_max"] == 50.0


def test_a_server_lives_on_whatever_its_last_line_is(tmp_path):
    failed = "[2026-11-29 12:01:30] Health check failed. Server couldn't get a response from detokenizer for last 20 seconds.\n"
    answer = '[2026-11-29 12:03:00] INFO:     127.0.0.1:5 - "POST /generate HTTP/1.1" 200 OK\n'
    told = read(tmp_path, boot() + READY + failed + decode(50.0) * 9 + answer)
    assert told["failure"] is None
    assert "health check failed" in told["notes"][0]


@pytest.mark.parametrize("repeats", [1, 50])
def test_a_damaged_number_is_left_out(tmp_path, repeats):
    damaged = decode(50.0).replace("usage: 0.10", "usage: 0.0.10")
    told = read(tmp_path, boot() + READY + (decode(50.0) + damaged) * repeats)
    assert told["decode"]["lines"] == 2 * repeats
    assert told["decode"]["token_usage_max"] == 0.1


def test_more_values_than_can_be_counted_one_by_one():
    values = [b"%d.%02d" % (100 + i // 100, i % 100) for i in range(200_000)]
    exact = sorted(map(float, values))
    numbers, as_numbers, merged = Numbers(), Numbers(), Numbers()
    for start in range(0, len(values), 1000):
        numbers.add(values[start : start + 1000])
        as_numbers.add([float(v) for v in values[start : start + 1000]])
    numbers.add([b"0.00", None, b"nan"])
    as_numbers.add([0.0, math.nan])
    merged.add([b"5.00"])
    merged.merge(numbers)
    for n, more in ((numbers, 1), (as_numbers, 1), (merged, 2)):
        assert (n.count, n.not_finite) == (200_000 + more, 1)
        assert n.median == pytest.approx(exact[100_000], rel=5e-4)
        assert n.maximum == pytest.approx(exact[-1], rel=5e-4)
        assert n.mean == pytest.approx(sum(exact) / len(exact), rel=1e-4)
