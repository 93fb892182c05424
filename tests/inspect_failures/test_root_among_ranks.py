"""Which of several complaints is the root: of ranks that miss each other, of native code, of signals."""

# ruff: noqa: E501 - log lines stand as servers write them
from __future__ import annotations

import pytest

from quietgate.inspect.failures import classify

START = "[2026-11-29 12:00:00 TP0] Load weight begin. avail mem=70.00 GB\n"


def hit(rank: int, raised: str) -> str:
    return (
        f"[2026-11-29 12:00:09 TP{rank}] Scheduler hit an exception: Traceback (most recent call last):\n"
        f'  File "/x/scheduler.py", line 3{rank}, in run\n    y = f(x)\n{raised}\n\n'
    )


ROOT = hit(0, "AttributeError: 'NoneType' object has no attribute 'shape'")
QUIT = "[2026-11-29 12:00:09] Received sigquit from a child process. It usually means the child failed.\n"
NOT_UP = (
    "[2026-11-29 12:00:10] Initialization failed. warmup error: Traceback (most recent call last):\n"
    "requests.exceptions.ConnectionError: HTTPConnectionPool(host='127.0.0.1', port=8000)\n"
)
PEERS = [
    hit(1, "RuntimeError: [/x/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:1114"),
    hit(1, "RuntimeError: NCCL error: remote process exited or there was a network error"),
]


@pytest.mark.parametrize("peer", PEERS)
def test_a_rank_that_misses_another_one_is_not_the_root(peer):
    for text in (ROOT + QUIT + peer, peer + ROOT + QUIT, ROOT + peer * 7 + QUIT + NOT_UP):
        found = classify(START + text)
        assert found is not None
        assert found.message.startswith("AttributeError")
        assert found.location == "scheduler.py:30 run"


@pytest.mark.parametrize("peer", PEERS)
def test_a_rank_that_misses_another_one_tells_most_where_nothing_else_does(peer):
    for text in (peer, peer + QUIT + NOT_UP + "Killed\n", peer * 3 + QUIT):
        found = classify(START + text)
        assert found is not None
        assert (found.failure_class, found.line) == ("nccl_init", 5)


def test_a_known_cause_on_another_rank_is_the_root():
    found = classify(START + PEERS[0] + hit(0, "torch.OutOfMemoryError: CUDA out of memory."))
    assert found is not None
    assert (found.failure_class, found.line) == ("out_of_memory", 10)


@pytest.mark.parametrize("shipper", ["2026-11-29T12:00:{:02d}Z ", "ERROR 2026-11-29T12:00:{:02d}.5Z "])
def test_an_export_newest_first_has_its_root_last(shipper):
    lines = (START + ROOT + QUIT + NOT_UP).splitlines()
    stamped = [shipper.format(i) + line for i, line in enumerate(lines)]
    found = classify("\n".join(reversed(stamped)))
    assert found is not None
    assert found.message.startswith("AttributeError")
    assert found.location == "scheduler.py:30 run"


@pytest.mark.parametrize(
    ("text", "expected", "message"),
    [
        ("Failed: Cuda error /x/all_reduce.cuh:336 'invalid argument'\n" + QUIT, "unknown", "Failed: Cuda error"),
        ("free(): invalid pointer\nAborted (core dumped)\n", "unknown", "free(): invalid pointer"),
        ("terminate called after throwing an instance of 'E'\n  what():  no error known\nAborted (core dumped)\n", "unknown", "what():"),
        ("Fatal Python error: Aborted\n" + QUIT, "unknown", "Fatal Python error: Aborted"),
        ("[x]a.cpp:801: Server::Build: Assertion `t == T' failed.\n" + PEERS[0], "unknown", "Assertion `t == T' failed."),
        ("[2026-11-29 12:00:09] Subprocess scheduler_3 (pid=2) crashed with exit code -6.\n" + QUIT, "killed", "exit code -6"),
        ("[2026-11-29 12:00:09] Child process unexpectedly failed with exitcode=9. pid=2\n" + QUIT, "killed", "exitcode=9"),
        ("[2026-11-29 12:00:09] Child process unexpectedly failed with exitcode=139. pid=2\n", "segmentation_fault", "exitcode=139"),
        ("sglang exited with code 137\n", "killed", "code 137"),
        ("    Exit Code:    137\n", "killed", "137"),
        ("gpu1 systemd[1]: sglang.service: Main process exited, code=killed, status=9/KILL\n", "killed", "status=9/KILL"),
        ("gpu1 systemd[1]: sglang.service: Main process exited, code=killed, status=15/TERM\n", "stopped_by_us", "status=15/TERM"),
        ("RuntimeError: Rank 0 scheduler died during initialization (exit code: -3).\n" + QUIT, "unknown", "exit code: -3"),
    ],
)  # fmt: skip
def test_ends_without_an_exception(text, expected, message):
    found = classify(START + text)
    assert found is not None
    assert found.failure_class == expected
    assert message in found.message
    assert found.line in (2, 3)


def test_what_torch_says_of_every_failed_collective_is_no_timeout_by_itself():
    said = "[E ProcessGroupNCCL.cpp:455] Some NCCL operations have failed or timed out.\n"
    assert classify(START + said).failure_class == "nccl_timeout"
    refused = "torch.distributed.DistBackendError: NCCL error in: X.cpp:1, ncclInternalError\n"
    assert classify(START + said + refused).failure_class == "nccl_init"


@pytest.mark.parametrize(
    "shipper",
    [
        "2026-11-29 12:00:00,531 - __main__ - INFO - {}",
        "2026-11-29 12:00:00.531 | ERROR    | engine:launch:12 - {}",
        "│ {:100} │",
    ],
)
def test_what_a_logger_or_a_terminal_puts_around_a_line(shipper):
    text = "".join(shipper.format(line) + "\n" for line in (START + "KeyError: 'abc'\n" + QUIT).splitlines())
    found = classify(text)
    assert found is not None
    assert (found.line, found.message) == (2, "KeyError: 'abc'")


def test_an_ascend_error_number_is_no_host():
    found = classify("EI0002: [PID: 13] The wait execution of the Notify register times out.\n")
    assert found is not None
    assert found.message.startswith("EI0002: ")
