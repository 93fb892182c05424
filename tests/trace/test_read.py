"""Kernel time per span, by every way a kernel can belong to one; communication; ranks."""

from __future__ import annotations

import pytest
import traces

from quietgate.errors import BadInput
from quietgate.inspect.trace import ranks


def read(tmp_path, events, **keys):
    return ranks.read([traces.write(tmp_path / "a.trace.json.gz", traces.document(events, **keys))])


@pytest.mark.parametrize("gpu_spans", [True, False], ids=["gpu spans", "launch correlation"])
@pytest.mark.parametrize("verify", ["step[VERIFY bs=1]", "step[TARGET_VERIFY bs=1]"])
def test_kernel_time_per_span(tmp_path, gpu_spans, verify):
    found = read(tmp_path, traces.cycles(5, gpu_spans=gpu_spans, verify=verify))
    spans = found["spans"]
    assert {s: spans[s]["count"] for s in spans} == {"draft": 5, "verify": 5, "draft_extend": 5}
    assert spans["draft"]["kernel_ms_per_span"] == pytest.approx(0.070)
    assert spans["verify"]["kernel_ms_per_span"] == pytest.approx(0.305)
    assert spans["verify"]["communication_ms_per_span"] == pytest.approx(0.005)
    assert spans["draft_extend"]["kernel_ms_per_span"] == pytest.approx(0.090)
    # Kernel time plus the 10 us gap between the two kernels.
    assert spans["draft_extend"]["steady"]["extent_ms"] == pytest.approx(0.100)
    assert found["cycle_ms"] == pytest.approx(1.0)
    assert found["kernels"] == {"count": 25, "ms": pytest.approx(5 * 0.465)}
    assert found["ranks"][0]["span_source"] == ("gpu_spans" if gpu_spans else "launches")


def test_kernels_of_another_stream_are_not_the_spans(tmp_path):
    events = [*traces.cycles(3), traces.kernel("copy_kernel", 11_300, 100, stream=20)]
    found = read(tmp_path, events)
    assert found["spans"]["verify"]["kernel_ms_per_span"] == pytest.approx(0.305)
    assert found["kernels"]["count"] == 16


def test_one_span_on_two_streams_is_one_occurrence(tmp_path):
    events = []
    for i in range(4):
        at = 1000.0 * (i + 1)
        for stream, us in ((7, 100.0), (8, 50.0)):
            events.append(traces.kernel("k", at, us, stream=stream))
            events.append(traces.span("draft", at, us, gpu=True, tid=stream, external=i + 1))
    found = read(tmp_path, events)["spans"]["draft"]
    assert found["count"] == 4
    assert found["kernel_ms_per_span"] == pytest.approx(0.150)
    assert found["steady"]["extent_ms"] == pytest.approx(0.100)


def test_first_cycles_and_a_prefills_extend_are_not_steady(tmp_path):
    events = [
        traces.span("step[EXTEND bs=1 toks=8]", 1000, 100, gpu=True),
        traces.kernel("k", 1000, 100),
        traces.span("draft_extend", 1200, 900, gpu=True),
        traces.kernel("k", 1200, 900),
    ]
    for i, slow in enumerate((400, 200, 0, 0, 0)):
        at = 10_000.0 + 5000 * i
        for name, offset, us in (
            ("draft", 0, 50),
            ("step[VERIFY bs=1]", 1000, 300),
            ("draft_extend", 2000, 80),
        ):
            events += [
                traces.span(name, at + offset, us + slow, gpu=True),
                traces.kernel("k", at + offset, us + (slow if name == "draft" else 0)),
            ]
    spans = read(tmp_path, events)["spans"]
    assert spans["draft_extend"]["count"] == 6
    assert spans["draft_extend"]["kernel_ms_per_span"] == pytest.approx((0.9 + 5 * 0.08) / 6)
    assert spans["draft_extend"]["steady"]["kernel_ms"] == pytest.approx(0.08)
    assert spans["draft"]["kernel_ms_per_span"] == pytest.approx(0.05 + 0.6 / 5)
    assert spans["draft"]["steady"]["kernel_ms"] == pytest.approx(0.05)


