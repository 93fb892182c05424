"""The table of failures: which line means which class, and which lines are only consequences.

A rule's rank says how much it explains. ROOT names a cause; VAGUE names one in general terms, and a better
line may stand elsewhere; SYMPTOM is what a cause looks like when nothing better is logged; CONSEQUENCE is
what every death leaves behind; WEAK is a hint in prose or in a server that may well live on. Exceptions that
no rule names stand between SYMPTOM and CONSEQUENCE, as class unknown. The first rule that matches a line
decides it, so causes stand before what they cause: hardware before memory faults, /dev/shm before NCCL.

Most rules are a plain text that must be in the line: a log of gigabytes is searched for a few coarse
needles first, then a line's rules are tried by their texts, and only then is an expression run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

ROOT, VAGUE, SYMPTOM, GENERIC, CONSEQUENCE, WEAK = range(6)

_P2P = "try a profile with NCCL_P2P_DISABLE=1, and one with NCCL_CUMEM_ENABLE=1 (SGLang sets it to 0 itself)"
_KERNEL = "a kernel of this configuration is broken; CUDA_LAUNCH_BLOCKING=1 shows which"

# Every class, with what to try.
ADVICE: dict[str, str | None] = {
    "out_of_memory": "lower --mem-fraction-static or --cuda-graph-max-bs, or use more GPUs; "
    "check that no other process holds the memory",
    "kv_pool_exhausted": "fewer requests at once, fewer draft tokens, or more memory for the KV pool",
    "port_in_use": "another process listens on this port; take another port or stop that process",
    "missing_model": "check --model-path and the draft path; offline, the files must be on this machine",
    "draft_mismatch": "the draft does not fit the target (architecture, hidden size, vocabulary or path)",
    "context_too_long": "lower --context-length, or set SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1",
    "nccl_init": "set NCCL_DEBUG=INFO: NCCL's own log names the variable, the device or the address",
    "nccl_timeout": _P2P,
    "shared_memory": "give the container more /dev/shm (docker --shm-size, or --ipc=host)",
    "watchdog": f"a rank made no progress; with tp > 1 right after a prefill it is most often P2P: {_P2P}",
    "graph_capture": "try --disable-cuda-graph to see the error itself, or a smaller --cuda-graph-max-bs",
    "illegal_access": _KERNEL,
    "killed": "somebody or the kernel killed it; see dmesg for the OOM killer",
    "segmentation_fault": None,
    "unsupported": "this build, its libraries or this GPU cannot do what was asked",
    "proxy": "set NO_PROXY=127.0.0.1,localhost: a proxy answered instead of the server",
    "never_ready": "the server came up but its first request failed",
    "stopped_by_us": None,
    "hang": _P2P,
    "hardware": "take this GPU out of service; do not retry on it",
    "unknown": None,
}
CLASSES = tuple(ADVICE)


@dataclass(frozen=True, slots=True)
class Rule:
    """A line that contains `text`, and matches `pattern` where there is one, means `failure_class`."""

    failure_class: str
    rank: int
    text: bytes
    pattern: re.Pattern[bytes] | None


# An exception's type at the start of the message, behind whatever a shipper wrote.
_RAISED = rb"(?:^|[\s\]:|])(?:\w+\.)*[A-Z]\w*(?:Error|Exception): .*"

# class, rank, [text or (text, expression), ...]
_TABLE: tuple[tuple[str, int, list[bytes | tuple[bytes, bytes]]], ...] = (
    (
        "stopped_by_us",
        ROOT,
        [
            (b"SIGTERM", rb"SIGTERM (?:received|signal)|[Rr]eceived (?:signal )?SIGTERM|Got SIGTERM"),
            (b"SIGINT", rb"SIGINT (?:received|signal)|[Rr]eceived SIGINT"),
            (b"exit code", rb"exit code:? -15\b"),
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
            b"NVRM: Xid",
            b"Xid (PCI",
            (b"No CUDA GPUs are available", rb"Error"),
            b"CUDA_ERROR_NO_DEVICE",
            (b"no CUDA-capable device", rb"[Ee]rror"),
            b"Unable to determine the device handle",
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
            (b"out of memory", rb"NCCL WARN .*out of memory"),
            b"OutOfMemoryError",
            (b"Not enough memory", rb"Not enough memory[.;:]"),
            b"cudaErrorMemoryAllocation",
            b"Failed to CUDA calloc",
            b"Failed to CUDA malloc",
            b"ut of memory: Killed",
            b"Cannot allocate memory",
            b"std::bad_alloc",
            b"OOMKilled",
            b"oom-kill",
            b"oom_kill event",
            (b"OOM killer", rb"^(?!.*If exit code is).*OOM killer"),  # SGLang's hint at a dead rank
            b"memory capacity is unbalanced",
        ],
    ),
    (
        "port_in_use",
        ROOT,
        [
            b"ddress already in use",
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
    (
        "draft_mismatch",
        ROOT,
        [
            (
                b"KeyError",
                rb"KeyError: ['\"](?:model\.(?:layers\.\d+\.)?)?"
                rb"(?:midlayer|fc|d2t|t2d|hidden_norm|eagle\w*)\b",
            ),
            b"set_embed",
            b"hot_token_id",
            b"has no attribute 'set_eagle3_layers_to_capture'",
            b"has no attribute 'get_embed_and_head'",
            # An index beyond a table: the draft's vocabulary or token map does not fit the target.
            (b"Assertion `srcIndex < srcSelectDimSize", rb"indexSelect"),
            (b"Assertion `ind >=0", rb"vectorized_gather|Indexing\.cu|IndexKernel"),
            (b"Assertion `-sizes[i] <= index", rb"vectorized_gather|Indexing\.cu|IndexKernel"),
            (b"raft ", rb"Error.*[Dd]raft (?:model|worker|config|vocab)[^.]*(?:mismatch|does not match)"),
            (b"raft ", rb"Error.*[Dd]raft (?:model|worker|config|vocab)[^.]*must (?:be|match|have)"),
            (b"mismatch", rb"Error.*(?i:eagle3?\b)[^.]*mismatch"),
            (b"size mismatch for", rb"size mismatch for (?:model\.)?(?:midlayer|fc|embed_tokens|lm_head)\b"),
            (
                b"speculative_",
                _RAISED + rb"speculative_(?:num_steps|num_draft_tokens|eagle_topk|draft_model_path)",
            ),
        ],
    ),
    (
        "context_too_long",
        ROOT,
        [
            (b" than the ", rb"(?:greater|longer|larger) than the derived (?:context|max)"),
            (b"context_length", rb"context_length.*(?:greater|larger|longer) than"),
            (b"context length", rb"Error.*context length.*(?:greater|larger|longer) than"),
        ],
    ),
    (
        "missing_model",
        ROOT,
        [
            b"RepositoryNotFoundError",
            b"GatedRepoError",
            b"HFValidationError",
            b"OfflineModeIsEnabled",
            b"EntryNotFoundError",
            b"Incorrect path_or_model_id",
            b"NotADirectoryError",
            b"is not a local folder",
            b"not a valid model identifier",
            b"Cannot find any model weights",
            b"SafetensorError",
            (b"Can't load", rb"Can't load (?:the )?(?:configuration|tokenizer|config)"),
            b"couldn't connect to 'https://huggingface",
            (b"does not appear to have a file named", rb"Error: .*a file named (?!generation_config)"),
            (
                b"o such file or directory: '",
                rb"Error: .*directory: '[^']*(?:config\.json|\.safetensors|tokenizer|/models?/)",
            ),
            (b"odel ", rb"Error: .*[Mm]odel (?:path|folder|directory)[^.]*(?:does not exist|not found)"),
            b"Repository Not Found",
            (b"is restricted", rb"Access to model .* is restricted"),
        ],
    ),
    (
        "illegal_access",
        ROOT,
        [
            b"illegal memory access",
            b"cudaErrorIllegalAddress",
            b"Warp Illegal",
            b"illegal instruction was encountered",
            (b"device-side assert", rb"rror"),
            (b"misaligned address", rb"rror"),
            (b"unspecified launch failure", rb"rror"),
            b"cudaErrorLaunchFailure",
            (b"core exception", rb"rror.*(?:aicore|vector core) exception"),
            (b"Assertion ", rb"\.cuh?:\d+:.*Assertion .*failed"),
        ],
    ),
    (
        "graph_capture",
        VAGUE,
        [
            (b"graph failed", rb"[Cc]apture \w* ?(?:cuda|CUDA) graph failed"),
            (b"raph capture", rb"[Gg]raph capture (?:failed|error)"),
            b"cudaErrorStreamCapture",
            b"not permitted when stream is capturing",
        ],
    ),
    (
        "nccl_timeout",
        ROOT,
        [
            b"Watchdog caught collective operation timeout",
            b"failure detected by watchdog at",
            (b"before timing out", rb"WorkNCCL\("),
            b"NCCL operations have failed or timed out",
        ],
    ),
    (
        "nccl_init",
        ROOT,
        [
            (b"NCCL WARN", rb"NCCL WARN .*(?:Unrecognized element|no algorithm/protocol|[Dd]uplicate GPU)"),
            (b"NCCL WARN", rb"NCCL WARN .*(?:[Ii]nvalid (?:usage|config|argument)|Cuda failure)"),
            (b"NCCL WARN", rb"NCCL WARN .*(?:[Nn]o socket interface|[Mm]ismatch|[Ff]ailed to)"),
            (b"NCCL WARN", rb"NCCL WARN .*[Cc]onnect(?:ion)? .*(?:refused|failed|reset)"),
        ],
    ),
    (
        "nccl_init",
        VAGUE,
        [
            b"ncclInvalidUsage",
            b"ncclInvalidArgument",
            b"ncclSystemError",
            b"ncclInternalError",
            b"ncclUnhandledCudaError",
            b"ncclRemoteError",
            b"NCCL error",
            b"NCCL Error",
            # The ranks did not find each other.
            b"DistStoreError",
            b"DistNetworkError",
            b"DistBackendError",
            (b"TCPStore", rb"rror.*TCPStore.*(?:timed out|failed)"),
            (b"loo ", rb"rror.*[Gg]loo .*(?:timed? ?out|connectFullMesh failed)"),
            (b"/gloo/", rb"rror: .*/gloo/.*(?:closed by peer|reset by peer|refused|timed? ?out)"),
        ],
    ),
    (
        "unsupported",
        ROOT,
        [
            b"no kernel image is available",
            b"CUDA driver version is insufficient",
            b"driver on your system is too old",
            b"CompilationError",
            b"error: unrecognized arguments",
            (b"error: argument ", rb"error: argument -"),
            b"Unrecognized model in",
            b"are not supported for now",
            (b" not ", _RAISED + rb"(?:is|are) not (?:yet |currently )?(?:supported|compatible|implemented)"),
            (b"nsupported", _RAISED + rb"[Uu]nsupported"),
            (
                b" support",
                _RAISED + rb"(?:doesn't|does not|do not) support|" + _RAISED + rb"[Oo]nly supports?\b",
            ),
            (b"incompatible", _RAISED + rb"incompatible"),
            (b"divisible by", _RAISED + rb"divisible by"),
        ],
    ),
    (
        "segmentation_fault",
        ROOT,
        [b"egmentation fault", b"SIGSEGV", (b"exit code", rb"exit code:? -11\b")],
    ),
    ("watchdog", SYMPTOM, [b"atchdog timeout"]),
    ("never_ready", SYMPTOM, [b"Initialization failed. warmup error"]),
    (
        "unsupported",
        SYMPTOM,
        [
            (b": No module named", rb"python\S*: No module named"),
        ],
    ),
    ("hang", SYMPTOM, [(b"<defunct>", rb"sglang\S* <defunct>")]),
    (
        "killed",
        CONSEQUENCE,
        [
            (b"Killed", rb"(?:^|\s)Killed\s*$|\bKilled\s+\S*python|Killed process"),
            (b"SIGKILL", rb"^(?!.*If exit code is).*SIGKILL"),
            (b"exit code", rb"exit code:? (?:-9|137)\b"),
            (b" CANCELLED AT ", rb"slurmstepd: error: \*\*\* (?:JOB|STEP) "),
            b"Received sigquit from a child",
            b"SIGQUIT received",
        ],
    ),
    # Under load a false alarm in some versions.
    ("hang", WEAK, [b"Health check failed. Server couldn't get a response"]),
    (
        "context_too_long",
        WEAK,
        [
            (b"exceeds", rb"[Ii]nput (?:length|token)\b.*exceeds|exceeds the (?:maximum|model's)"),
            (b"onger than the", rb"input .*longer than the model's context"),
        ],
    ),
    (
        "hang",
        WEAK,
        [(b"ang", rb"\b(?:NCCL|all_reduce|server|requests?)\b.*\b(?:[Hh]angs?|[Hh]anging|hung)\b")],
    ),
)

RULES = tuple(
    Rule(failure_class, rank, entry, None)
    if isinstance(entry, bytes)
    else Rule(failure_class, rank, entry[0], re.compile(entry[1]))
    for failure_class, rank, entries in _TABLE
    for entry in entries
)

# Only lines with one of these are looked at. Each is searched in all text, so there are few: "rror" covers
# every rule whose line is an exception's.
NEEDLES = (
    b"rror",
    b"emory",
    b"xception",
    b"atchdog",
    b"SIG",
    b"sigquit",
    b"exit code",
    b"Killed",
    b"OOM",
    b"oom-kill",
    b"Assertion",
    b"Interrupt",
    b"Timeout:",
    b" timed out",
    b"timing out",
    b"hutting down",
    b"fallen off the bus",
    b"Xid",
    b"o space left",
    b"bad_alloc",
    b"/dev/shm",
    b"in use",
    b"set_embed",
    b"hot_token_id",
    b"Repository Not Found",
    b"is restricted",
    b"graph failed",
    b"raph capture",
    b"NCCL WARN",
    b"- Init ",
    b"Destroy COMPLETE",
    b"nitialization failed",
    b"ealth check failed",
    b"egmentation fault",
    b": No module named",
    b"<defunct>",
    b"leaked",
    b"xceeds the",
    b" hang",
    b"Hang",
)
# While a server starts, these as well: the stages it goes through.
STAGES = (
    b"nit torch",
    b"nit nccl",
    b"oad weight",
    b"KV Cache is",
    b"apture",
    b"tartup complete",
    b"vicorn running",
    b"fired up",
)
