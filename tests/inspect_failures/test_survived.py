"""What a server survives is no failure of it: one request's trouble, and warnings before it was ready."""

# ruff: noqa: E501 - log lines stand as servers write them
from __future__ import annotations

import pytest

from quietgate.inspect import log
from quietgate.inspect.failures import classify

READY = "[2026-11-29 12:01:00] The server is fired up and ready to roll!\n"
BEGIN = "Traceback (most recent call last):\n"
ASGI = "[2026-11-29 12:02:00] ERROR:    Exception in ASGI application\n" + BEGIN
FRAME = '  File "/x/sglang/srt/entrypoints/http_server.py", line 9, in generate\n    raise exc\n'
CHAIN = "\nDuring handling of the above exception, another exception occurred:\n\n" + BEGIN + FRAME

REQUESTS = [
    ASGI + FRAME + "TypeError: can only concatenate str\n",
    ASGI + FRAME * 100 + "anyio.WouldBlock\n" + CHAIN * 3 + "RuntimeError: No response returned.\n",
    ASGI + FRAME + "ValueError: topk > 1 is not supported\n",
    ASGI.replace("Traceback", "  + Exception Group Traceback") + "  | RuntimeError: the client is gone\n",
    "[2026-11-29 12:02:00] Error in request: 404 for https://example.org/cat.jpg\n"
    + BEGIN
    + FRAME
    + "requests.exceptions.HTTPError: 404 Client Error: Not Found for url: https://example.org/cat.jpg\n"
    + CHAIN
    + "RuntimeError: Error while loading data\n",
    "[2026-11-29 12:02:00] [http_server] Error: The input (70 tokens) is longer than the model's context length (32 tokens).\n",
    "[2026-11-29 12:02:00] Task exception was never retrieved\nfuture: <Task exception=ValueError('gone')>\n"
    + BEGIN
    + FRAME
    + "ValueError: gone\n",
    "[2026-11-29 12:02:00] Unexpected transfer worker error for room 17\n"
    + BEGIN
    + "RuntimeError: refused\n",
]


@pytest.mark.parametrize("request_failed", REQUESTS)
def test_a_failed_request_is_no_failed_server(request_failed, tmp_path):
    assert classify(READY + request_failed) is None
    path = tmp_path / "server.log"
    path.write_text(READY + request_failed)
    told = log.read(path)
    assert told["ready"]
    assert told["failure"] is None
    # Of a server that is dead it is all there is to quote.
    quoted = classify(READY + request_failed, exited=True)
    assert (quoted is None) == ("Exception Group" in request_failed)


@pytest.mark.parametrize(
    ("died_of", "expected"),
    [
        ("Fatal Python error: Segmentation fault\n", "segmentation_fault"),
        ("[2026-11-29 12:02:09 TP0] Scheduler hit an exception: " + BEGIN + "KeyError: 'abc'\n", "unknown"),
        (BEGIN + "  File \"/x/sglang/launch_server.py\", line 9, in <module>\nKeyError: 'abc'\n", "unknown"),
        ("[2026-11-29 12:02:09] SIGQUIT received. signum=None, frame=None.\n", "killed"),
    ],
)
def test_what_kills_a_server_after_a_failed_request(died_of, expected):
    found = classify(READY + REQUESTS[0] + died_of)
    assert found is not None
    assert found.failure_class == expected
    assert "concatenate" not in found.message


WARNINGS = [
    "[2026-11-29 12:00:30] Can not initialize an endpoint, error: "
    + BEGIN
    + "harmony.HarmonyError: no vocabulary\n",
    BEGIN + FRAME + "ImportError: Numba needs an older NumPy.\n",
    "[2026-11-29 12:00:30] Port 30000 is in use, trying 30001\n",
    "host0:1:1 [0] misc/ibvwrap.cc:94 NCCL WARN Failed to open libibverbs.so[.1]\n",
]
LATER = (
    "[2026-11-29 12:09:00 TP0] Scheduler hit an exception: "
    + BEGIN
    + "RuntimeError: CUDA error: an illegal memory access was encountered\n"
)


@pytest.mark.parametrize("warned", WARNINGS)
def test_a_server_that_became_ready_survived_what_it_warned_of(warned):
    assert classify(warned) is not None
    assert classify(warned + READY) is None
    found = classify(warned + READY + LATER)
    assert found is not None
    assert found.failure_class == "illegal_access"


def test_a_start_that_died_stays_failed_whatever_is_ready_later():
    sigquit = "[2026-11-29 12:00:31] SIGQUIT received. signum=None, frame=None.\n"
    found = classify(LATER + sigquit + READY)
    assert found is not None
    assert found.failure_class == "illegal_access"


def test_ranks_that_load_weights_have_found_each_other():
    loads = "[2026-11-29 12:00:40 TP0] Load weight begin. avail mem=70.00 GB\n"
    assert classify(WARNINGS[-1] + loads) is None
    found = classify(WARNINGS[-1] + loads + "torch.OutOfMemoryError: CUDA out of memory.\n")
    assert found is not None
    assert (found.failure_class, found.line) == ("out_of_memory", 3)


def test_a_longer_context_with_an_override_is_a_warning():
    text = "context_length (131072) is greater than the derived context_length (2048)."
    assert classify(f"[2026-11-29 12:00:20] Warning: User-specified {text}\n") is None
    found = classify(f"ValueError: User-specified {text}\n")
    assert found is not None
    assert found.failure_class == "context_too_long"


STOPPED_WEB_SERVER = (
    "[2026-11-29 12:30:00] ERROR:    Traceback (most recent call last):\n"
    '  File "/x/starlette/routing.py", line 700, in lifespan\n'
    "    await receive()\n"
    '  File "/usr/lib/python3.12/asyncio/queues.py", line 158, in get\n'
    "    await getter\n"
    "asyncio.exceptions.CancelledError\n"
)


def test_how_a_stopped_web_server_ends_is_no_failure():
    found = classify(STOPPED_WEB_SERVER)
    assert found is not None
    assert (found.failure_class, found.line) == ("stopped_by_us", 6)


def test_a_cancelled_task_explains_nothing():
    waiting = STOPPED_WEB_SERVER.replace("in lifespan", "in wait_for")
    assert classify(waiting) is None
    chained = "\nDuring handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n"
    found = classify(waiting + chained + "TimeoutError: no answer\n")
    assert found is not None
    assert found.message == "TimeoutError: no answer"


def test_an_exception_before_a_web_server_ends_stays_the_failure():
    found = classify("ValueError: an odd shape\n" + STOPPED_WEB_SERVER)
    assert found is not None
    assert (found.failure_class, found.line) == ("unknown", 1)


REMARKS = [
    "Detected such a model with driver >= 595, using the triton kernel to avoid triton_kernels SIGSEGV.",
    "Draft model Small does not implement set_embed_and_head; skipping the binding.",
    "Graph capture failed for key (2, 8); using eager fallback",
    "Weight cache daemon (pid=7) did not exit within 5s of SIGTERM; sending SIGKILL.",
    "kill_process_tree: 2 process(es) still alive after 1.0s SIGKILL; continuing to wait.",
    "Installed a handler that dumps stacks on a segmentation fault.",
    "Soft watchdog timeout 300 s is on",
]


@pytest.mark.parametrize("remark", REMARKS)
def test_a_remark_is_no_failure(remark, tmp_path):
    said = f"[2026-11-29 12:02:00 TP0] {remark}\n"
    assert classify(said) is None
    path = tmp_path / "server.log"
    path.write_text(said + READY)
    assert log.read(path)["failure"] is None