def test_cpu_trace_has_spans_alone(tmp_path):
    events = []
    for i in range(5):
        at = 10_000.0 * (i + 1)
        events += [
            traces.span("draft", at, 2000),
            traces.span("step[DRAFT bs=1]", at + 100, 1500),  # inside draft
            traces.span("step[VERIFY bs=1]", at + 3000, 5000),
            traces.span("draft_extend", at + 8200, 1000),
            traces.span("step[DRAFT bs=1]", at + 8300, 800),  # inside draft_extend
        ]
    found = read(tmp_path, events)
    assert {s: v["count"] for s, v in found["spans"].items()} == {"draft": 5, "verify": 5, "draft_extend": 5}
    assert found["spans"]["verify"]["span_ms_median"] == pytest.approx(5.0)
    assert found["spans"]["verify"]["kernel_ms_per_span"] is None
    assert found["kernels"]["count"] == 0
    assert found["communication"]["share"] is None
    assert found["cycle_ms"] == pytest.approx(10.0)


def test_without_outer_spans_the_inner_steps_count(tmp_path):
    events = [traces.span(f"step[{n} bs=1]", 100.0 * i, 50) for i, n in enumerate(["DRAFT", "VERIFY"] * 3)]
    spans = read(tmp_path, events)["spans"]
    assert {s: v["count"] for s, v in spans.items()} == {"draft": 3, "verify": 3}


def test_decode_steps_are_cycles_only_without_verify(tmp_path):
    steps = [traces.span("step[DECODE bs=1]", 1000.0 * i, 500) for i in range(4)]
    assert read(tmp_path, steps)["spans"]["decode"]["count"] == 4
    assert read(tmp_path, steps)["cycle_ms"] == pytest.approx(1.0)
    spans = read(tmp_path, [*steps, traces.span("step[TARGET_VERIFY bs=1]", 600, 100)])["spans"]
    assert set(spans) == {"verify"}


def test_communication_by_class_with_evidence_of_channels_and_threads(tmp_path):
    shape = {"grid": [16, 1, 1], "block": [512, 1, 1]}
    events = [
        traces.kernel(traces.REDUCE, 0, 30, **shape),
        traces.kernel(traces.REDUCE, 100, 10, grid=[2, 1, 1], block=[128, 1, 1]),
        traces.kernel(traces.GATHER, 200, 20, **shape),
        traces.kernel("void sglang::cross_device_reduce_1stage<half, 2>(x)", 300, 15, **shape),
        traces.kernel(traces.GEMM, 400, 25, **shape),
    ]
    found = read(tmp_path, events)["communication"]
    assert (found["count"], found["ms"], found["share"]) == (4, pytest.approx(0.075), pytest.approx(0.75))
    assert found["by_class"]["nccl"] == {"count": 3, "ms": pytest.approx(0.060)}
    reduce = found["by_kernel"]["ncclDevKernel_AllReduce_Sum_bf16_RING_LL"]
    assert (reduce["count"], reduce["grids"], reduce["blocks"]) == (2, [2, 16], [128, 512])
    assert found["transfer_ms"] is None
    assert "one rank" in found["why"]


def test_no_communication_is_a_share_of_zero(tmp_path):
    found = read(tmp_path, [traces.kernel(traces.GEMM, 0, 30)])["communication"]
    assert (found["count"], found["ms"], found["share"], found["by_kernel"]) == (0, 0.0, 0.0, {})


def two_ranks(tmp_path, first, second):
    paths = [
        traces.write(tmp_path / f"1-TP-{r}.trace.json.gz", traces.document(events, rank=r, world_size=2))
        for r, events in enumerate((first, second))
    ]
    return ranks.read(paths)


