"""Causes inside of a server: its models, its settings, its kernels, and what its ranks say to each other.

The first rule that matches a line decides it, so causes stand before what they cause: a collective that
timed out before the memory fault with which its kernel ends, files before what needs them.
"""

from __future__ import annotations

from quietgate.inspect.failure_ranks import RAISED, ROOT, VAGUE, Table

INSIDE: Table = (
    (
        "draft_mismatch",
        ROOT,
        [
            (
                b"KeyError",
                rb"KeyError: ['\"](?:model\.(?:layers\.\d+\.)?)?"
                rb"(?:midlayer|fc|d2t|t2d|hidden_norm|eagle\w*)\b",
            ),
            (b"set_embed", rb"^(?!.*skipping).*set_embed"),
            b"hot_token_id",
            b"has no attribute 'set_eagle3_layers_to_capture'",
            b"has no attribute 'get_embed_and_head'",
            # An index beyond a table: the draft's vocabulary or token map does not fit the target.
            (b"Assertion `srcIndex < srcSelectDimSize", rb"indexSelect"),
            (b"Assertion `ind >=0", rb"vectorized_gather|Indexing\.cu|IndexKernel"),
            (b"Assertion `-sizes[i] <= index", rb"vectorized_gather|Indexing\.cu|IndexKernel"),
            (b"raft ", rb"Error.*[Dd]raft (?:model|worker|config|vocab)[^.\n]*(?:mismatch|does not match)"),
            (b"raft ", rb"Error.*[Dd]raft (?:model|worker|config|vocab)[^.\n]*must (?:be|match|have)"),
            (b"mismatch", rb"Error.*(?i:eagle3?\b)[^.\n]*mismatch"),
            (b"size mismatch for", rb"size mismatch for (?:model\.)?(?:midlayer|fc|embed_tokens|lm_head)\b"),
            (
                b"speculative_",
                RAISED + rb"speculative_(?:num_steps|num_draft_tokens|eagle_topk|draft_model_path)",
            ),
        ],
    ),
    (
        "context_too_long",
        ROOT,
        [
            # With an override it is a warning.
            (b" than the derived ", rb"^(?!.*Warning: ).*(?:greater|longer|larger) than the derived"),
            (b"context_length", rb"^(?!.*Warning: ).*context_length.*(?:greater|larger|longer) than"),
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
            (b"odel ", rb"Error: .*[Mm]odel (?:path|folder|directory)[^.\n]*(?:does not exist|not found)"),
            b"Repository Not Found",
            b"gated repo",
            (b"is restricted", rb"Access to model .* is restricted"),
            (b" Client Error", rb"HTTPError: 40[134] .*(?:huggingface|hf-mirror|modelscope|/resolve/)"),
            (b"Max retries exceeded", rb"Error: .*host='[^']*(?:huggingface|hf-mirror|modelscope)"),
        ],
    ),
    (
        "nccl_timeout",
        ROOT,
        [
            b"Watchdog caught collective operation timeout",
            b"failure detected by watchdog at",
            (b"before timing out", rb"WorkNCCL\("),
            b"watchdog got stuck for",
            (b"eartbeat monitor timed out", rb"ProcessGroupNCCL"),
            b"DeepEP timeout check failed",
            b"DeepEP error: timeout",
            (b"times out", rb"EI0002|Notify register"),  # Ascend's HCCL
            b"hccl fftsplus task timeout",
        ],
    ),
    (
        "illegal_access",
        ROOT,
        [
            b"illegal memory access",
            b"cudaErrorIllegalAddress",
            b"CUDA_ERROR_ILLEGAL_ADDRESS",
            (b"tensor map: 7", rb"rror|xception"),  # DeepGEMM: 700 is an illegal address
            (b"Xid", rb"(?:NVRM: Xid|Xid \(PCI).*?: (?:13|31),"),
            (b"ccess of peer GPU memory", rb"rror"),
            b"Memory access fault by GPU",
            (b"HSA_STATUS_ERROR", rb"HSA_STATUS_ERROR_(?:EXCEPTION|MEMORY_|ILLEGAL_)"),
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
            (b"raph capture", rb"[Gg]raph capture (?:failed|error)(?!.*\beager\b)"),  # then it does without
            b"cudaErrorStreamCapture",
            b"not permitted when stream is capturing",
            (b"in a capturing stream", rb"rror"),
        ],
    ),
    (
        "nccl_init",
        ROOT,
        [
            # PyTorch repeats it without NCCL's prefix; from NCCL 2.31 "nor symKernelId" stands in between.
            (b"o algorithm/protocol", rb"[Nn]o algorithm/protocol\b.* available"),
            (b"NCCL WARN", rb"NCCL WARN .*(?:Unrecognized (?:element|prefix)|[Dd]uplicate GPU)"),
            (b"NCCL WARN", rb"NCCL WARN .*[Nn]ot compatible with"),
            (b"NCCL WARN", rb"NCCL WARN .*(?:[Ii]nvalid (?:usage|config|argument)|Cuda failure)"),
            (b"NCCL WARN", rb"NCCL WARN .*(?:[Nn]o socket interface|[Mm]ismatch|[Ff]ailed to)"),
            (b"NCCL WARN", rb"NCCL WARN .*[Cc]onnect(?:ion)? .*(?:refused|failed|reset)"),
            (b"Got completion from peer", rb"error \d|status=\d"),
            (b"times out", rb"EI0006|Getting socket"),
        ],
    ),
    (
        "nccl_init",
        VAGUE,
        [
            # Of a peer, or on the way to it.
            (b"NCCL WARN", rb"NCCL WARN .*Got completion (?:from|with) .*\bstatus=[1-9]"),
            (b"NCCL WARN", rb"NCCL WARN .*Connection closed by remote"),
            b"ncclInvalidUsage",
            b"ncclInvalidArgument",
            b"ncclSystemError",
            b"ncclInternalError",
            b"ncclUnhandledCudaError",
            (b"NCCL error", rb"^(?!.*remote process exited)"),
            b"NCCL Error",
            (b"rror: Hccl", rb"OPS function error: Hccl"),
            (b"HCCL ", rb"HCCL (?:function )?error"),
            (b"nvshmem", rb"nvshmem.*non-zero status|error in nvshmem|nvshmem (?:setup|init)\w* .*failed"),
            # The ranks did not find each other.
            b"DistStoreError",
            b"DistNetworkError",
            b"DistBackendError",
            (b"TCPStore", rb"rror.*TCPStore.*(?:timed out|failed)"),
            (b"loo ", rb"rror.*[Gg]loo .*(?:timed? ?out|connectFullMesh failed)"),
            (b"gloo/", rb"rror: .*\bgloo/.*(?:refused|timed? ?out)"),
            b"client socket has timed out",
        ],
    ),
    (
        "unsupported",
        ROOT,
        [
            b"no kernel image is available",
            (b"invalid device function", rb"rror"),
            (b"invalid device ordinal", rb"rror"),
            (b"peer access is not supported", rb"rror"),
            b"ErrorNoBinaryForGpu",
            b"CUDA driver version is insufficient",
            b"driver on your system is too old",
            b"CompilationError",
            (b" fatal ", rb"\b(?:nvcc|ptxas|nvlink|fatbinary) fatal\s+:"),
            (b"fatal error: ", rb"fatal error: \S+: No such file"),  # a header that a compiler lacks
            b"OutOfResources: out of resource",
            (b"llegal instruction", rb"Illegal instruction\b.*core dumped"),
            (b"No accelerator", RAISED + rb"No accelerator"),
            b"Found no NVIDIA driver",
            (b"not compiled with", RAISED + rb"not compiled with (?:CUDA|ROCm|XPU)"),
            (
                b"o such file or directory: '",
                rb"Error: .*directory: '(?:\S*/)?(?:ninja|nvcc|gcc|g\+\+|cc|c\+\+)'",
            ),
            (b"nvcc", RAISED + rb"Could not find nvcc"),
            b"error: unrecognized arguments",
            b"error: the following arguments are required",
            (b"error: argument ", rb"error: argument -"),
            b"Unrecognized model in",
            b"does not recognize this architecture",
            (b"Tokenizer class", rb"Tokenizer class \S+ does not exist"),
            b"are not supported for now",
            (b" not ", RAISED + rb"(?:is|are) not (?:yet |currently )?(?:supported|compatible|implemented)"),
            (b"nsupported", RAISED + rb"[Uu]nsupported"),
            (
                b" support",
                RAISED + rb"(?:doesn't|does not|do not) support|" + RAISED + rb"[Oo]nly supports?\b",
            ),
            (b"incompatible", RAISED + rb"incompatible"),
            (b"divisible by", RAISED + rb"divisible by"),
            (b"uantization method", RAISED + rb"[Qq]uantization method .*does not match"),
            (b"quantized weight", RAISED + rb"not aligned with the quantized weight"),
            (b"to be one of", RAISED + rb"(?:backend|dtype|type)\w* to be one of"),
        ],
    ),
    (
        "segmentation_fault",
        ROOT,
        [
            # A shell's own word of it is small in some; so is a warning's.
            (b"egmentation fault", rb"Segmentation fault|segmentation fault\s+(?:\(core|\S*python)"),
            (b"SIGSEGV", rb"^(?!.*(?:causes|avoid)).*SIGSEGV"),
            (b"exit code", rb"exit code:? (?:-11|139)\b"),
            (b"exitcode=", rb"exitcode=(?:11|139)\b"),
            (b"status=11/SEGV", rb"code=(?:killed|dumped)"),
        ],
    ),
    (
        "unsupported",
        VAGUE,
        [
            b"PTXASError",
            (b"inja", RAISED + rb"(?:Ninja build failed|Error building extension)"),
            (b"ninja", rb"CalledProcessError: Command .*\bninja\b"),
            b"NVCC compilation failed",
        ],
    ),
)
