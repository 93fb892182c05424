"""One line per way to die, among the lines that stand around it: the root line decides."""

# ruff: noqa: E501 - log lines stand as servers write them
from __future__ import annotations

import json
from pathlib import Path

import pytest

from quietgate.inspect.failures import CLASSES, classify, last_stage

# class, the line that tells it
ROOTS = [
    (
        "out_of_memory",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 114.00 MiB. GPU 0 has a total capacity of 15.58 GiB",
    ),
    ("out_of_memory", "torch.cuda.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB"),
    ("out_of_memory", "RuntimeError: CUDA error: out of memory"),
    ("out_of_memory", "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."),
    ("out_of_memory", "RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB"),
    ("out_of_memory", "[ 123.4] Out of memory: Killed process 4711 (python3) total-vm:1kB"),
    ("out_of_memory", "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 1 GiB"),
    ("kv_pool_exhausted", "AssertionError: No space left for only one request, self.available_size()=0"),
    ("kv_pool_exhausted", "RuntimeError: Prefill out of memory. Try to lower your batch size."),
    ("kv_pool_exhausted", "RuntimeError: Decode out of memory. Try to lower your batch size."),
    (
        "port_in_use",
        "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use",
    ),
    ("port_in_use", "OSError: [Errno 98] Address already in use"),
    (
        "port_in_use",
        "RuntimeError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
    ),
    (
        "missing_model",
        "OSError: /models/none is not a local folder and is not a valid model identifier listed on 'https://huggingface.co/models'",
    ),
    ("missing_model", "huggingface_hub.errors.RepositoryNotFoundError: 404 Client Error."),
    ("missing_model", "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name'"),
    ("missing_model", "FileNotFoundError: [Errno 2] No such file or directory: '/shared/kimi/config.json'"),
    ("missing_model", "RuntimeError: Cannot find any model weights with `/models/empty`"),
    ("missing_model", "OSError: /models/x does not appear to have a file named config.json. Checkout ..."),
    ("draft_mismatch", "KeyError: 'midlayer.self_attn.qkv_proj.weight'"),
    ("draft_mismatch", "KeyError: 'model.fc.weight'"),
    ("draft_mismatch", "AttributeError: 'Qwen2ForCausalLM' object has no attribute 'set_embed'"),
    ("draft_mismatch", "AttributeError: 'LlamaForCausalLM' object has no attribute 'hot_token_id'"),
    (
        "draft_mismatch",
        "/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1500: indexSelectSmallIndex: block: [32,0,0] Assertion `srcIndex < srcSelectDimSize` failed.",
    ),
    ("draft_mismatch", "ValueError: Draft model vocab size mismatch: 32000 and 128256"),
    (
        "context_too_long",
        "ValueError: User-specified context_length (65536) is greater than the derived context_length (32768).",
    ),
    ("nccl_init", "host0:1:1 [0] misc/x.cc:12 NCCL WARN Unrecognized element token 'LK'"),
    ("nccl_init", "RuntimeError: NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)"),
    (
        "nccl_init",
        "torch.distributed.DistBackendError: NCCL error in: ../NCCLUtils.hpp:317, unhandled system error",
    ),
    (
        "nccl_init",
        "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.",
    ),
    (
        "nccl_init",
        "host0:1:1 [0] enqueue.cc:2055 NCCL WARN [Error :] no algorithm/protocol available for function AllReduce",
    ),
    ("nccl_init", 'host0:1:1 [0] misc/x.cc:12 NCCL WARN Unrecognized prefix token "allreduces" when parsing'),
    ("nccl_init", "Error : no algorithm/protocol available for function AllGather with datatype ncclInt8."),
    (
        "nccl_timeout",
        "[rank3]:[E1129 12:00:00.1 ProcessGroupNCCL.cpp:607] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600012 milliseconds before timing out.",
    ),
    (
        "nccl_timeout",
        "[rank1]:[E909 ProcessGroupNCCL.cpp:2252] failure detected by watchdog at work sequence id: 40231",
    ),
    ("shared_memory", "Error while creating shared memory segment /dev/shm/nccl-lNPZ0f (size 7340384)"),
    (
        "shared_memory",
        "host0:1:1 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-v2 to 96 bytes",
    ),
    (
        "shared_memory",
        "RuntimeError: unable to mmap 4096 bytes from file </torch_1>: Cannot allocate memory (12)",
    ),
    ("shared_memory", "run.sh: line 4: 17 Bus error (core dumped) python3 -m sglang.launch_server"),
    ("watchdog", "Watchdog timeout (self.watchdog_timeout=300)"),
    ("watchdog", "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)"),
    ("graph_capture", "Exception: Capture cuda graph failed: something odd"),
    ("graph_capture", "RuntimeError: CUDA error: operation not permitted when stream is capturing"),
    ("illegal_access", "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"),
    ("illegal_access", "RuntimeError: CUDA error: device-side assert triggered"),
    (
        "illegal_access",
        "Failed: Cuda error /workspace/csrc/custom_all_reduce.cuh:364 'an illegal memory access was encountered'",
    ),
    ("segmentation_fault", "Fatal Python error: Segmentation fault"),
    ("segmentation_fault", "[1]    77 segmentation fault (core dumped)  python -m sglang.launch_server"),
    ("segmentation_fault", "scheduler died during initialization (exit code: -11)"),
    ("unsupported", "RuntimeError: CUDA error: no kernel image is available for execution on the device"),
    ("unsupported", "ValueError: Model architectures ['FooForCausalLM'] are not supported for now."),
    ("unsupported", "launch_server.py: error: unrecognized arguments: --foo"),
    ("unsupported", "launch_server.py: error: the following arguments are required: --model-path/--model"),
    ("unsupported", "NotImplementedError: topk > 1 is not supported by this backend"),
    ("unsupported", "triton.compiler.errors.CompilationError: at 322:24:"),
    ("unsupported", "/usr/bin/python3: No module named sglang"),
    (
        "unsupported",
        "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory",
    ),
    (
        "proxy",
        "AssertionError: res=<Response [503]>, res.text='<!DOCTYPE html PUBLIC ... The Squid Software Foundation",
    ),
    (
        "proxy",
        "requests.exceptions.ProxyError: HTTPConnectionPool(host='proxy', port=3128): Max retries exceeded",
    ),
    ("hardware", "RuntimeError: CUDA error: uncorrectable ECC error encountered"),
    ("hardware", "NVRM: Xid (PCI:0000:17:00): 79, pid=1, GPU has fallen off the bus."),
    ("hardware", "RuntimeError: No CUDA GPUs are available"),
    ("unknown", "AttributeError: 'Scheduler' object has no attribute 'token_to_kv_pool'"),
    ("unknown", "KeyError: '58588572becf4f0997b94a5f2c548495'"),
]
BEFORE = "[2026-11-29 12:00:00 TP0] Load weight begin. avail mem=70.00 GB\n"
FRAMES = (
    "[2026-11-29 12:00:09 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
    '  File "/x/sglang/srt/managers/scheduler.py", line 2999, in run_scheduler_process\n'
    "    scheduler = Scheduler(server_args)\n"
    '  File "/x/sglang/srt/managers/tp_worker.py", line 75, in __init__\n'
    '    raise RuntimeError(f"NCCL error: {text}")\n'
)
AFTER = (
    "\n[2026-11-29 12:00:10] Received sigquit from a child process. It usually means the child failed.\n"
    "[2026-11-29 12:00:10] Initialization failed. warmup error: Traceback (most recent call last):\n"
    "requests.exceptions.ConnectionError: HTTPConnectionPool(host='127.0.0.1', port=8000)\n"
    "Killed\n"
)
SHIPPERS = [
    "",
    "2026-11-29T12:00:00.123+01:00 stderr F ",
    "[2026-11-29T12:00:00+08:00] host0 >> (SGLangEngine pid=3111) ",
    "ERROR 2026-11-29T12:00:00.123Z ",
    "ERROR 11-29 12:00:00 worker_base.py:157] ",
    "[rank0]: ",
    "sglang-1  | ",
]