def test_transfer_is_the_least_over_ranks_and_the_rest_is_waiting(tmp_path):
    early = traces.cycles(4, reduce_us=(25.0, 30.0))
    late = traces.cycles(4, reduce_us=(25.0, 30.0), late_us=20.0)
    found = two_ranks(tmp_path, early, late)
    halves = [r["communication"]["split"] for r in found["ranks"]]
    for half in halves:
        assert half["collectives"] == 8
        assert half["transfer_ms"] == pytest.approx(4 * (5 + 10) / 1e3)
        assert half["why"] is None
    assert [h["waiting_ms"] for h in halves] == [pytest.approx(0.160), pytest.approx(0.0)]
    assert [r["communication"]["share"] for r in found["ranks"]] == [
        pytest.approx(55 / 515),
        pytest.approx(15 / 475),
    ]
    verify = found["spans"]["verify"]
    assert verify["transfer_ms_per_span"] == pytest.approx(0.015)
    assert verify["waiting_ms_per_span"] == pytest.approx(0.020)


def test_a_rank_that_saw_more_collectives_is_paired_by_the_rest(tmp_path):
    early = traces.cycles(4, reduce_us=(25.0,))
    for surplus, at in (("before", 5_000.0), ("after", 50_000.0)):
        more = [*traces.cycles(4, reduce_us=(25.0,), late_us=20.0), traces.kernel(traces.REDUCE, at, 99)]
        ranks = two_ranks(tmp_path, early, more)["ranks"]
        halves = [r["communication"]["split"] for r in ranks]
        assert [h["transfer_ms"] for h in halves] == [pytest.approx(0.020)] * 2, surplus
        assert "1 kernel at one end without a partner" in halves[1]["why"]


def test_hosts_clocks_may_differ_by_a_constant(tmp_path):
    late = traces.cycles(4, reduce_us=(25.0,), late_us=20.0)
    for event in late:
        event["ts"] += 7_000_000.0
    found = two_ranks(tmp_path, traces.cycles(4, reduce_us=(25.0,)), late)
    assert found["communication"]["transfer_ms"] == pytest.approx(0.020)


def test_collectives_that_do_not_end_together_are_not_split(tmp_path):
    other = traces.cycles(4)
    for i, event in enumerate(other):
        event["ts"] += 400.0 * (i % 3)
    found = two_ranks(tmp_path, traces.cycles(4), other)
    assert found["communication"]["transfer_ms"] is None
    assert "end together" in found["communication"]["why"]


def test_a_missing_rank_is_named(tmp_path):
    document = traces.document(traces.cycles(3), rank=0, world_size=4)
    paths = [traces.write(tmp_path / f"1-TP-{r}.trace.json.gz", document) for r in (0, 1)]
    assert ranks.read(paths)["problems"][-1] == "1 of 4 ranks have a readable trace"


def test_kernel_totals_that_someone_drew_from_a_trace(tmp_path):
    totals = {"source": "x", "top": [[traces.GEMM, 750.0], [traces.REDUCE, 200.0], [traces.GATHER, 50]]}
    found = ranks.read([traces.write(tmp_path / "top.json", totals)])
    assert found["kernels"] == {"count": None, "ms": pytest.approx(1.0)}
    assert found["communication"]["share"] == pytest.approx(0.25)
    assert found["communication"]["count"] is None


def test_two_processes_read_the_same(tmp_path):
    paths = [
        traces.write(tmp_path / f"1-TP-{r}.trace.json.gz", traces.document(traces.cycles(3), rank=r))
        for r in range(3)
    ]
    assert ranks.read(paths, processes=2) == ranks.read(paths, processes=1)


def test_no_file_at_all():
    with pytest.raises(BadInput, match="no trace file"):
        ranks.read([])


