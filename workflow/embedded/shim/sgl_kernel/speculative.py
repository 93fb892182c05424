"""NGRAM's verify metadata, read back from a tree mask (SGLang imports this submodule by name)."""

import torch
from torch import Tensor


def reconstruct_indices_from_tree_mask(
    tree_mask: Tensor,
    verified_seq_len: Tensor,
    positions: Tensor,
    retrieve_index: Tensor,
    retrieve_next_token: Tensor,
    retrieve_next_sibling: Tensor,
    batch_size: int,
    draft_token_num: int,
) -> None:
    """Positions and links of the tree whose ancestors `tree_mask` [bs * n * n] marks.

    Changes `positions` [bs * n] and the three [bs, n] tables, with the meaning they have in `tree`.
    Source: the formulas in kernels/ops/speculative/reconstruct_tree.py.
    """
    bs, n = batch_size, draft_token_num
    node = torch.arange(n)
    ancestor = tree_mask.view(bs, n, n).bool().tril(-1)  # [b, i, j]: j is an ancestor of i
    parent = torch.where(ancestor, node, -1).amax(-1)  # an ancestor's number rises towards the node
    child = torch.where(ancestor.transpose(1, 2), node, n).amin(-1)
    same_parent = (parent[:, :, None] == parent[:, None, :]) & (parent >= 0)[:, :, None]
    later = node[None, :] > node[:, None]
    sibling = torch.where(same_parent & later, node, n).amin(-1)
    positions.view(bs, n).copy_(ancestor.sum(-1) + verified_seq_len.view(bs, 1))
    retrieve_index.view(bs, n).copy_(torch.arange(bs * n).view(bs, n))
    retrieve_next_token.view(bs, n).copy_(torch.where(child < n, child, -1))
    retrieve_next_sibling.view(bs, n).copy_(torch.where(sibling < n, sibling, -1))
