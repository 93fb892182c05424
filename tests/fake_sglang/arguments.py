"""SGLang's command line and what it makes of it: the effective arguments."""

from __future__ import annotations

import random
from typing import Any

ALIASES = {
    "model": "model_path",
    "tensor_parallel_size": "tp_size",
    "pipeline_parallel_size": "pp_size",
    "data_parallel_size": "dp_size",
    "expert_parallel_size": "ep_size",
    "speculative_draft_model": "speculative_draft_model_path",
    "nccl_init_addr": "dist_init_addr",
    "cuda_graph_max_bs": "cuda_graph_max_bs_decode",
    "cuda_graph_bs": "cuda_graph_bs_decode",
}

DEFAULTS: dict[str, Any] = {
    "model_path": None,
    "tokenizer_path": None,
    "tokenizer_mode": "auto",
    "skip_tokenizer_init": False,
    "load_format": "auto",
    "trust_remote_code": False,
    "context_length": None,
    "is_embedding": False,
    "dtype": "auto",
    "quantization": None,
    "kv_cache_dtype": "auto",
    "host": "127.0.0.1",
    "port": 30000,
    "skip_server_warmup": False,
    "served_model_name": None,
    "chat_template": None,
    "device": "cuda",
    "tp_size": 1,
    "pp_size": 1,
    "dp_size": 1,
    "ep_size": 1,
    "nnodes": 1,
    "node_rank": 0,
    "dist_init_addr": None,
    "base_gpu_id": 0,
    "gpu_id_step": 1,
    "mem_fraction_static": None,
    "max_running_requests": None,
    "max_queued_requests": None,
    "max_total_tokens": None,
    "chunked_prefill_size": None,
    "enable_mixed_chunk": False,
    "max_prefill_tokens": 16384,
    "schedule_policy": "fcfs",
    "schedule_conservativeness": 1.0,
    "page_size": 1,
    "stream_interval": 1,
    "random_seed": None,
    "watchdog_timeout": 300,
    "log_level": "info",
    "log_requests": False,
    "enable_metrics": False,
    "decode_log_interval": 40,
    "attention_backend": None,
    "sampling_backend": None,
    "grammar_backend": None,
    "mm_attention_backend": None,
    "disable_radix_cache": False,
    "cuda_graph_max_bs_decode": None,
    "cuda_graph_bs_decode": None,
    "disable_cuda_graph": False,
    "disable_prefill_cuda_graph": False,
    "disable_decode_cuda_graph": False,
    "sleep_on_idle": False,
    "prefill_attention_backend": None,
    "decode_attention_backend": None,
    "disable_cuda_graph_padding": False,
    "disable_custom_all_reduce": False,
    "disable_overlap_schedule": False,
    "enable_nccl_nvls": False,
    "enable_symm_mem": False,
    "enable_mscclpp": False,
    "enable_torch_symm_mem": False,
    "enable_torch_compile": False,
    "enable_deterministic_inference": False,
    "flashinfer_allreduce_fusion_backend": None,
    "enforce_disable_flashinfer_allreduce_fusion": False,
    "num_continuous_decode_steps": 1,
    "speculative_algorithm": None,
    "speculative_draft_model_path": None,
    "speculative_draft_model_revision": None,
    "speculative_num_steps": None,
    "speculative_eagle_topk": None,
    "speculative_num_draft_tokens": None,
    "speculative_token_map": None,
    "speculative_attention_mode": "prefill",
    "json_model_override_args": "{}",
}


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _is_value(word: str) -> bool:
    return not word.startswith("--")


def parse(argv: list[str]) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """(SGLang's arguments as given, our `fake_*` ones, names given twice) of a command line."""
    given: dict[str, Any] = {}
    twice = []
    i = 0
    while i < len(argv):
        word = argv[i]
        i += 1
        if not word.startswith("--"):
            raise SystemExit(f"launch_server.py: error: unrecognized arguments: {word}")
        flag, equals, attached = word[2:].partition("=")
        name = flag.replace("-", "_")
        name = ALIASES.get(name, name)
        values = [attached] if equals else []
        if not equals and not isinstance(DEFAULTS.get(name), bool):
            while i < len(argv) and _is_value(argv[i]):
                values.append(argv[i])
                i += 1
        if name in given:
            twice.append(name)
        if not values:
            given[name] = True
        elif isinstance(DEFAULTS.get(name), str):
            given[name] = values[0]
        elif len(values) == 1 and not name.endswith("_bs"):
            given[name] = _value(values[0])
        else:
            given[name] = [_value(v) for v in values]
    fake = {k[5:]: given.pop(k) for k in list(given) if k.startswith("fake_")}
    if not given.get("model_path"):
        raise SystemExit(
            "launch_server.py: error: the following arguments are required: --model-path/--model"
        )
    return given, fake, twice


def resolve(given: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The effective arguments, and the warnings that SGLang logs while it rewrites."""
    args = {**DEFAULTS, **given}
    warnings = []
    args["tokenizer_path"] = args["tokenizer_path"] or args["model_path"]
    args["served_model_name"] = args["served_model_name"] or args["model_path"]
    if args["random_seed"] is None:
        args["random_seed"] = random.SystemRandom().randrange(2**30)
    if args["mem_fraction_static"] is None:
        args["mem_fraction_static"] = 0.88
    if args["chunked_prefill_size"] is None:
        args["chunked_prefill_size"] = 8192
    cpu = args["device"] == "cpu"
    if args["attention_backend"] is None:
        args["attention_backend"] = "intel_amx" if cpu else "flashinfer"
    if args["sampling_backend"] is None:
        args["sampling_backend"] = "pytorch" if cpu else "flashinfer"
    if cpu:
        args["disable_cuda_graph"] = True
    algorithm = args["speculative_algorithm"]
    if algorithm is None:
        return args, warnings
    if algorithm == "NEXTN":
        args["speculative_algorithm"] = "EAGLE"
    steps, topk, draft = (args[f"speculative_{n}"] for n in ("num_steps", "eagle_topk", "num_draft_tokens"))
    if steps is None:
        assert topk is None
        assert draft is None
        steps, topk, draft = 3, 1, 4
    if topk == 1 and draft != steps + 1:
        warnings.append(
            "speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when"
            " speculative_eagle_topk == 1"
        )
        draft = steps + 1
    args["speculative_num_steps"] = steps
    args["speculative_eagle_topk"] = topk
    args["speculative_num_draft_tokens"] = draft
    args["speculative_draft_model_revision"] = args["speculative_draft_model_revision"] or "main"
    if args["max_running_requests"] is None:
        args["max_running_requests"] = 48
        warnings.append(
            "Max running requests is reset to 48 for speculative decoding. You can override this"
            " by explicitly setting --max-running-requests."
        )
    if args["enable_mixed_chunk"]:
        args["enable_mixed_chunk"] = False
        warnings.append("Mixed chunked prefill is disabled because of using speculative decoding.")
    if cpu:
        args["disable_overlap_schedule"] = True
        warnings.append("Overlap schedule is not implemented for speculative decoding on CPU.")
    return args, warnings