def wrapped(text: str, shipper: str) -> str:
    return "".join(shipper + line for line in text.splitlines(keepends=True))


@pytest.mark.parametrize("shipper", SHIPPERS)
@pytest.mark.parametrize(("expected", "line"), ROOTS, ids=[f"{c}-{i}" for i, (c, _) in enumerate(ROOTS)])
def test_the_root_line_among_its_neighbours(expected, line, shipper):
    found = classify(wrapped(BEFORE + FRAMES + line + AFTER, shipper))
    assert found is not None
    assert found.failure_class == expected
    assert found.line == 7
    assert line[-20:] in found.message or len(line) > 500
    assert not found.message.startswith(("ERROR 2026", "2026", "[rank0]"))


@pytest.mark.parametrize(("expected", "line"), ROOTS, ids=[f"{c}-{i}" for i, (c, _) in enumerate(ROOTS)])
def test_the_root_line_alone(expected, line):
    found = classify(line)
    assert found is not None
    assert found.failure_class == expected


def test_every_class_but_the_stages_ones_is_shown_here():
    shown = {c for c, _ in ROOTS}
    assert set(CLASSES) - shown == {"killed", "never_ready", "stopped_by_us", "hang"}


def test_the_place_of_an_exception():
    found = classify(BEFORE + FRAMES + "KeyError: 'abc'" + AFTER)
    assert found.location == "tp_worker.py:75 __init__"


