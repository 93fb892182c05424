"""Kernel and span names."""

from __future__ import annotations

import pytest

from quietgate.inspect.trace import names


@pytest.mark.parametrize(
    ("kernel", "kind", "collective", "tree"),
    [
        (
            "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "nccl",
            "AllReduce",
            False,
        ),
        ("ncclDevKernel_AllReduce_Sum_f16_TREE_LL(ncclDevKernelArgs)", "nccl", "AllReduce", True),
        ("ncclKernel_AllReduce_RING_LL_Sum_half(ncclDevComm*, unsigned long)", "nccl", "AllReduce", False),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", "nccl", "SendRecv", False),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "nccl", "SendRecv", None),
        ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(x)", "nccl", "ReduceScatter", False),
        ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", "rccl_generic", None, None),
        ("ncclDevKernel_Generic", "rccl_generic", None, None),
        ("ncclSymkDevKernel_AllReduce_AGxLL_R_sum_bf16(x)", "nccl_symmetric", "AllReduce", None),
        ("ncclSymDevKernel_AllGather_LL(x)", "nccl_symmetric", "AllGather", None),
        ("void sglang::cross_device_reduce_1stage<__half, 2>(a)", "custom_all_reduce", "AllReduce", None),
        ("all_reduce_2shot_push_kernel<bf16, 8>", "custom_all_reduce", "AllReduce", None),
        (
            "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<4>(x)",
            "flashinfer",
            "AllReduce",
            None,
        ),
        ("void multimem_all_reduce_kernel<16>(x)", "torch_symmetric_memory", None, None),
        ("void mscclpp::allreduce7<__half>(x)", "mscclpp", None, None),
        ("mscclKernel_Sum_hip_bfloat16_Simple_false(ncclDevComm*)", "msccl", None, None),
        ("void aiter::allreduce_fusion_kernel_1stage<x, x, 4>(a)", "custom_all_reduce", "AllReduce", None),
        ("void tensorrt_llm::moeA2ADispatchKernel<8, false>(x)", "moe_all_to_all", None, None),
        ("void mori::moe::EpCombineIntraNodeKernel<x>(a)", "moe_all_to_all", None, None),
        ("nvjet_tst_64x8_64x16_4x1_v_bz_TNT", None, None, None),
        ("void at::native::reduce_kernel<512, 1>(x)", None, None, None),
    ],
)
def test_kernels(kernel, kind, collective, tree):
    assert names.communication_class(kernel) == kind
    assert names.collective(kernel) == collective
    assert names.tree(kernel) is tree


def test_no_protocol_is_read_from_a_name():
    # LL128, Simple and NVLS all run inside kernels called ..._RING_LL.
    assert not any("proto" in name for name in dir(names))


@pytest.mark.parametrize(
    ("kernel", "short"),
    [
        (
            "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "ncclDevKernel_AllGather_RING_LL",
        ),
        ("void (anonymous namespace)::f<g(h)>(int)", "f<g(h)>"),
        ("plain", "plain"),
    ],
)
def test_short(kernel, short):
    assert names.short(kernel) == short


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("draft", ("draft", True)),
        ("draft_extend", ("draft_extend", True)),
        ("step[VERIFY bs=1]", ("verify", True)),
        ("step[TARGET_VERIFY bs=16]", ("verify", True)),
        ("step[DECODE bs=32]", ("decode", True)),
        ("step[EXTEND bs=1 toks=8]", ("prefill", True)),
        ("step[DRAFT bs=1]", ("draft", False)),
        ("step[DRAFT_EXTEND bs=1]", ("draft_extend", False)),
        ("scheduler.run_batch", None),
        ("drafting", None),
        ("step[IDLE bs=0]", None),
    ],
)
def test_spans(name, expected):
    assert names.span(name) == expected


@pytest.mark.parametrize("part", ["multimem_", "twoshot", "moe_a"])
def test_a_name_without_end(part):
    # Searched whole, it takes minutes.
    assert names.communication_class("ncclDevKernel_" + part * 200_000) == "nccl"
    assert names.communication_class(part * 200_000) is None
