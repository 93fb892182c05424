"""Trees of draft tokens, against their definition: walk up to the root, walk down by the target's tokens."""

import random
import unittest

import sgl_kernel
import torch
from sgl_kernel.speculative import reconstruct_indices_from_tree_mask


def grow(rng: random.Random, topk: int, depth: int, kept: int):
    """Draft like EAGLE: `depth` levels, `topk` nodes of each level proposing `topk` candidates each.

    Returns (parent_list, selected, parents): SGLang's two lists, and for each kept candidate its parent
    candidate (None: the committed token).
    """
    parent_of = dict.fromkeys(range(topk))
    level, groups = list(range(topk)), [-1]
    for _ in range(depth - 1):
        expanded = level if len(level) == topk else sorted(rng.sample(level, topk))
        groups += expanded
        level = []
        for candidate in expanded:
            for _ in range(topk):
                parent_of[len(parent_of)] = candidate
                level.append(len(parent_of) - 1)
    selected = []
    for candidate in sorted(rng.sample(sorted(parent_of), len(parent_of))):
        # A kept node's ancestors are kept too: a child never scores above its parent.
        allowed = parent_of[candidate] is None or parent_of[candidate] in selected
        wanted = rng.random() < 0.7 or len(parent_of) - candidate <= kept - len(selected)
        if len(selected) < kept and allowed and wanted:
            selected.append(candidate)
    for candidate in sorted(parent_of):
        if len(selected) < kept and candidate not in selected and parent_of[candidate] in [None, *selected]:
            selected.append(candidate)
    return groups, sorted(selected), parent_of


def ancestors(node: int, parents: list[int]) -> list[int]:
    """The nodes from `node`'s parent up to the root."""
    found = []
    while node:
        node = parents[node]
        found.append(node)
    return found


class Tree(unittest.TestCase):
    def build(self, trees, topk, depth, n, lengths):
        bs = len(trees)
        mask = torch.ones(bs * n * n + 5, dtype=torch.bool)
        positions = torch.empty(bs * n, dtype=torch.int64)
        index, child, sibling = (torch.full((bs, n), -1, dtype=torch.int64) for _ in range(3))
        sgl_kernel.build_tree_kernel_efficient_cpu(
            torch.tensor([t[0] for t in trees]),
            torch.tensor([t[1] for t in trees]),
            torch.tensor(lengths),
            mask, positions, index, child, sibling, topk, depth, n, 1,
        )  # fmt: skip
        return mask[: bs * n * n].view(bs, n, n), positions.view(bs, n), index, child, sibling

    def test_a_chain(self):
        mask, positions, index, child, sibling = self.build(
            [([-1, 0, 1], [0, 1, 2]), ([-1, 0, 1], [0, 1, 2])], 1, 3, 4, [7, 30]
        )
        self.assertTrue(torch.equal(mask[1], torch.ones(4, 4).tril().bool()))
        self.assertEqual(positions.tolist(), [[7, 8, 9, 10], [30, 31, 32, 33]])
        self.assertEqual(index.tolist(), [[0, 1, 2, 3], [4, 5, 6, 7]])
        self.assertEqual(child.tolist(), [[1, 2, 3, -1]] * 2)
        self.assertEqual(sibling.tolist(), [[-1] * 4] * 2)

    def test_a_small_tree_by_hand(self):
        # topk 2: candidates 0, 1 hang on the root; 2, 3 on 0; 4, 5 on 1. Kept: 0, 1, 3, 4.
        mask, positions, _, child, sibling = self.build([([-1, 0, 1], [0, 1, 3, 4])], 2, 2, 5, [10])
        self.assertEqual(child.tolist(), [[1, 3, 4, -1, -1]])
        self.assertEqual(sibling.tolist(), [[-1, 2, -1, -1, -1]])
        self.assertEqual(positions.tolist(), [[10, 11, 11, 12, 12]])
        rows = [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [1, 1, 0, 1, 0], [1, 0, 1, 0, 1]]
        self.assertEqual(mask[0].int().tolist(), rows)

    def test_trees_by_definition_and_read_back_from_their_mask(self):
        rng = random.Random(4)
        for topk, depth, n in [(1, 5, 6), (2, 3, 5), (3, 2, 8), (4, 3, 12)]:
            trees = [grow(rng, topk, depth, n - 1) for _ in range(3)]
            lengths = [rng.randrange(50) for _ in trees]
            built = self.build(trees, topk, depth, n, lengths)
            mask, positions, index, child, sibling = built
            for b, (_, selected, parent_of) in enumerate(trees):
                parents = [0] + [
                    0 if parent_of[c] is None else selected.index(parent_of[c]) + 1 for c in selected
                ]
                for node in range(n):
                    with self.subTest(topk=topk, n=n, request=b, node=node):
                        up = ancestors(node, parents)
                        seen = sorted({0, node, *up})
                        children = [k for k in range(1, n) if parents[k] == node]
                        later = [k for k in range(node + 1, n) if node and parents[k] == parents[node]]
                        self.assertEqual(mask[b, node].nonzero().flatten().tolist(), seen)
                        self.assertEqual(positions[b, node], lengths[b] + len(up))
                        self.assertEqual(index[b, node], b * n + node)
                        self.assertEqual(child[b, node], min(children, default=-1))
                        self.assertEqual(sibling[b, node], min(later, default=-1))
            again = [torch.full((3 * n,), -5), *(torch.full((3, n), -5) for _ in range(3))]
            reconstruct_indices_from_tree_mask(mask.flatten(), torch.tensor(lengths), *again, 3, n)
            for got, want in zip(again, built[1:], strict=True):
                self.assertEqual(got.view(3, n).tolist(), want.tolist())

    def test_other_mask_modes_are_refused(self):
        empty = torch.empty(0)
        with self.assertRaises(NotImplementedError):
            sgl_kernel.build_tree_kernel_efficient_cpu(*[empty] * 8, 1, 1, 2, 0)