def test_a_chain_of_exceptions_begins_with_its_root():
    text = (
        FRAMES + "ZeroDivisionError: division by zero\n\n"
        "The above exception was the direct cause of the following exception:\n\n"
        "Traceback (most recent call last):\nRuntimeError: worker died\n"
    )
    assert classify(text).message.startswith("ZeroDivisionError")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Killed\n", "killed"),
        ("run.sh: line 3:  28 Killed                  python3 -m sglang.launch_server --port 1\n", "killed"),
        (
            "[2026-11-29 12:00:00] Received sigquit from a child proces. It usually means the child failed.\n",
            "killed",
        ),
        (
            "[2026-11-29 12:00:00] SIGQUIT received. signum=None, frame=None. It usually means one child failed.\n",
            "killed",
        ),
        ("Rank 0 scheduler died during initialization (exit code: -9). If exit code is -9 ...\n", "killed"),
        (
            "[2026-11-29 12:00:00] Initialization failed. warmup error: Traceback (most recent call last):\nrequests.exceptions.ReadTimeout: timed out\n",
            "never_ready",
        ),
        (
            "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds.\n",
            "hang",
        ),
        ("root 101 153 0.0 0 0 ? Z Mar19 13793:02 [sglang::schedul] <defunct>\n", "hang"),
        (
            "Input length (9000 tokens) exceeds the maximum allowed length (8192 tokens).\n",
            "context_too_long",
        ),
    ],
)
def test_symptoms_and_consequences(line, expected):
    assert classify(BEFORE + line).failure_class == expected


STOP = (
    "[2026-11-29 12:17:43] SIGTERM received. signum=None frame=None. Draining requests and shutting down...\n",
    "[2026-11-29 12:17:43] Received SIGTERM, exiting gracefully\n",
    "[2026-11-29 12:17:43] Subprocess detokenizer (pid=3) crashed with exit code -15. Triggering SIGQUIT for cleanup...\n",
    "INFO:     Shutting down\n",
    "KeyboardInterrupt\n",
)


@pytest.mark.parametrize("stop", STOP)
def test_a_stop_by_us_is_no_crash(stop):
    found = classify(
        BEFORE + stop + "[2026-11-29 12:17:43] SIGQUIT received. signum=None\nKilled\nRuntimeError: closed\n"
    )
    assert found.failure_class == "stopped_by_us"
    assert found.line == 2


def test_what_failed_before_the_stop_is_the_failure():
    found = classify(BEFORE + FRAMES + "KeyError: 'abc'\n" + STOP[0])
    assert (found.failure_class, found.line) == ("unknown", 7)