def test_a_merged_profile_is_read_rank_by_rank(tmp_path):
    parts = [traces.cycles(4, reduce_us=(5.0, 7.0)), traces.cycles(4, reduce_us=(5.0, 7.0), late_us=2.0)]
    alone = [
        traces.write(tmp_path / f"p-TP-{r}.trace.json", traces.document(events, rank=r, world_size=2))
        for r, events in enumerate(parts)
    ]
    merged = traces.document(
        [event | {"pid": f"[TP0{r}] {event['pid']}"} for r, events in enumerate(parts) for event in events],
        rank=0,
        world_size=2,
    )
    for event in merged["traceEvents"]:
        event["pid"] = event["pid"] if str(event["pid"]).startswith("[") else f"[TP00] {event['pid']}"
    found = ranks.read([traces.write(tmp_path / "merged-p.trace.json", merged)])
    apart = ranks.read(alone)
    assert [r["rank"] for r in found["ranks"]] == [0, 1]
    assert found["kernels"] == apart["kernels"]
    assert found["spans"] == apart["spans"]
    assert found["communication"]["transfer_ms"] == pytest.approx(apart["communication"]["transfer_ms"])


def test_totals_with_communication_do_not_say_there_is_none(tmp_path):
    totals = {"top": [["ncclDevKernel_AllReduce_Sum_f16_RING_LL(x)", 10.0], ["gemm", 30.0]]}
    found = ranks.read([traces.write(tmp_path / "totals.json", totals)])["communication"]
    assert found["share"] == pytest.approx(0.25)
    assert found["why"] == "totals per kernel cannot tell transfer from waiting"


def test_a_copy_of_a_trace_is_no_second_rank(tmp_path):
    one, two = (
        traces.document(traces.cycles(4, late_us=late), rank=r, world_size=2) for r, late in ((0, 0), (1, 2))
    )
    paths = [traces.write(tmp_path / f"1-TP-{r}.trace.json.gz", d) for r, d in enumerate((one, two))]
    copy = tmp_path / "1-TP-0 (copy).trace.json"
    found = ranks.read([*paths, traces.write(copy, one)])
    assert [r["rank"] for r in found["ranks"]] == [0, 1]
    assert found["ranks"][0]["communication"]["split"]["waiting_ms"] == pytest.approx(4 * 0.002)
    assert len(found["problems"]) == 1
    assert "counted once" in found["problems"][0]
    alone = ranks.read([paths[0], copy])
    assert alone["communication"]["transfer_ms"] is None, "paired with itself it would never wait"


@pytest.mark.parametrize("gpu_spans", [True, False], ids=["gpu spans", "launch correlation"])
def test_the_replay_of_a_graph_is_measured_without_what_is_launched_beside_it(tmp_path, gpu_spans):
    events = []
    for i in range(5):
        at, launch = 10_000.0 + 2000 * i, 10 * (i + 1)
        events += [
            traces.span("draft", at - 500, 900, external=launch),
            traces.launch(at - 490, launch),
            traces.launch(at - 300, launch + 1, name="cudaLaunchKernel"),
            # A graph of three kernels, then one by itself after a long gap.
            *(traces.kernel(traces.GEMM, at + 12 * k, 10, launch) for k in range(3)),
            traces.kernel("argmax", at + 800, 7, launch + 1),
        ]
        if gpu_spans:
            events.append(traces.span("draft", at, 807, gpu=True, external=launch))
    steady = read(tmp_path, events)["spans"]["draft"]["steady"]
    assert steady["kernel_ms"] == pytest.approx(0.037)
    assert steady["extent_ms"] == pytest.approx(0.807)
    assert steady["replay_ms"] == pytest.approx(0.034)


def test_kernels_whose_launch_is_unknown_are_no_replay(tmp_path):
    events = [traces.kernel("k", 1000 + 50 * k, 10, correlation=0) for k in range(2)]
    events.append(traces.span("draft", 1000, 100, gpu=True))
    assert read(tmp_path, events)["spans"]["draft"]["steady"]["replay_ms"] is None


