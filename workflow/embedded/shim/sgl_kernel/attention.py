"""The two operators of SGLang's `intel_amx` attention backend, computed in float32.

Source of the calling convention: srt/layers/attention/intel_amx_backend.py. Shapes: H query heads, KV
key/value heads (H a multiple of KV), D head size. `k_buffer` and `v_buffer` [slots, KV, D] are the KV cache;
`req_to_token` [pool, pool_len] names the slots of a request by token position. `sliding_window_size` w > 0
lets a token attend to itself and the w - 1 before it; 0 is no window.
"""

import torch
from torch import Tensor


def decode_attention_cpu(
    query: Tensor,
    k_buffer: Tensor,
    v_buffer: Tensor,
    k_scale: float,
    v_scale: float,
    output: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    loc: Tensor,
    attn_logits: Tensor,
    req_to_token: Tensor,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    sm_scale: float,
    logit_cap: float,
    is_cross_attention: bool = False,
    sliding_window_size: int = 0,
    encoder_lens: Tensor | None = None,
    sinks: Tensor | None = None,
) -> None:
    """One new token per request attends to that request's `seq_lens[i]` tokens, itself included.

    `query` and `output` [bs, H, D]. The new `key` and `value` are first written to slots `loc` of the cache
    (None: they are there). Changes `output` and the buffers.
    """
    _refuse_what_is_not_here(is_cross_attention, k_scale, v_scale)
    if key is not None and value is not None:
        k_buffer[loc] = key.view(-1, *k_buffer.shape[1:]).to(k_buffer.dtype)
        v_buffer[loc] = value.view(-1, *v_buffer.shape[1:]).to(v_buffer.dtype)
    longest = int(seq_lens.max())
    # Requests of different lengths share one padded batch; what lies past a request's end is masked.
    slots = req_to_token[req_pool_indices, :longest].long().clamp_(0, len(k_buffer) - 1)
    position, last = torch.arange(longest), seq_lens.view(-1, 1) - 1
    visible = position <= last
    if sliding_window_size > 0:
        visible &= position > last - sliding_window_size
    attended = _attend(
        query.unsqueeze(2),
        k_buffer[slots].transpose(1, 2),
        v_buffer[slots].transpose(1, 2),
        visible[:, None, None, None, :],
        sm_scale,
        logit_cap,
        sinks,
    )
    output.copy_(attended.squeeze(2))


def extend_attention_cpu(
    q_extend: Tensor,
    k_extend: Tensor | None,
    v_extend: Tensor | None,
    o_extend: Tensor,
    k_buffer: Tensor,
    v_buffer: Tensor,
    k_scale: float,
    v_scale: float,
    req_to_token: Tensor,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    extend_seq_lens: Tensor,
    extend_start_loc: Tensor,
    max_len_extend: int,
    sm_scale: float,
    logit_cap: float,
    is_cross_attention: bool = False,
    sliding_window_size: int = 0,
    encoder_lens: Tensor | None = None,
    sinks: Tensor | None = None,
    tree_mask: Tensor | None = None,
    causal: bool = True,
) -> None:
    """The last `extend_seq_lens[i]` of a request's `seq_lens[i]` tokens attend to it: prefill and verify.

    `q_extend` and `o_extend` [tokens, H, D], request i from `extend_start_loc[i]`. The new keys and values
    are in the cache already (the backend writes them first), so `k_extend` and `v_extend` are not read.
    Among the new tokens, visibility is causal, or full, or, with `tree_mask` (flat, one e x e block per
    request), what the mask says; the tokens before are visible to all. Changes `o_extend`.
    """
    _refuse_what_is_not_here(is_cross_attention, k_scale, v_scale)
    mask_read = 0
    requests = (req_pool_indices, seq_lens, extend_seq_lens, extend_start_loc)
    for row, length, new, start in zip(*(t.tolist() for t in requests), strict=True):
        if new == 0:
            continue
        position = torch.arange(length)
        asking = position[-new:, None]
        if tree_mask is not None:
            visible = torch.ones(new, length, dtype=torch.bool)
            visible[:, length - new :] = tree_mask[mask_read : mask_read + new * new].view(new, new)
            mask_read += new * new
        elif causal:
            visible = position <= asking
        else:
            visible = torch.ones(new, length, dtype=torch.bool)
        if sliding_window_size > 0:
            visible = visible & (position > asking - sliding_window_size)
        slots = req_to_token[row, :length].long()
        attended = _attend(
            q_extend[start : start + new].transpose(0, 1),
            k_buffer[slots].transpose(0, 1),
            v_buffer[slots].transpose(0, 1),
            visible,
            sm_scale,
            logit_cap,
            sinks,
        )
        o_extend[start : start + new] = attended.transpose(0, 1)


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    visible: Tensor,
    scale: float,
    logit_cap: float,
    sinks: Tensor | None,
) -> Tensor:
    """Softmax attention: query [..., H, q, D], key and value [..., KV, k, D] -> [..., H, q, D].

    Query heads come in KV groups that share a key head. `visible` is broadcast to [..., KV, H/KV, q, k].
    `logit_cap` c > 0 bends the logits to c tanh(x / c). `sinks` [H] are logits of a token that takes
    attention and gives no value.
    """
    heads, groups = query.shape[-3], key.shape[-3]
    query = query.float().unflatten(-3, (groups, heads // groups))
    logits = query @ key.float().unsqueeze(-3).transpose(-1, -2) * scale
    if logit_cap > 0:
        logits = logit_cap * torch.tanh(logits / logit_cap)
    logits = logits.masked_fill(~visible, float("-inf"))
    if sinks is None:
        weights = logits.softmax(-1)
    else:
        sink = sinks.float().view(groups, heads // groups, 1, 1).expand(*logits.shape[:-1], 1)
        weights = torch.cat([logits, sink], -1).softmax(-1)[..., :-1]
    return (weights @ value.float().unsqueeze(-3)).flatten(-4, -3)


def _refuse_what_is_not_here(is_cross_attention: bool, k_scale: float, v_scale: float) -> None:
    if is_cross_attention:
        raise NotImplementedError("the stand-in for sgl_kernel has no cross attention")
    if k_scale != 1.0 or v_scale != 1.0:
        raise NotImplementedError("the stand-in for sgl_kernel has no scaled (FP8) KV cache")
