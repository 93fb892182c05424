"""Causes beyond NVIDIA's and Python's common ones: one line each, among what surrounds it in a log."""

# ruff: noqa: E501 - log lines stand as servers write them
from __future__ import annotations

import json

import pytest

from quietgate.inspect.failures import classify

START = "[2026-11-29 12:00:00 TP0] Load weight begin. avail mem=70.00 GB\n"
HIT = (
    "[2026-11-29 12:00:09 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
    '  File "/x/sglang/srt/model_executor/model_runner.py", line 30, in forward\n'
)
END = (
    "\n[2026-11-29 12:00:10] SIGQUIT received. signum=None, frame=None. It usually means one child failed.\n"
    "RuntimeError: Rank 0 scheduler died during initialization (exit code: -3). If exit code is -9 (SIGKILL), a common cause is the OS OOM killer.\n"
    "Killed\n"
)

RAISED = [
    # AMD
    ("unsupported", "RuntimeError: HIP error: invalid device function"),
    ("unsupported", "RuntimeError: hipErrorNoBinaryForGpu: no code object for this device"),
    ("graph_capture", "RuntimeError: HIP error: an event was recorded in a capturing stream"),
    # Ascend
    ("nccl_init", "RuntimeError: create:compiler.ts:8 HCCL function error: HcclCommInitRootInfo, error code is 7"),
    ("nccl_init", "RuntimeError: Runner:OpParam.cpp:2 OPS function error: HcclAllreduce, error code is 6"),
    ("nccl_init", "RuntimeError: [ERROR] HCCL error in: torch_npu/ProcessGroupHCCL.cpp:64"),
    # Intel
    ("out_of_memory", "RuntimeError: level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)"),
    ("hardware", "RuntimeError: level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)"),
    # memory by other names
    ("out_of_memory", "RuntimeError: Failed to allocate memory for batch_tmp with size 4096 and alignment 16 in AlignedAllocator"),
    ("out_of_memory", "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ("out_of_memory", "ValueError: Not enough host memory available. Requesting 400.00 GB but only have 4.00 GB free."),
    ("illegal_access", "Exception: Failed to encode tensor map: 700"),
    ("illegal_access", "torch.AcceleratorError: CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error"),
    # experts' dispatch
    ("nccl_timeout", "RuntimeError: DeepEP error: timeout (dispatch CPU)"),
    # compilers and builds
    ("unsupported", "RuntimeError: Ninja build failed. Ninja output:"),
    ("unsupported", "subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1."),
    ("unsupported", "FileNotFoundError: [Errno 2] No such file or directory: 'ninja'"),
    ("unsupported", "RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist"),
    ("unsupported", "triton.runtime.errors.PTXASError: PTXAS error: Internal Triton PTX codegen error"),
    ("unsupported", "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 131072, Hardware limit: 101376."),
    # devices and settings
    ("unsupported", "RuntimeError: CUDA error: invalid device ordinal"),
    ("unsupported", "RuntimeError: No accelerator (CUDA, XPU, HPU) is available."),
    ("unsupported", "AssertionError: Torch not compiled with CUDA enabled"),
    ("hardware", "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error: system not yet initialized"),
    ("unsupported", "RuntimeError: size_k must divisible by BLOCK_SIZE_K"),
    ("unsupported", "ValueError: Quantization method specified in the model config (fp8) does not match the argument (gguf)."),
    ("unsupported", "ValueError: The input size is not aligned with the quantized weight shape."),
    ("unsupported", "AssertionError: KV4 expects attention_backend to be one of ['triton'], but got fa3"),
    ("unsupported", "ValueError: Tokenizer class FooTokenizer does not exist or is not currently imported."),
    ("unsupported", "ValueError: The checkpoint has model type `foo` but Transformers does not recognize this architecture."),
    # files and ports
    ("missing_model", "requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: https://huggingface.co/m/resolve/main/config.json"),
    ("missing_model", "OSError: You are trying to access a gated repo."),
    ("port_in_use", "zmq.error.ZMQError: Address in use (addr='tcp://*:5555')"),
    ("nccl_init", "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms"),
]  # fmt: skip

SAID = [
    ("illegal_access", ":0:rocdevice.cpp :3586: 11 us: Callback: Queue 0x7f aborting with error : HSA_STATUS_ERROR_EXCEPTION: an exception. code: 0x1016"),
    ("illegal_access", "Memory access fault by GPU node-2 (Agent handle: 0x5a) on address 0x7d. Reason: Unknown."),
    ("illegal_access", "NVRM: Xid (PCI:0000:9a:00): 13, Graphics Exception: ESR 0x54a7b0=0x0"),
    ("hardware", "NVRM: Xid (PCI:0000:9a:00): 48, DBE (double bit error)"),
    ("out_of_memory", "NVRM: Check failed: Out of memory [NV_ERR_NO_MEMORY] @ mem_desc.c:1359"),
    ("out_of_memory", "Cuda failure 2 'out of memory'"),
    ("nccl_timeout", "EI0002: [PID: 13] 2026-11-29-12:00:00 The wait execution of the Notify register times out."),
    ("nccl_timeout", "[rank6]:[F1129 ProcessGroupNCCL.cpp:1224] [PG 3 Rank 6] ProcessGroupNCCL's watchdog got stuck for 600 seconds without making progress"),
    ("nccl_timeout", "DeepEP timeout check failed: rank = 6, thread = 0, value = 0)"),
    ("nccl_init", "EI0006: [PID: 12] 2026-11-29-12:00:00 Getting socket times out. Reason: the remote rank did not send in time."),
    ("nccl_init", "NET/IB : Got completion from peer 10.0.0.1<39138> with error 12, opcode 0, len 0, vendor err 129"),
    ("nccl_init", "/x/nvshmem/src/host/transport/transport.cpp:400: non-zero status: 7 transport create connect failed"),
    ("nccl_init", "[E socket.cpp:793] [c10d] The client socket has timed out after 60s while trying to connect to (node0, 2222)."),
    ("unsupported", "/x/tensor_fill.h:40:10: fatal error: curand_kernel.h: No such file or directory"),
    ("unsupported", "ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'"),
    ("unsupported", "NVCC compilation failed: nvcc fatal   : Unsupported gpu architecture 'sm_100f'"),
    ("unsupported", "Failed: Cuda error /x/custom_all_reduce.cuh:307 'peer access is not supported between these two devices'"),
    ("unsupported", "run.sh: line 3: 10 Illegal instruction (core dumped) python3 -m sglang.launch_server"),
    ("missing_model", "Cannot access gated repo for url https://huggingface.co/m/resolve/main/config.json."),
    ("segmentation_fault", "srun: error: node1: task 0: Exited with exit code 139"),
    ("segmentation_fault", "Nov 29 12:00:09 gpu1 systemd[1]: sglang.service: Main process exited, code=dumped, status=11/SEGV"),
]  # fmt: skip


@pytest.mark.parametrize(("expected", "line"), RAISED, ids=[f"{c}-{i}" for i, (c, _) in enumerate(RAISED)])
def test_an_exception_of_this_kind(expected, line):
    found = classify(START + HIT + line + END)
    assert found is not None
    assert (found.failure_class, found.line, found.message) == (expected, 4, line)
    assert found.location == "model_runner.py:30 forward"


@pytest.mark.parametrize(("expected", "line"), SAID, ids=[f"{c}-{i}" for i, (c, _) in enumerate(SAID)])
def test_a_line_of_this_kind(expected, line):
    for before, after in (("", ""), (START, END)):
        found = classify(before + line + after)
        assert found is not None
        assert (found.failure_class, found.line) == (expected, before.count("\n") + 1)
        assert found.message in line


def test_a_builds_reason_stands_before_its_failure():
    header = "/x/gemm.cuh:4:10: fatal error: cublas.h: No such file or directory\n"
    found = classify(START + HIT + "RuntimeError: Ninja build failed. Ninja output:\n" + header + END)
    assert found is not None
    assert (found.failure_class, found.line) == ("unsupported", 5)


def test_a_timed_out_dispatch_stands_before_the_memory_fault_it_ends_with():
    text = "DeepEP timeout check failed: rank = 6, thread = 0, value = 0)\n" + HIT
    found = classify(START + text + "RuntimeError: CUDA error: unspecified launch failure" + END)
    assert found is not None
    assert (found.failure_class, found.line) == ("nccl_timeout", 2)


@pytest.mark.parametrize(
    "raised",
    [
        "KeyError: 'layers.0.self_attn.qkv_proj.weight'",
        "AssertionError: self.org_vocab_size=128256 loaded_weight.shape[output_dim]=32000",
    ],
)
def test_weights_that_do_not_load_are_a_drafts_where_a_draft_loads(raised):
    loading = '  File "/x/sglang/srt/model_loader/loader.py", line 9, in load_model\n'
    draft = '  File "/x/sglang/srt/speculative/eagle_worker.py", line 124, in __init__\n'
    marker = HIT.splitlines(keepends=True)[0]
    for frames, expected in ((draft + loading, "draft_mismatch"), (loading, "unknown"), (draft, "unknown")):
        found = classify(START + marker + frames + raised + END)
        assert found is not None
        assert (found.failure_class, found.message) == (expected, raised)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Exception: an odd state\n", "Exception: an odd state"),
        ("    assert a.dtype == uint8\n           ^^^^^^\nAssertionError\n", "AssertionError: assert a.dtype == uint8"),
        ("    check(a)\nAssertionError\n", "AssertionError"),
        ("ImportError: \n[kernels] no library could be loaded\n", "ImportError: [kernels] no library could be loaded"),
    ],
)  # fmt: skip
def test_words_that_stand_on_other_lines(text, message):
    found = classify(START + HIT + text + END)
    assert found is not None
    assert found.message == message


