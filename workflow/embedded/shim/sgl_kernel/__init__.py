"""A stand-in in plain PyTorch for the CPU build of `sgl_kernel`, which PyPI does not carry.

SGLang 0.5.23 imports these names on its own CPU path (SGLANG_USE_CPU_ENGINE=1); nothing of SGLang is
patched. Each function does what the Triton or CUDA kernel of the same name does, and says where that one
is; paths are below `sglang/` of the 0.5.23 wheel. Only what EAGLE, STANDALONE and NGRAM need is here, and
on purpose no `convert_weight_packed`: without it SGLang sees no AMX and takes its native PyTorch code for
norms, RoPE, activations and linear layers.

    kv_slots     which KV slot holds which token
    drafts       the draft tokens' bookkeeping between the steps of a cycle
    tree         the tree of draft tokens: built, and verified against the target
    speculative  the same tree read back from its mask (NGRAM)
    attention    the two operators of the `intel_amx` attention backend
"""

import torch

from .attention import decode_attention_cpu, extend_attention_cpu
from .drafts import fill_accept_out_cache_loc_cpu, fill_bonus_tokens_cpu, rotate_input_ids_cpu
from .kv_slots import (
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    build_draft_decode_metadata_cpu,
    copy_all_layer_kv_cache_cpu,
)
from .tree import build_tree_kernel_efficient_cpu, verify_tree_greedy_cpu

__version__ = "0.0.0+torch"

__all__ = [
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_draft_decode_metadata_cpu",
    "build_tree_kernel_efficient_cpu",
    "copy_all_layer_kv_cache_cpu",
    "decode_attention_cpu",
    "extend_attention_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "rotate_input_ids_cpu",
    "verify_tree_greedy_cpu",
]

# SGLang takes these two through torch.ops. Plain functions do: they are called, never traced.
torch.ops.sgl_kernel.decode_attention_cpu = decode_attention_cpu
torch.ops.sgl_kernel.extend_attention_cpu = extend_attention_cpu