def test_an_export_that_stands_newest_first():
    lines = (BEFORE + FRAMES + "ncclSystemError: System call failed\n").splitlines(keepends=True)
    lines += ["Error while creating shared memory segment /dev/shm/nccl-x (size 96)\n", "Killed\n"]
    stamped = [f"ERROR 2026-11-29T00:01:{i:02d}.5Z {line}" for i, line in enumerate(lines)]
    assert classify("".join(stamped)).failure_class == "shared_memory"
    assert classify("".join(reversed(stamped))).failure_class == "shared_memory"


def test_a_hang_shows_by_what_never_ended():
    start = "h:1:1 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1 commId 0x2 - Init START\n"
    assert classify(start).failure_class == "hang"
    assert classify(start + start.replace("START", "COMPLETE")) is None
    capture = (
        "[2026-11-29 12:00:00 TP0] Capture target verify CUDA graph begin. backend=full, avail mem=1.00 GB\n"
    )
    gone = "resource_tracker.py:254: UserWarning: resource_tracker: There appear to be 2 leaked semaphore objects\n"
    assert classify(BEFORE + capture) is None
    found = classify(BEFORE + capture + gone)
    assert found.failure_class == "hang"
    assert "Capture target verify CUDA graph begin" in found.message
    assert "NCCL_CUMEM_ENABLE" in found.advice
    assert last_stage(BEFORE + capture) == "Capture target verify CUDA graph begin"
    for text in (start, BEFORE + capture + gone, "sglang::schedul <defunct>\n"):
        assert classify(text, exited=True) is None, "what has ended did not hang"


@pytest.mark.parametrize(
    "line",
    [
        "[2026-11-29 12:00:00 TP1] Failed to load generation config for /m: /m does not appear to have a file named generation_config.json.",
        "[2026-11-29 12:00:00 TP0] Ignore import error when loading sglang.srt.models.x: No module named 'helion'",
        "[2026-11-29 12:00:00 TP0] Decode out of memory happened. #retracted_reqs: 1, #new_token_ratio: 0.1 -> 0.2",
        "[2026-11-29 12:00:00] WARNING:  Invalid HTTP request received.",
        "[2026-11-29 12:00:00 TP0] Custom allreduce is disabled because it's not supported on more than two PCIe-only GPUs.",
        "[2026-11-29 12:00:00 TP0] Memory pool end. avail mem=2.46 GB",
        "[2026-11-29 12:00:00] server_args=ServerArgs(model_path='m', watchdog_timeout=300, disable_overlap=False)",
        "[2026-11-29 12:00:00] Receive: obj=GenerateReqInput(text='torch.OutOfMemoryError: CUDA out of memory')",
    ],
)
def test_what_a_healthy_server_writes_is_no_failure(line):
    assert classify(BEFORE + line + "\n") is None


def test_files_however_broken(tmp_path: Path):
    path = tmp_path / "server.log"
    assert classify(path) is None
    path.write_bytes(b"")
    assert classify(path) is None
    path.write_bytes(b"\0" * 100_000)
    assert classify(path) is None
    path.write_text(BEFORE + "Killed\n")
    assert classify(path).failure_class == "killed"
    assert classify(tmp_path) is None


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (-9, "killed"),
        (137, "killed"),
        (-11, "segmentation_fault"),
        (-15, "stopped_by_us"),
        (-7, "shared_memory"),
        (1, None),
        (0, None),
    ],
)
def test_the_exit_status_speaks_where_the_log_does_not(status, expected):
    found = classify(BEFORE, status)
    assert (found and found.failure_class) == expected
    assert (
        classify(FRAMES + "torch.OutOfMemoryError: CUDA out of memory.", status).failure_class
        == "out_of_memory"
    )


DIED = "RuntimeError: Rank 0 scheduler died during initialization (exit code: {}). If exit code is -9 (SIGKILL), a common cause is the OS OOM killer. Run `dmesg -T | grep -i oom` to check."


