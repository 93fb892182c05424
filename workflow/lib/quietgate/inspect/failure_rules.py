"""The table of failures: which line means which class, and which lines are only consequences.

A rule's rank says how much it explains. ROOT names a cause; SYMPTOM is what a cause looks like when
nothing better is logged; CONSEQUENCE is what every death leaves behind; WEAK is a hint in prose or
in a server that may well live on. Exceptions that no rule names stand between SYMPTOM and
CONSEQUENCE, as class unknown. The first rule that matches a line decides it, so causes stand before
what they cause: hardware before memory faults, /dev/shm before the NCCL error it makes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

ROOT, SYMPTOM, GENERIC, CONSEQUENCE, WEAK = 0, 1, 2, 3, 4

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
    """A line that contains `needle` and matches `pattern` means `failure_class`."""

    failure_class: str
    rank: int
    needle: bytes
    pattern: re.Pattern[bytes]


# An exception's type at the start of the message, behind whatever a shipper wrote.
_RAISED = rb"(?:^|[\s\]:|])(?:\w+\.)*[A-Z]\w*(?:Error|Exception): .*"

# class, rank, [(what must be in the line, pattern), ...]
_TABLE: tuple[tuple[str, int, list[tuple[bytes, bytes]]], ...] = (
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
            (b"ECC", rb"[Uu]ncorrectable ECC|cudaErrorECCUncorrectable"),
            (b"fallen off", rb"fallen off the bus"),
            (b"Xid", rb"NVRM: Xid|\bXid \(PCI"),
            (b"rror", rb"No CUDA GPUs are available|CUDA_ERROR_NO_DEVICE|no CUDA-capable device"),
            (b"rror", rb"Unable to determine the device handle"),
        ],
    ),
    (
        "kv_pool_exhausted",
        ROOT,
        [
            (b"o space left for", rb"No space left for only one request"),
            (b"emory", rb"(?:Prefill|Decode) out of memory\. Try to lower"),
            (b"rror", rb"(?i:kv.?cache|token_to_kv_pool)\w* (?:pool )?(?:is )?(?:exhausted|too small)\b"),
        ],
    ),
    (
        "out_of_memory",
        ROOT,
        [
            (b"emory", rb"(?:CUDA|HIP|NPU|XPU|GPU) out of memory|OutOfMemoryError|CUDA error: out of memory"),
            (b"emory", rb"Not enough memory[.;:]|cudaErrorMemoryAllocation|Failed to CUDA (?:c|m)alloc"),
            (b"emory", rb"Out of memory: Killed|Cannot allocate memory|NCCL WARN .*out of memory"),
            (b"bad_alloc", rb"std::bad_alloc"),
            (b"OOM", rb"OOMKilled|oom-kill|OOM killer"),
        ],
    ),
    (
        "shared_memory",
        ROOT,
        [
            (b"/dev/shm", rb"creating shared memory segment|failed to extend /dev/shm"),
            (b"/dev/shm", rb"/dev/shm.*(?:[Nn]o space left|too small)|[Nn]o space left.*/dev/shm"),
            (b"emory", rb"unable to (?:open shared memory|mmap \d+ bytes)|insufficient shared memory"),
            (b"emory", rb"shared memory.*[Nn]o space left"),
            (b"Bus error", rb"\bBus error\b"),
        ],
    ),
    (
        "port_in_use",
        ROOT,
        [
            (b"in use", rb"(?i:address already in use)|[Pp]ort \d+ is (?:already )?in use"),
            (b"rror", rb"\[Errno 98\]|EADDRINUSE|[Pp]ort \d+ is (?:not available|unavailable|occupied)"),
        ],
    ),
    (
        "proxy",
        ROOT,
        [
            (b"quid", rb"<Response \[\d+\]>.*[Ss]quid|[Ss]quid.*ERROR"),
            (b"rror", rb"ProxyError|Tunnel connection failed"),
            (b"rror", rb"<Response \[[45]\d\d\]>.{0,40}(?:<!DOCTYPE|<html|<HTML|\\n<html)"),
        ],
    ),
    (
        "draft_mismatch",
        ROOT,
        [
            (b"KeyError", rb"KeyError: ['\"](?:model\.)?(?:midlayer|fc|d2t|t2d|hidden_norm|eagle\w*)\b"),
            (b"set_embed", rb"set_embed"),
            (b"hot_token_id", rb"hot_token_id"),
            (
                b"rror",
                rb"has no attribute '(?:set_eagle3_layers_to_capture|get_embed_and_head|set_embed\w*)'",
            ),
            # An index beyond a table: the draft's vocabulary or token map does not fit the target.
            (b"ssert", rb"indexSelect\w+.*Assertion `srcIndex < srcSelectDimSize"),
            (b"ssert", rb"(?:vectorized_gather|Indexing\.cu|IndexKernel).*Assertion `?(?:ind >=0|-sizes)"),
            (b"rror", rb"(?i:draft (?:model|worker|config|vocab)[^.]*(?:mismatch|does not match|not equal))"),
            (b"rror", rb"(?i:draft (?:model|worker|config|vocab)[^.]*must (?:be|match|have))"),
            (b"rror", rb"(?i:eagle3?\b[^.]*(?:mismatch|does not match))"),
            (b"rror", rb"size mismatch for (?:model\.)?(?:midlayer|fc|embed_tokens|lm_head)\b"),
            (b"rror", _RAISED + rb"speculative_(?:num_steps|num_draft_tokens|eagle_topk|draft_model_path)"),
        ],
    ),
    (
        "context_too_long",
        ROOT,
        [
            (b"ontext", rb"(?:greater|longer|larger) than the (?:derived|model's)? ?(?:context|max)"),
            (b"ontext", rb"context[ _]length.*(?:greater|larger|longer) than"),
        ],
    ),
    (
        "missing_model",
        ROOT,
        [
            (b"rror", rb"RepositoryNotFoundError|GatedRepoError|HFValidationError|OfflineModeIsEnabled"),
            (b"rror", rb"(?:Local)?EntryNotFoundError|Incorrect path_or_model_id|NotADirectoryError"),
            (b"rror", rb"not a (?:local folder|valid model identifier)|Cannot find any model weights"),
            (b"rror", rb"Can't load (?:the )?(?:configuration|tokenizer|config)"),
            (b"rror", rb"couldn't connect to 'https://huggingface"),
            (b"rror", rb"does not appear to have a file named (?!generation_config)"),
            (b"rror", rb"o such file or directory: '[^']*(?:config\.json|\.safetensors|tokenizer|/models?/)"),
            (b"rror", rb"[Mm]odel (?:path|folder|directory)[^.]*(?:does not exist|not found)"),
            (b"epository", rb"Repository Not Found|Access to model .* is restricted|gated repo"),
        ],
    ),
    (
        "illegal_access",
        ROOT,
        [
            (b"llegal", rb"illegal memory access|cudaErrorIllegalAddress|Warp Illegal|illegal instruction"),
            (b"rror", rb"device-side assert|misaligned address|unspecified launch failure"),
            (b"rror", rb"cudaErrorLaunchFailure|(?:aicore|vector core) exception"),
            (b"ssert", rb"\.cuh?:\d+:.*Assertion .*failed"),
        ],
    ),
    (
        "graph_capture",
        ROOT,
        [
            (b"apture", rb"Capture (?:cuda|CUDA) graph failed|[Gg]raph capture (?:failed|error)"),
            (b"apture", rb"cudaErrorStreamCapture|not permitted when stream is capturing"),
        ],
    ),
    (
        "nccl_timeout",
        ROOT,
        [
            (b"atchdog", rb"Watchdog caught collective operation timeout|failure detected by watchdog at"),
            (b"timing out", rb"WorkNCCL\(.*before timing out"),
            (b"timed out", rb"NCCL operations have failed or timed out"),
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
            (b"rror", rb"nccl(?:Invalid(?:Usage|Argument)|System|Internal|UnhandledCuda|Remote)Error"),
            (b"rror", rb"nccl(?:InvalidUsage|InvalidArgument)|NCCL [Ee]rror\b"),
            # The ranks did not find each other.
            (b"rror", rb"Dist(?:Store|Network|Backend)Error|TCPStore.*(?:timed out|failed)"),
            (b"rror", rb"[Gg]loo .*(?:timed? ?out|connectFullMesh failed)"),
        ],
    ),
    (
        "unsupported",
        ROOT,
        [
            (b"rror", rb"no kernel image is available|CUDA driver version is insufficient|CompilationError"),
            (b"rror", rb"error: (?:unrecognized arguments|argument )|invalid choice:"),
            (b"rror", rb"Unrecognized model in|are not supported for now"),
            (b"rror", _RAISED + rb"(?:is|are) not (?:yet |currently )?(?:supported|compatible|implemented)"),
            (b"rror", _RAISED + rb"(?:[Uu]nsupported|(?:doesn't|does not|do not) support|incompatible)"),
            (b"rror", _RAISED + rb"[Oo]nly supports?\b"),
        ],
    ),
    (
        "segmentation_fault",
        ROOT,
        [
            (b"egmentation", rb"[Ss]egmentation fault"),
            (b"SIGSEGV", rb"SIGSEGV"),
            (b"exit code", rb"exit code:? -11\b"),
        ],
    ),
    ("watchdog", SYMPTOM, [(b"atchdog", rb"[Ww]atchdog timeout")]),
    ("never_ready", SYMPTOM, [(b"nitialization failed", rb"Initialization failed\. warmup error")]),
    (
        "unsupported",
        SYMPTOM,
        [
            (b"ImportError", rb"(?:^|[\]:|] )ImportError: "),
            (b"ModuleNotFoundError", rb"(?:^|[\]:|] )ModuleNotFoundError: "),
            (b"No module named", rb"python\S*: No module named"),
        ],
    ),
    ("hang", SYMPTOM, [(b"defunct", rb"sglang\S* <defunct>")]),
    (
        "killed",
        CONSEQUENCE,
        [
            (b"illed", rb"(?:^|\s)Killed\s*$|\bKilled\s+\S*python|Killed process"),
            (b"SIGKILL", rb"SIGKILL"),
            (b"exit code", rb"exit code:? (?:-9|137)\b"),
            (b"sigquit", rb"Received sigquit from a child"),
            (b"SIGQUIT", rb"SIGQUIT received"),
        ],
    ),
    # Under load a false alarm in some versions.
    ("hang", WEAK, [(b"ealth check failed", rb"Health check failed\. Server couldn't get a response")]),
    (
        "context_too_long",
        WEAK,
        [
            (b"xceeds", rb"[Ii]nput (?:length|token)\b.*exceeds|exceeds the (?:maximum|model's)"),
            (b"onger than", rb"input .*longer than the model's context"),
        ],
    ),
    (
        "hang",
        WEAK,
        [(b"ang", rb"\b(?:NCCL|all_reduce|server|requests?)\b.*\b(?:[Hh]angs?|[Hh]anging|hung)\b")],
    ),
)

RULES = tuple(
    Rule(failure_class, rank, needle, re.compile(pattern))
    for failure_class, rank, patterns in _TABLE
    for needle, pattern in patterns
)

# What must be in a line before any rule is tried; few and rare, since each is searched in all text.
NEEDLES = tuple(
    dict.fromkeys(
        [
            *(rule.needle for rule in RULES),
            b"xception",
            b"Interrupt",
            b"Timeout:",
            b"- Init ",
            b"Destroy COMPLETE",
            b"leaked",
        ]
    )
)