class Verify(unittest.TestCase):
    def walk(self, tokens, target, parents, limit):
        """By definition: from the root, go to the first child that is what the target says here."""
        path = [0]
        while len(path) < limit:
            fitting = [
                k for k in range(1, len(parents)) if parents[k] == path[-1] and tokens[k] == target[path[-1]]
            ]
            if not fitting:
                break
            path.append(fitting[0])
        return path

    def test_random_trees_of_several_requests(self):
        rng = random.Random(7)
        accepted_lengths = set()
        for _ in range(60):
            bs, n, steps = rng.randint(1, 4), rng.randint(2, 9), rng.randint(1, 5)
            parents = [[0] + [rng.randrange(k) for k in range(1, n)] for _ in range(bs)]
            if rng.random() < 0.3:
                parents = [[0, *range(n - 1)] for _ in range(bs)]  # chains, as topk 1 gives
            tokens = [[rng.randrange(3) for _ in range(n)] for _ in range(bs)]
            target = [[rng.randrange(3) for _ in range(n)] for _ in range(bs)]
            child = [
                [min((k for k in range(1, n) if p[k] == i), default=-1) for i in range(n)] for p in parents
            ]
            sibling = [
                [min((k for k in range(i + 1, n) if i and p[k] == p[i]), default=-1) for i in range(n)]
                for p in parents
            ]
            predicts = torch.full((bs * n,), -9, dtype=torch.int32)
            index = torch.full((bs, steps + 1), -1, dtype=torch.int32)
            count = torch.empty(bs, dtype=torch.int32)
            sgl_kernel.verify_tree_greedy_cpu(
                predicts=predicts,
                accept_index=index,
                accept_token_num=count,
                candidates=torch.tensor(tokens),
                retrive_index=torch.arange(bs * n).view(bs, n),
                retrive_next_token=torch.tensor(child),
                retrive_next_sibling=torch.tensor(sibling),
                target_predict=torch.tensor(target),
            )
            for b in range(bs):
                path = self.walk(tokens[b], target[b], parents[b], steps + 1)
                accepted_lengths.add(len(path))
                places = [b * n + node for node in path]
                self.assertEqual(index[b].tolist(), places + [-1] * (steps + 1 - len(path)))
                self.assertEqual(count[b], len(path) - 1)
                self.assertEqual([predicts[p].item() for p in places], [target[b][node] for node in path])
        self.assertGreaterEqual(len(accepted_lengths), 4)  # the cases are worth their name
