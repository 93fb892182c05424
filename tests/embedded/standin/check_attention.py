"""Attention against its definition: one query, one head, a softmax over what it may see, in float64."""

import itertools
import math
import unittest

import sgl_kernel
import torch

HEAD = 8


def define(q, keys, values, scale, cap, sink):
    """softmax(q . k) v of one query head over the visible keys [m, D]."""
    logits = [scale * float(q.double() @ k.double()) for k in keys]
    if cap:
        logits = [cap * math.tanh(x / cap) for x in logits]
    total = sum(math.exp(x) for x in logits) + (math.exp(sink) if sink is not None else 0.0)
    return sum(math.exp(x) / total * v.double() for x, v in zip(logits, values, strict=True))


class Setting:
    """A KV cache with some requests in scattered slots."""

    def __init__(self, lengths, heads, kv_heads, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.lengths, self.heads, self.kv_heads = lengths, heads, kv_heads
        slots = torch.randperm(200, generator=g)[: sum(lengths) + 20]
        self.k, self.v = (torch.randn(200, kv_heads, HEAD, generator=g) for _ in range(2))
        self.table = torch.zeros(9, 64, dtype=torch.int32)
        self.rows = torch.randperm(9, generator=g)[: len(lengths)]
        at = 0
        for row, length in zip(self.rows, lengths, strict=True):
            self.table[row, :length] = slots[at : at + length]
            at += length
        self.random = g

    def expected(self, request, position, q, visible, cap, sinks):
        """[H, D] of the query at `position` of `request`, which sees the positions `visible`."""
        slots = self.table[self.rows[request], visible].long()
        shared = self.heads // self.kv_heads
        return torch.stack(
            [
                define(
                    q[h],
                    self.k[slots, h // shared],
                    self.v[slots, h // shared],
                    HEAD**-0.5,
                    cap,
                    None if sinks is None else float(sinks[h]),
                )
                for h in range(self.heads)
            ]
        ).float()


VARIANTS = list(itertools.product([(4, 4), (4, 2), (6, 1)], [0, 3], [0.0, 2.0], [False, True]))


class Attention(unittest.TestCase):
    def variants(self, lengths):
        for (heads, kv_heads), window, cap, with_sinks in VARIANTS:
            s = Setting(lengths, heads, kv_heads)
            sinks = torch.randn(heads, generator=s.random) if with_sinks else None
            with self.subTest(heads=heads, kv_heads=kv_heads, window=window, cap=cap, sinks=with_sinks):
                yield s, window, cap, sinks

    def extend(self, s, q, new, window=0, cap=0.0, sinks=None, tree=None, causal=True):
        start = [sum(new[:i]) for i in range(len(new))]
        out = torch.full_like(q, float("nan"))
        sgl_kernel.extend_attention_cpu(
            q, None, None, out, s.k, s.v, 1.0, 1.0, s.table, s.rows, torch.tensor(s.lengths),
            torch.tensor(new, dtype=torch.int32), torch.tensor(start, dtype=torch.int32), max(new),
            HEAD**-0.5, cap, False, window, None, sinks, tree, causal,
        )  # fmt: skip
        return out

    def test_decode(self):
        lengths = [5, 1, 17]
        for s, window, cap, sinks in self.variants(lengths):
            q = torch.randn(3, s.heads, HEAD, generator=s.random)
            new_k, new_v = (torch.randn(3, s.kv_heads, HEAD, generator=s.random) for _ in range(2))
            loc = torch.tensor([s.table[r, n - 1] for r, n in zip(s.rows, lengths, strict=True)])
            out = torch.empty_like(q)
            sgl_kernel.decode_attention_cpu(
                q, s.k, s.v, 1.0, 1.0, out, new_k, new_v, loc, None, s.table, s.rows,
                torch.tensor(lengths), HEAD**-0.5, cap, False, window, None, sinks,
            )  # fmt: skip
            torch.testing.assert_close(s.k[loc], new_k)
            torch.testing.assert_close(s.v[loc], new_v)
            for i, n in enumerate(lengths):
                visible = list(range(max(0, n - window) if window else 0, n))
                torch.testing.assert_close(out[i], s.expected(i, n - 1, q[i], visible, cap, sinks))

    def test_extend(self):
        lengths, new = [9, 4, 12, 6], [3, 4, 0, 1]  # after a prefix, from nothing, none, one
        for s, window, cap, sinks in self.variants(lengths):
            q = torch.randn(sum(new), s.heads, HEAD, generator=s.random)
            out = self.extend(s, q, new, window, cap, sinks)
            at = 0
            for i, (n, e) in enumerate(zip(lengths, new, strict=True)):
                for position in range(n - e, n):
                    first = max(0, position + 1 - window) if window else 0
                    visible = list(range(first, position + 1))
                    torch.testing.assert_close(out[at], s.expected(i, position, q[at], visible, cap, sinks))
                    at += 1

    def test_extend_with_a_tree_of_drafts(self):
        lengths, new = [9, 4], [4, 4]  # each: some tokens before (or none), then four draft tokens
        masks = torch.tensor(
            [
                [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]],
                [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 0, 1]],
            ]
        ).bool()
        s = Setting(lengths, 4, 2)
        q = torch.randn(8, 4, HEAD, generator=s.random)
        out = self.extend(s, q, new, tree=masks.flatten())
        for i, n in enumerate(lengths):
            for e in range(4):
                drafts = [n - 4 + j for j in range(4) if masks[i, e, j]]
                visible = list(range(n - 4)) + drafts
                want = s.expected(i, n - 4 + e, q[4 * i + e], visible, 0.0, None)
                torch.testing.assert_close(out[4 * i + e], want)

    def test_extend_without_causality(self):
        s = Setting([7, 3], 4, 2)
        q = torch.randn(4, 4, HEAD, generator=s.random)
        out = self.extend(s, q, [3, 1], causal=False)
        torch.testing.assert_close(out[0], s.expected(0, 4, q[0], list(range(7)), 0.0, None))
        torch.testing.assert_close(out[3], s.expected(1, 2, q[3], list(range(3)), 0.0, None))

    def test_extending_at_once_equals_decoding_token_by_token(self):
        s = Setting([11], 4, 2)
        q = torch.randn(5, 4, HEAD, generator=s.random)
        at_once = self.extend(s, q, [5])
        one_by_one = torch.empty_like(q)
        for e in range(5):
            sgl_kernel.decode_attention_cpu(
                q[e : e + 1], s.k, s.v, 1.0, 1.0, one_by_one[e : e + 1], None, None, None, None,
                s.table, s.rows, torch.tensor([7 + e]), HEAD**-0.5, 0.0, False, 0, None, None,
            )  # fmt: skip
        torch.testing.assert_close(at_once, one_by_one)

    def test_the_output_keeps_the_type_of_the_query(self):
        s = Setting([6], 4, 2)
        s.k, s.v = s.k.bfloat16(), s.v.bfloat16()
        q = torch.randn(2, 4, HEAD, generator=s.random).bfloat16()
        out = self.extend(s, q, [2])
        self.assertEqual(out.dtype, torch.bfloat16)
        want = s.expected(0, 4, q[0], list(range(5)), 0.0, None)
        torch.testing.assert_close(out[0].float(), want, rtol=0.02, atol=0.02)

    def test_what_is_not_here_is_refused(self):
        s = Setting([6], 4, 2)
        q = torch.randn(1, 4, HEAD)
        for scale, cross in [(0.5, False), (1.0, True)]:
            with self.assertRaises(NotImplementedError):
                sgl_kernel.decode_attention_cpu(
                    q, s.k, s.v, scale, 1.0, q, None, None, None, None, s.table, s.rows,
                    torch.tensor([6]), 1.0, 0.0, cross,
                )  # fmt: skip

    def test_sglang_finds_the_operators_where_it_looks(self):
        self.assertIs(torch.ops.sgl_kernel.decode_attention_cpu, sgl_kernel.decode_attention_cpu)
        self.assertIs(torch.ops.sgl_kernel.extend_attention_cpu, sgl_kernel.extend_attention_cpu)
        # SGLang asks for this name to learn whether the processor's AMX build is there.
        self.assertFalse(hasattr(torch.ops.sgl_kernel, "convert_weight_packed"))
