"""Causes outside of a server: it was told to stop, or its hardware, memory, ports or proxy failed it.

The first rule that matches a line decides it, so causes stand before what they cause: hardware before all.
"""

from __future__ import annotations

from quietgate.inspect.failure_ranks import RAISED, ROOT, Table

OUTSIDE: Table = (
    (
        "stopped_by_us",
        ROOT,
        [
            (b"SIGTERM", rb"SIGTERM (?:received|signal)|[Rr]eceived (?:signal )?SIGTERM|Got SIGTERM"),
            (b"SIGINT", rb"SIGINT (?:received|signal)|[Rr]eceived SIGINT"),
            (b"exit code", rb"exit code:? -15\b"),
            (b"exitcode=", rb"exitcode=15\b"),
            (b"status=15/TERM", rb"code=killed"),
            (b"hutting down", rb"INFO:\s+Shutting down\b"),
        ],
    ),
    (
        "hardware",
        ROOT,
        [
            b"ncorrectable ECC",
            b"ncorrectable NVLink",
            b"cudaErrorECCUncorrectable",
            b"fallen off the bus",
            (
                b"Xid",
                rb"(?:NVRM: Xid|Xid \(PCI)(?!.*?: (?:13|31|43|45),)",
            ),  # those are a program's own faults
            b"RESULT_ERROR_DEVICE_LOST",
            (b"No CUDA GPUs are available", rb"Error"),
            b"CUDA_ERROR_NO_DEVICE",
            (b"no CUDA-capable device", rb"[Ee]rror"),
            b"Unable to determine the device handle",
            (b"system not yet initialized", rb"rror|failure"),
        ],
    ),
    (
        "kv_pool_exhausted",
        ROOT,
        [
            b"No space left for only one request",
            b"out of memory. Try to lower your batch",
            b"cannot hold even one request",
            b"leaves no room for the full KV pool",
            (b"KV cache", rb"Error.*(?:KV cache|kv_cache) (?:pool )?(?:is )?(?:exhausted|too small)\b"),
            (b"token_to_kv_pool", rb"Error.*token_to_kv_pool\w* (?:is )?(?:exhausted|too small)\b"),
        ],
    ),
    (
        # Also where memory cannot be pinned (ulimit -l): not the GPU's. A port's speed may be unknown.
        "nccl_init",
        ROOT,
        [(b"Call to ibv_", rb"NCCL WARN Call to ibv_\w+ failed with (?!.*not supported)")],
    ),
    (
        "shared_memory",
        ROOT,
        [
            b"creating shared memory segment",
            b"failed to extend /dev/shm",
            (b"/dev/shm", rb"/dev/shm.*(?:[Nn]o space left|too small)|[Nn]o space left.*/dev/shm"),
            b"unable to open shared memory",
            (b"unable to mmap", rb"unable to mmap \d+ bytes"),
            b"insufficient shared memory",
            (b"shared memory", rb"shared memory.*[Nn]o space left"),
            (b"Bus error", rb"\bBus error\b"),
        ],
    ),
    (
        "out_of_memory",
        ROOT,
        [
            (b"out of memory", rb"(?:CUDA|HIP|NPU|XPU|GPU) out of memory|CUDA error: out of memory"),
            (b"out of memory", rb"NCCL WARN .*out of memory|Cuda failure.*out of memory"),
            b"OutOfMemoryError",
            b"ErrorOutOfMemory",
            (b"ERROR_OUT_OF_", rb"ERROR_OUT_OF_(?:RESOURCES|(?:DEVICE_|HOST_)?MEMORY)"),  # Level Zero, HSA
            (b"Not enough ", rb"Not enough memory[.;:]|Error: Not enough \w+ memory\b"),
            (b"to allocate memory", RAISED + rb"[Ff]ailed to allocate memory"),
            (b"allocating memory", RAISED + rb"[Bb]uffer overflow when allocating memory"),
            b"CUBLAS_STATUS_ALLOC_FAILED",
            b"cudaErrorMemoryAllocation",
            b"NV_ERR_NO_MEMORY",
            b"Failed to CUDA calloc",
            b"Failed to CUDA malloc",
            b"ut of memory: Killed",
            b"Cannot allocate memory",
            b"std::bad_alloc",
            b"OOMKilled",
            b"oom-kill",
            b"oom_kill event",
            # SGLang and Ray say of a dead process what may have killed it.
            (b"OOM killer", rb"^(?!.*(?:If exit code is|causes)).*OOM killer"),
            b"memory capacity is unbalanced",
        ],
    ),
    (
        "port_in_use",
        ROOT,
        [
            b"ddress already in use",
            (b"ddress in use", rb"Error: "),
            b"[Errno 98]",
            b"EADDRINUSE",
            (b"in use", rb"[Pp]ort \d+ is (?:already )?in use"),
            (b"ort ", rb"Error.*[Pp]ort \d+ is (?:not available|unavailable|occupied)"),
        ],
    ),
    (
        "proxy",
        ROOT,
        [
            (b"quid", rb"<Response \[\d+\]>.*[Ss]quid|[Ss]quid.*ERROR"),
            b"ProxyError",
            b"Tunnel connection failed",
            (b"<Response [", rb"<Response \[[45]\d\d\]>.{0,40}(?:<!DOCTYPE|<html|<HTML|\\n<html)"),
        ],
    ),
)