def test_the_first_cycles_waiting_is_not_in_the_steady_halves(tmp_path):
    """Two cycles in which rank 0 spins for 500 us longer than in the four that follow."""
    paths = []
    for rank in (0, 1):
        events = []
        for i in range(6):
            at, early = 10_000.0 + 3000 * i, (503.0 if i < 2 else 3.0) * (rank == 0)
            events.append(traces.span("step[VERIFY bs=1]", at, 900, gpu=True))
            events.append(traces.kernel(traces.GEMM, at, 100, 50 + i))
            events.append(traces.kernel(traces.REDUCE, at + 800 - early, 6 + early, 50 + i))
        document = traces.document(events, rank=rank, world_size=2)
        paths.append(traces.write(tmp_path / f"1-TP-{rank}.trace.json.gz", document))
    found = ranks.read(paths)
    early = found["ranks"][0]["spans"]["verify"]
    assert early["waiting_ms_per_span"] == pytest.approx((2 * 0.503 + 4 * 0.003) / 6)
    assert early["steady"]["waiting_ms"] == pytest.approx(0.003)
    assert early["steady"]["transfer_ms"] == pytest.approx(0.006)
    steady = early["steady"]
    assert steady["communication_ms"] == pytest.approx(steady["transfer_ms"] + steady["waiting_ms"])
    assert found["ranks"][1]["spans"]["verify"]["steady"]["waiting_ms"] == 0.0
    assert found["spans"]["verify"]["steady"]["waiting_ms"] == pytest.approx(0.0015)


@pytest.mark.parametrize("mark", ["[TP0{}] {}", "rank{} {}", "Rank {}: {}"])
def test_a_merged_profile_may_begin_with_the_names_of_its_processes(tmp_path, mark):
    named = {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "ts": 0, "args": {"name": "python"}}
    events = [
        event | {"pid": mark.format(r, event["pid"])}
        for r in (0, 1)
        for event in traces.cycles(4, late_us=2.0 * r)
    ]
    found = ranks.read([traces.write(tmp_path / "m.json", {"traceEvents": [named, *events]})])
    assert [r["rank"] for r in found["ranks"]] == [0, 1]
    assert found["spans"]["draft"]["kernel_ms_per_span"] == pytest.approx(0.07)
    assert found["problems"] == []


def test_stages_of_several_gpus_in_one_trace_are_not_mixed(tmp_path):
    events = [
        event | ({"pid": gpu} if event["cat"] in ("kernel", "gpu_user_annotation") else {})
        for gpu in (0, 1)
        for event in traces.cycles(4)
    ]
    found = ranks.read([traces.write(tmp_path / "both.json", {"traceEvents": events})])
    assert found["kernels"]["count"] == 40
    assert (found["spans"], found["cycle_ms"]) == ({}, None)
    assert "kernels of 2 GPUs" in found["problems"][0]


def test_kernels_without_durations_are_a_problem(tmp_path):
    events = [traces.kernel(traces.GEMM, 10, 0), traces.kernel(traces.REDUCE, 20, 0)]
    found = ranks.read([traces.write(tmp_path / "a.json", {"traceEvents": events})])
    assert "none of its 2 kernels has a duration" in found["problems"][0]


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("1758-TP-3-DP-1-EP-3-DECODE.trace.json", 3),
        ("dp0_pp0_tp1_dcp0_ep1_rank5.1758000000.pt.trace.json", 5),
        ("host_rank3.pt.trace.json", 3),
        ("rank-2_trace.json", 2),
        ("prank7.json", None),
        ("node_4711.pt.trace.json", None),
    ],
)
def test_the_rank_by_the_files_name(tmp_path, name, rank):
    path = traces.write(tmp_path / name, {"traceEvents": traces.cycles(2)})
    assert ranks.read([path])["ranks"][0]["rank"] == rank
