"""The tree of draft tokens of one cycle: built from the draft's choices, verified against the target.

A tree has `n` nodes per request; node 0 is the last committed token and the others are the draft tokens
that were kept, in the order of `selected`. Nodes are linked as first child (`next_token`) and next sibling
(`next_sibling`), -1 for none; with topk 1 the tree is a chain.
"""

import torch
from torch import Tensor

# kernels/ops/speculative/spec_tree.py `TreeMaskMode`: the mask covers the n draft tokens only, which is
# what the CPU path asks for.
QLEN_ONLY = 1


def build_tree_kernel_efficient_cpu(
    parent_list: Tensor,
    selected_index: Tensor,
    verified_seq_len: Tensor,
    tree_mask: Tensor,
    positions: Tensor,
    retrieve_index: Tensor,
    retrieve_next_token: Tensor,
    retrieve_next_sibling: Tensor,
    topk: int,
    depth: int,
    draft_token_num: int,
    tree_mask_mode: int,
) -> None:
    """Link the kept draft tokens of each request to a tree, with its mask and positions.

    `selected_index` [bs, n - 1]: node i was candidate `selected_index[i - 1]` among all that the draft
    proposed; candidates come in groups of `topk` with one parent each, and `parent_list` [bs, groups]
    names a group's parent as a candidate (group 0: the committed token).
    Changes: `tree_mask` [bs * n * n] (row: node, column: what it may attend to, that is the committed
    token, its ancestors and itself), `positions` [bs * n] = committed length + depth of the node,
    `retrieve_index` [bs, n] = the node's place in the batch, and the links [bs, n].
    Source: kernels/ops/speculative/spec_tree.py `sgl_build_tree_kernel_efficient_triton`.
    """
    if int(tree_mask_mode) != QLEN_ONLY:
        raise NotImplementedError(f"tree mask mode {tree_mask_mode}: the CPU path asks for QLEN_ONLY only")
    n, bs = draft_token_num, verified_seq_len.numel()
    rows, depths, children, siblings = [], [], [], []
    for groups, selected in zip(parent_list.tolist(), selected_index.tolist(), strict=True):
        parents = _parents(groups, selected, topk)
        paths = _paths(parents)
        rows.append([[j == 0 or j in path for j in range(n)] for path in paths])
        depths.append([len(path) for path in paths])
        first_child, next_sibling = _links(parents)
        children.append(first_child)
        siblings.append(next_sibling)
    tree_mask[: bs * n * n] = torch.tensor(rows, dtype=torch.bool).view(-1)
    positions.view(bs, n).copy_(torch.tensor(depths) + verified_seq_len.view(bs, 1))
    retrieve_index.copy_(torch.arange(bs * n).view(bs, n))
    retrieve_next_token.copy_(torch.tensor(children))
    retrieve_next_sibling.copy_(torch.tensor(siblings))


def _parents(groups: list[int], selected: list[int], topk: int) -> list[int]:
    """The parent of each node; node 0 is its own."""
    node_of = {candidate: node for node, candidate in enumerate(selected, start=1)}
    parents = [0]
    for candidate in selected:
        group = candidate // topk
        parents.append(0 if group == 0 else node_of[groups[group]])
    return parents


def _paths(parents: list[int]) -> list[set[int]]:
    """For each node, itself and its ancestors without the root. A parent comes before its children."""
    paths: list[set[int]] = [set()]
    for node, parent in enumerate(parents[1:], start=1):
        paths.append(paths[parent] | {node})
    return paths


def _links(parents: list[int]) -> tuple[list[int], list[int]]:
    """First child and next sibling of each node; children of one parent follow in the order of nodes."""
    child, sibling = [-1] * len(parents), [-1] * len(parents)
    for node in range(len(parents) - 1, 0, -1):
        sibling[node] = child[parents[node]]
        child[parents[node]] = node
    return child, sibling


def verify_tree_greedy_cpu(
    predicts: Tensor,
    accept_index: Tensor,
    accept_token_num: Tensor,
    candidates: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    target_predict: Tensor,
) -> None:
    """Walk each tree as long as a child is the token that the target itself would say.

    `candidates` [bs, n] are the nodes' tokens, `target_predict` [bs, n] the target's token after each node.
    Changes: `accept_index` [bs, steps + 1], the accepted nodes' places in the batch (the committed token
    first, the rest stays -1), `accept_token_num` [bs], how many drafts were accepted, and `predicts`
    [bs * n], the target's token at each accepted place: the bonus token at the last one.
    Source: kernels/ops/speculative/spec_tree.py `verify_tree_greedy_kernel_triton`.
    """
    said = target_predict.view(-1).tolist()
    tokens, places = candidates.tolist(), retrive_index.tolist()
    children, siblings = retrive_next_token.tolist(), retrive_next_sibling.tolist()
    limit = accept_index.shape[1]
    for b in range(len(tokens)):
        node = 0
        accepted = [places[b][0]]
        while len(accepted) < limit:
            node = children[b][node]
            while node != -1 and tokens[b][node] != said[accepted[-1]]:
                node = siblings[b][node]
            if node == -1:
                break
            accepted.append(places[b][node])
        accept_index[b, : len(accepted)] = torch.tensor(accepted, dtype=accept_index.dtype)
        accept_token_num[b] = len(accepted) - 1
        predicts[torch.tensor(accepted)] = torch.tensor([said[p] for p in accepted], dtype=predicts.dtype)