@pytest.mark.parametrize(
    ("line", "failure_class"),
    [
        # A hint at what an exit code may mean is no evidence of it.
        (DIED.format(-9), "killed"),
        (DIED.format(1), "unknown"),
        (DIED.format(-11), "segmentation_fault"),
        ("kernel: Memory cgroup out of memory: Killed process 12 (python3)", "out_of_memory"),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=12.0.", "out_of_memory"),
        ("slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2026-11-29T10:00:00 ***", "killed"),
        (
            "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes.",
            "out_of_memory",
        ),
        ("RuntimeError: CUDA error: uncorrectable NVLink error detected", "hardware"),
        (
            "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).",
            "unsupported",
        ),
        ("AssertionError: 40 is not divisible by 16", "unsupported"),
        ("ValueError: SWA pool (10 tokens) cannot hold even one request", "kv_pool_exhausted"),
        (
            "safetensors_rust.SafetensorError: Error while deserializing header: InvalidHeader",
            "missing_model",
        ),
        (
            "RuntimeError: [../gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:4000",
            "nccl_init",
        ),
        ("KeyError: 'model.layers.0.midlayer.weight'", "draft_mismatch"),
    ],
)
def test_more_ways_to_die(line, failure_class):
    found = classify(f"[2026-11-29 12:00:00] Load weight begin.\n{line}\n")
    assert found is not None
    assert found.failure_class == failure_class


CRASH = (
    "[2026-11-29 12:00:09 TP0] Scheduler hit an exception: Traceback (most recent call last):",
    '  File "/x/scheduler.py", line 30, in run',
    "    y = d[k]",
    "KeyError: 'abc'",
    "[2026-11-29 12:00:09] SIGQUIT received. signum=None, frame=None. It usually means one child failed.",
)


@pytest.mark.parametrize(
    "shipper",
    [
        "[pod/sglang-0/main] ",
        "[pod/sglang-0/main] 2026-11-29T12:00:00.123456789Z ",
        "2026-11-29T12:00:00+0000 node1 python3[123]: ",
        "[12345.678901] node1 python3[123]: ",
        '2026-11-29T12:00:00Z {app="sglang", pod="a"} ',
        "1740567600000 ",
        "3: ",
        "node17: ",
        "\x1b[36m(raylet)\x1b[0m ",
        "2026-11-29 12:00:00 [INFO] ",
        "Nov 29 12:00:00 ",
        "sglang.1.abcdef@node1    | ",
        "sglang-0 main ",  # of no known form: told by what stands before the server's own stamp
        "<14>1 whatever ",
    ],
)
def test_the_reason_behind_any_shipper(shipper):
    found = classify("\n".join(shipper + line for line in CRASH))
    assert found is not None
    assert (found.failure_class, found.line, found.message) == ("unknown", 4, "KeyError: 'abc'")
    assert found.location == "scheduler.py:30 run"


@pytest.mark.parametrize("key", ["log", "message", "msg", "textPayload", "line", "body", "MESSAGE", "text"])
def test_the_reason_inside_json(key):
    lines = [json.dumps({"time": "t", key: line, "severity": "ERROR"}) for line in CRASH]
    found = classify("\n".join(lines))
    assert found is not None
    assert (found.line, found.message, found.location) == (4, "KeyError: 'abc'", "scheduler.py:30 run")
    whole = classify(json.dumps({key: "\n".join(CRASH[:4])}))
    assert whole is not None
    assert whole.message == "KeyError: 'abc'"
    text = "Traceback (most recent call last):\n  File 'a.py'\nRuntimeError: CUDA error: out of memory\nCompile with"
    memory = classify(json.dumps({key: text}))
    assert memory is not None
    assert memory.message == "RuntimeError: CUDA error: out of memory"


def test_a_compilers_reason_stands_behind_the_source_it_quotes():
    text = (
        "triton.compiler.errors.CompilationError: at 12:4:\n    if a:\n    ^\n"
        "AssertionError('initial value for `x` is of type fp16')\n"
    )
    found = classify(text)
    assert found is not None
    assert found.message.endswith("at 12:4: AssertionError('initial value for `x` is of type fp16')")


def test_what_is_missing_tells_more_than_prose():
    start = "h:1:1 [2] NCCL INFO ncclCommInitRank comm 0x1 rank 2 nranks 8 cudaDev 2 - Init START\n"
    found = classify("NCCL hangs during initialization on my machine\n" + start)
    assert found is not None
    assert found.message == "NCCL: 1 communicator began to initialise, 0 completed"
