"""Which KV slot holds which token: copies between the request table and flat lists of slots.

`req_to_token` [pool, pool_len] is the request table: row r holds the KV slots of the request with pool
index r, by token position. `req_pool_indices` [bs] are the rows of this batch. Flat lists hold the slots
of the whole batch, request after request. Loops run over requests, of which there are few.
"""

import ctypes

import torch
from torch import Tensor


def assign_req_to_token_pool_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    start: Tensor,
    end: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
) -> None:
    """Write new slots into the table: positions `start[i]:end[i]` of each request, from the flat list.

    Changes `req_to_token`. Source: srt/mem_cache/triton_ops `assign_req_to_token_pool`.
    """
    taken = 0
    for row, first, last in zip(*_lists(req_pool_indices, start, end), strict=True):
        given = out_cache_loc[taken : taken + last - first]
        req_to_token[row, first:last] = given.to(req_to_token.dtype)
        taken += last - first


def assign_extend_cache_locs_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    start: Tensor,
    end: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
) -> None:
    """Read slots from the table: positions `start[i]:end[i]` of each request, into the flat list.

    Changes `out_cache_loc`. Source: kernels/ops/speculative/cache_locs.py `assign_extend_cache_locs`.
    """
    written = 0
    for row, first, last in zip(*_lists(req_pool_indices, start, end), strict=True):
        slots = req_to_token[row, first:last]
        out_cache_loc[written : written + last - first] = slots.to(out_cache_loc.dtype)
        written += last - first


def assign_draft_cache_locs_contiguous_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    seq_lens: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
    topk: int,
    num_steps: int,
) -> None:
    """Read the `topk * num_steps` slots that follow each request's committed tokens.

    Changes `out_cache_loc` [bs * topk * num_steps].
    Source: kernels/ops/speculative/cache_locs.py `assign_draft_cache_locs_contiguous`.
    """
    width = topk * num_steps
    assign_extend_cache_locs_cpu(
        req_pool_indices, req_to_token, seq_lens, seq_lens + width, out_cache_loc, pool_len
    )


def build_draft_decode_metadata_cpu(
    req_to_token: Tensor,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    topk: int,
    num_steps: int,
    pool_len: int,
) -> Tensor:
    """A request table for the draft's own steps: one row per branch of the tree, [bs * topk, pool_len].

    The slots after the committed tokens are laid out branch by branch, `num_steps` each. Row `i * topk + k`
    is request i's committed tokens followed by branch k's slots.
    Source: srt/layers/attention/intel_amx_backend.py `IntelAMXMultiStepDraftBackend`, and
    kernels/ops/speculative/cache_locs.py `generate_draft_decode_kv_indices`, which lists the same slots.
    """
    table = req_to_token[req_pool_indices].repeat_interleave(topk, 0)
    for i, (row, length) in enumerate(zip(*_lists(req_pool_indices, seq_lens), strict=True)):
        for branch in range(topk):
            first = length + branch * num_steps
            slots = req_to_token[row, first : first + num_steps]  # shorter at the end of the pool
            table[i * topk + branch, length : length + len(slots)] = slots
    return table


def copy_all_layer_kv_cache_cpu(data_ptrs: Tensor, strides: Tensor, tgt_loc: Tensor, src_loc: Tensor) -> None:
    """Copy the KV rows of slots `src_loc` to slots `tgt_loc`, in every layer's K and V buffer.

    `data_ptrs` are the buffers' addresses and `strides` the bytes of one row of each. All rows of a buffer
    are read before one is written, so that the two lists may overlap.
    Source: kernels/ops/kvcache/cache_move.py `copy_all_layer_kv_cache_tiled`.
    """
    targets, sources = _lists(tgt_loc, src_loc)
    for address, row_bytes in zip(*_lists(data_ptrs, strides), strict=True):
        rows = [ctypes.string_at(address + slot * row_bytes, row_bytes) for slot in sources]
        for slot, row in zip(targets, rows, strict=True):
            ctypes.memmove(address + slot * row_bytes, row, row_bytes)


def _lists(*tensors: Tensor) -> list[list[int]]:
    """The tensors as Python lists: indexing with numbers costs less than with one-element tensors."""
    return [t.to(torch.int64).tolist() for t in tensors]
