"""The draft tokens' bookkeeping between the steps of a cycle."""

import torch
from torch import Tensor


def fill_bonus_tokens_cpu(
    accept_tokens: Tensor, accept_lens: Tensor, bonus_tokens: Tensor, accept_stride: int
) -> None:
    """The last accepted token of each request: the target's own, which comes free with a verification.

    `accept_tokens` [bs * accept_stride], `accept_lens` [bs] (the bonus token counted), changes
    `bonus_tokens` [bs]. Source: kernels/ops/speculative/eagle.py `fill_bonus_tokens`.
    """
    last = torch.arange(accept_lens.numel()) * accept_stride + accept_lens - 1
    bonus_tokens.copy_(accept_tokens.view(-1)[last])


def fill_accept_out_cache_loc_cpu(
    accept_index: Tensor, out_cache_loc: Tensor, accept_out_cache_loc: Tensor
) -> None:
    """The KV slots of the accepted tokens, packed to the front.

    `accept_index` holds positions in `out_cache_loc`, -1 for rejected; changes `accept_out_cache_loc`.
    Source: kernels/ops/speculative/eagle.py `fill_accept_out_cache_loc`.
    """
    accepted = accept_index.view(-1)
    accepted = accepted[accepted > -1].long()
    accept_out_cache_loc.view(-1)[: len(accepted)] = out_cache_loc[accepted]


def rotate_input_ids_cpu(
    input_ids: Tensor,
    extend_start_loc: Tensor,
    extend_seq_lens: Tensor,
    topk_index: Tensor,
    select_index: Tensor | None = None,
) -> None:
    """Shift each request's tokens one to the left and put its next token at the end.

    EAGLE's draft reads the token *after* the hidden state of a position. The new token goes to the
    segment's last place, or to the flat position `select_index[i]`. Changes `input_ids` (flat, segments
    of `extend_seq_lens` from `extend_start_loc`).
    Source: kernels/ops/speculative/multi_layer_eagle.py `rotate_input_ids_kernel`.
    """
    new_tokens = topk_index.view(-1)
    segments = zip(extend_start_loc.tolist(), extend_seq_lens.tolist(), strict=True)
    for i, (start, length) in enumerate(segments):
        if length == 0:
            continue
        last = start + length - 1
        input_ids[start:last] = input_ids[start + 1 : last + 1].clone()
        input_ids[last if select_index is None else int(select_index[i])] = new_tokens[i]
