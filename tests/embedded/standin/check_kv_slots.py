"""The copies between the request table and flat lists, against lists of numbers."""

import unittest

import sgl_kernel
import torch


class KVSlots(unittest.TestCase):
    def setUp(self):
        # Six requests of up to 20 tokens; the slot of token t of request r is 100 r + t.
        self.table = torch.arange(6, dtype=torch.int32)[:, None] * 100 + torch.arange(20, dtype=torch.int32)
        self.rows = torch.tensor([4, 1, 2])

    def test_new_slots_are_written_at_their_positions(self):
        before = self.table.clone()
        start, end = torch.tensor([3, 0, 7]), torch.tensor([5, 4, 7])  # the last request gets none
        new = torch.tensor([900, 901, 910, 911, 912, 913])
        sgl_kernel.assign_req_to_token_pool_cpu(self.rows, self.table, start, end, new, 20)
        before[4, 3:5] = torch.tensor([900, 901])
        before[1, 0:4] = torch.tensor([910, 911, 912, 913])
        torch.testing.assert_close(self.table, before)

    def test_slots_are_read_back_in_the_order_of_requests(self):
        start, end = torch.tensor([3, 0, 7], dtype=torch.int32), torch.tensor([5, 0, 10], dtype=torch.int32)
        out = torch.full((6,), -1, dtype=torch.int64)
        sgl_kernel.assign_extend_cache_locs_cpu(self.rows, self.table, start, end, out, 20)
        self.assertEqual(out.tolist(), [403, 404, 207, 208, 209, -1])

    def test_draft_slots_follow_the_committed_tokens(self):
        for topk, steps in [(1, 3), (2, 2)]:
            with self.subTest(topk=topk, steps=steps):
                lengths = torch.tensor([5, 9, 0])
                out = torch.empty(3 * topk * steps, dtype=torch.int64)
                sgl_kernel.assign_draft_cache_locs_contiguous_cpu(
                    self.rows, self.table, lengths, out, 20, topk, steps
                )
                expected = [100 * r + n + i for r, n in [(4, 5), (1, 9), (2, 0)] for i in range(topk * steps)]
                self.assertEqual(out.tolist(), expected)

    def test_each_branch_sees_the_prefix_and_its_own_slots(self):
        for topk, steps in [(1, 3), (3, 2)]:
            with self.subTest(topk=topk, steps=steps):
                lengths = [5, 9, 1]
                got = sgl_kernel.build_draft_decode_metadata_cpu(
                    self.table, self.rows, torch.tensor(lengths), topk, steps, 20
                )
                self.assertEqual(got.shape, (3 * topk, 20))
                for i, (row, n) in enumerate(zip([4, 1, 2], lengths, strict=True)):
                    for branch in range(topk):
                        prefix = [100 * row + t for t in range(n)]
                        own = [100 * row + n + branch * steps + s for s in range(steps)]
                        self.assertEqual(got[i * topk + branch, : n + steps].tolist(), prefix + own)

    def test_a_branch_at_the_end_of_the_pool_is_cut(self):
        got = sgl_kernel.build_draft_decode_metadata_cpu(
            self.table, torch.tensor([1]), torch.tensor([18]), 1, 5, 20
        )
        self.assertEqual(got.tolist(), [list(range(100, 120))])

    def test_kv_rows_move_in_every_buffer_even_onto_each_other(self):
        buffers = [torch.randn(8, 2, 4), torch.randn(8, 6).to(torch.bfloat16)]
        expected = [b.clone() for b in buffers]
        source, target = [1, 2, 3], [2, 3, 7]
        for b in expected:
            b[target] = b[source].clone()
        sgl_kernel.copy_all_layer_kv_cache_cpu(
            torch.tensor([b.data_ptr() for b in buffers], dtype=torch.uint64),
            torch.tensor([b[0].numel() * b.element_size() for b in buffers]),
            torch.tensor(target),
            torch.tensor(source),
        )
        for got, want in zip(buffers, expected, strict=True):
            torch.testing.assert_close(got, want, rtol=0, atol=0)


class Drafts(unittest.TestCase):
    def test_the_bonus_token_is_the_last_accepted_one(self):
        bonus = torch.empty(3, dtype=torch.int32)
        accepted = torch.tensor([10, 11, 12, 13, 20, 21, 22, 23, 30, 31, 32, 33])
        sgl_kernel.fill_bonus_tokens_cpu(accepted, torch.tensor([1, 4, 2]), bonus, 4)
        self.assertEqual(bonus.tolist(), [10, 23, 31])

    def test_slots_of_accepted_tokens_are_packed(self):
        out = torch.full((6,), -7)
        sgl_kernel.fill_accept_out_cache_loc_cpu(
            torch.tensor([[0, 2, -1], [3, -1, -1]]), torch.arange(50, 56), out
        )
        self.assertEqual(out.tolist(), [50, 52, 53, -7, -7, -7])

    def test_input_ids_rotate_inside_each_segment(self):
        start, lens, new = (
            torch.tensor([0, 3, 3, 4]),
            torch.tensor([3, 0, 1, 2]),
            torch.tensor([91, 92, 93, 94]),
        )
        ids = torch.tensor([1, 2, 3, 4, 5, 6])
        sgl_kernel.rotate_input_ids_cpu(ids, start, lens, new[:, None])
        self.assertEqual(ids.tolist(), [2, 3, 91, 93, 6, 94])

    def test_the_new_token_can_go_elsewhere(self):
        ids = torch.tensor([1, 2, 3, 4])
        sgl_kernel.rotate_input_ids_cpu(
            ids, torch.tensor([0, 2]), torch.tensor([2, 2]), torch.tensor([91, 92]), torch.tensor([0, 3])
        )
        self.assertEqual(ids.tolist(), [91, 2, 4, 92])