RAY = [
    "(raylet) A worker died or was killed while executing a task by an unexpected system error.",
    "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
    "The actor is dead because its worker process has died. There are potential root causes: (1) The process is killed by SIGKILL by OOM killer due to high memory usage. (2) it is killed by SIGSEGV.",
]


@pytest.mark.parametrize("line", RAY)
def test_what_ray_says_of_a_dead_worker_names_no_cause(line):
    found = classify(START + line + "\n")
    assert found is not None
    assert (found.failure_class, found.line) == ("killed", 2)
    raised = classify(START + HIT + "ValueError: an odd shape\n" + line + "\n")
    assert raised is not None
    assert raised.message == "ValueError: an odd shape"


def test_a_log_quoted_in_an_issue():
    text = START + HIT + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB." + END
    found = classify("".join("> " + line for line in text.splitlines(keepends=True)))
    assert found == classify(text)


def test_a_whole_traceback_in_one_wrapped_line():
    frame = '  File "/x/sglang/srt/layers/attention.py", line 9, in forward\n    return self.core(q)\n'
    raised = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    for text in (
        frame * 300 + raised,
        raised
        + "\n"
        + "During handling of the above exception, another exception occurred:\n"
        + frame * 300
        + "RuntimeError: it failed",
    ):
        line = json.dumps({"message": "Traceback (most recent call last):\n" + text, "level": "error"})
        found = classify(line + "\n")
        assert found is not None
        assert (found.failure_class, found.message) == ("out_of_memory", raised)


@pytest.mark.parametrize("words", ["ValueError: a draft model ", "Error: Model path ", "NCCL WARN Connect "])
def test_a_line_of_a_megabyte_tells_by_its_ends(words):
    # Searched whole by an expression with several `.*`, such a line takes minutes.
    line = words * (1_000_000 // len(words))
    found = classify(START + line + " CUDA out of memory\n")
    assert found is not None
    assert (found.failure_class, found.line) == ("out_of_memory", 2)
