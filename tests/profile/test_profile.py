"""profile.json from the records of a launch, however few of them there are."""

from __future__ import annotations

import gzip
import json

import pytest

from quietgate import records
from quietgate.analyse.profile import profile
from quietgate.errors import BadInput

ENVELOPE = {
    "schema": "quietgate/profile/1",
    "study": "s",
    "cell": "steps-2_nccl-default",
    "launch": "l1",
    "instance": "0123456789ab",
    "digest": "0123456789abcdef",
    "status": "passed",
    "failure": None,
    "started_at": "2026-11-29T17:00:00.000Z",
    "seconds": 1.0,
}
MS = {"draft": 0.5, "verify": 8.0, "extend": 0.7}


def window(concurrency=1, repeat=1, ms=None, passes=100.0, **keys):
    return {
        "concurrency": concurrency,
        "repeat": repeat,
        "wall_s": 1.0,
        "source": "device_timer",
        "why": None,
        "ms_per_pass": MS if ms is None else ms,
        "passes": {"decode_cuda_graph": passes},
        "problems": [],
    } | keys


def one_pass(concurrency=1, repeat=1, cycle_ms=10.0, **keys):
    return {
        "concurrency": concurrency,
        "repeat": repeat,
        "status": "passed",
        "cycle_ms": cycle_ms,
        "tokens_per_cycle": 2.0,
        "decode_tokens_per_s": 200.0,
        "server_decode_tokens_per_s": 202.0,
    } | keys


def trace(kernels=True, cycles=6, steps=2):
    events = []
    spans = (
        {"draft": 400, "step[VERIFY bs=1]": 7600, "draft_extend": 720}
        if steps
        else {"step[DECODE bs=1]": 9000}
    )
    for i in range(cycles):
        at = 1e6 + 15_000.0 * i
        for name, us in spans.items():
            line = {"ph": "X", "pid": 0, "tid": 7, "name": name, "ts": at, "dur": us * 1.5}
            if kernels:
                events.append(line | {"cat": "gpu_user_annotation", "args": {}})
                for begin, share in ((0.0, 0.5), (us * 0.6, 0.4)):
                    events.append(
                        line
                        | {
                            "cat": "kernel",
                            "name": "k",
                            "ts": at + begin,
                            "dur": us * share,
                            "args": {"stream": 7},
                        }
                    )
            else:
                events.append(line | {"cat": "user_annotation", "args": {}})
            at += us * 1.5 + 10
    return {"distributedInfo": {"rank": 0, "world_size": 1}, "traceEvents": events}


@pytest.fixture
def launch(tmp_path):
    """Write the records of a launch; None leaves one out."""

    def write(windows=(), passes=(), found=None, capture="passed", requests=(), **files):
        benchmark = {"status": "passed", "instance": "0123456789ab", "passes": list(passes) or [one_pass()]}
        (tmp_path / "benchmark.json").write_text(json.dumps(benchmark))
        if windows is not None:
            stages = {"status": "passed", "source": "device_timer", "why": None, "windows": list(windows)}
            (tmp_path / "stages.json").write_text(json.dumps(stages))
        if found is not None:
            (tmp_path / "trace").mkdir(exist_ok=True)
            (tmp_path / "trace" / "1-TP-0.trace.json.gz").write_bytes(
                gzip.compress(json.dumps(found).encode())
            )
            record = {"status": capture, "failure": None, "trace_files": [{"name": "1-TP-0.trace.json.gz"}]}
            (tmp_path / "capture.json").write_text(json.dumps(record))
        (tmp_path / "requests.jsonl").write_text("".join(json.dumps(r) + "\n" for r in requests))
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/").replace("_json", ".json")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


def profiled(folder, steps=2):
    """The profile, checked against its own schema and for a reason beside every null."""
    fields = profile(folder, steps)
    assert records.problem(ENVELOPE | fields, "profile") is None
    for source in fields["sources"].values():
        nulls = {name for name in source if name.endswith("_ms") and source[name] is None}
        assert nulls == set(source["why"]), "a reason for every null and for nothing else"
    for best in fields["best"].values():
        assert (best["value"] is None) == bool(best["why"])
        assert (best["value"] is None) == (best["source"] is None)
    return fields


def request(verify_ct=50, histogram=(10, 15, 25), **keys):
    spec = {"spec_correct_drafts_histogram": list(histogram)}
    line = {"phase": "timed", "ok": True, "concurrency": 1, "repeat": 1, "spec_verify_ct": verify_ct}
    return line | {"spec": spec} | keys


def test_three_sources_side_by_side(launch):
    requests = [request(), request(histogram=(20, 10, 20)), request(phase="warm_up")]
    found = profiled(launch([window()], [one_pass()], trace(), requests=requests))
    assert found["sources"]["device_timer"]["verify_ms"] == 8.0
    assert found["sources"]["trace"]["verify_ms"] == pytest.approx(6.84)
    assert found["sources"]["requests"]["cycle_ms"] == 10.0
    assert {n: b["source"] for n, b in found["best"].items()} == {
        "draft_ms": "device_timer",
        "verify_ms": "device_timer",
        "extend_ms": "device_timer",
        "decode_ms": None,
        "cycle_ms": "requests",
    }
    assert found["not_in_any_stage"] == {
        "value_ms": pytest.approx(0.8),
        "share": pytest.approx(0.08),
        "without": [],
        "why": None,
    }
    assert found["profiler"]["stretch"] == pytest.approx(1.5)
    assert found["tokens_per_cycle"] == 2.0
    assert found["acceptance"] == {"by_position": [0.7, 0.45], "cycles": 100, "why": None}


def test_two_sources_of_one_quantity_are_compared_and_large_differences_named(launch):
    requests = [request(verify_ct=60), request(verify_ct=39)]
    found = profiled(launch([window()], [one_pass()], trace(), requests=requests))
    compared = {(c["quantity"], c["b"]): c for c in found["comparisons"]}
    # Kernel time plus the gap: the whole 7.6 ms of the span's kernels, against 8.0 by the timer.
    verify = compared["verify_ms", "trace"]
    assert verify["relative_difference"] == pytest.approx(-0.05)
    draft = compared["draft_ms", "trace"]
    assert (draft["relative_difference"], draft["above_tolerance"]) == (pytest.approx(-0.2), True)
    # Median against median of the same requests: 200 by the client, 202 by the server.
    server = compared["decode_tokens_per_s", "server"]
    assert (server["relative_difference"], server["above_tolerance"]) == (pytest.approx(0.01), False)
    assert compared["cycles", "server"]["relative_difference"] == pytest.approx(1 / 99)


def test_no_speculation_is_one_decode_forward_per_cycle(launch):
    windows = [window(ms={"decode": 9.5})]
    found = profiled(launch(windows, [one_pass(tokens_per_cycle=1.0)], trace(steps=0)), steps=0)
    assert found["tokens_per_cycle"] == 1.0
    assert found["best"]["decode_ms"] == {"value": 9.5, "source": "device_timer", "why": None}
    assert "one decode forward" in found["best"]["verify_ms"]["why"]
    assert found["sources"]["trace"]["decode_ms"] == pytest.approx(8.1)
    assert found["not_in_any_stage"]["value_ms"] == pytest.approx(0.5)
    assert "no speculation" in found["acceptance"]["why"]


def test_one_step_has_no_draft_graph(launch):
    found = profiled(launch([window(ms={"verify": 8.0, "extend": 0.7})]), steps=1)
    assert "no draft graph at one step" in found["sources"]["device_timer"]["why"]["draft_ms"]
    assert found["best"]["draft_ms"]["value"] is None
    assert found["not_in_any_stage"]["without"] == ["draft_ms"]


def test_an_eager_draft_is_timed_as_decode_forwards(launch):
    found = profiled(launch([window(ms={"decode": 0.6, "verify": 8.0, "extend": 0.7})]))
    assert found["best"]["draft_ms"]["value"] == 0.6
    assert found["best"]["decode_ms"]["value"] is None
    assert "eager decode forwards" in found["sources"]["device_timer"]["problems"][0]


def test_what_a_release_does_not_time_is_said_with_its_number(launch):
    folder = launch(
        [window(ms={"draft": 0.5, "verify": 8.0})], launch_json='{"versions": {"sglang": "0.5.13"}}'
    )
    found = profiled(folder)
    assert (
        found["sources"]["device_timer"]["why"]["extend_ms"] == "SGLang 0.5.13 does not time it (from 0.5.16)"
    )


def test_a_cpu_has_spans_scaled_by_the_profilers_stretch(launch):
    off = window(source=None, why="no CUDA events", ms={})
    found = profiled(launch([off], [one_pass()], trace(kernels=False)))
    assert found["sources"]["device_timer"]["why"]["verify_ms"] == "no CUDA events"
    assert found["sources"]["trace"]["kind"] == "spans"
    assert found["sources"]["trace"]["verify_ms"] == pytest.approx(11.4)
    assert found["best"]["verify_ms"] == {"value": pytest.approx(7.6), "source": "trace_scaled", "why": None}
    assert found["not_in_any_stage"]["value_ms"] == pytest.approx(10 - 0.4 - 7.6 - 0.72)


def test_a_scaled_span_keeps_its_share_of_every_pass(launch):
    passes = [one_pass(), one_pass(repeat=2, cycle_ms=12.0)]
    rows = profiled(launch([], passes, trace(kernels=False)))["windows"]
    assert [row["verify_ms"] / row["cycle_ms"] for row in rows] == pytest.approx([0.76, 0.76])


def test_spans_longer_than_their_cycle_are_not_scaled(launch):
    """Uneven cycles: the median span is of a slow one, the median distance of a fast one."""
    found = trace(kernels=False, steps=0)
    for event in found["traceEvents"]:
        event["dur"] = 16_000.0
    fields = profiled(launch([], [one_pass(tokens_per_cycle=1.0)], found), steps=0)
    assert "sum to 16 ms in cycles of 15 ms: too uneven" in fields["best"]["decode_ms"]["why"]
    assert fields["not_in_any_stage"]["value_ms"] is None
    assert fields["windows"][0]["other_ms"] is None


def test_rows_are_of_their_own_pass(launch):
    windows = [
        window(),
        window(repeat=2, ms=MS | {"verify": 9.0}),
        window(concurrency=4, ms=MS | {"verify": 12.0}),
    ]
    passes = [one_pass(), one_pass(repeat=2, cycle_ms=11.0), one_pass(4, 1, cycle_ms=14.0)]
    rows = profiled(launch(windows, passes, trace()))["windows"]
    assert [(r["concurrency"], r["repeat"], r["verify_ms"]) for r in rows] == [
        (1, 1, 8.0),
        (1, 2, 9.0),
        (4, 1, 12.0),
    ]
    assert rows[2]["other_ms"] == pytest.approx(14 - 0.5 - 12 - 0.7)
    without = profiled(launch([], passes, trace()))["windows"]
    assert without[0]["verify_ms"] == pytest.approx(6.84)
    assert without[2]["verify_ms"] is None, "the profiler pass ran at one stream"


def test_capture_off_failed_or_damaged_costs_only_the_trace(launch):
    found = profiled(launch([window()]))
    assert found["trace"] is None
    assert "capture is off" in found["sources"]["trace"]["why"]["verify_ms"]
    assert found["profiler"]["stretch"] is None
    folder = launch([window()], found=trace(), capture="failed")
    assert "failed" in profiled(folder)["communication"]["why"]
    folder = launch([window()], found=trace())
    file = folder / "trace" / "1-TP-0.trace.json.gz"
    file.write_bytes(file.read_bytes()[:-20])
    found = profiled(folder)
    assert "cut short" in found["profiler"]["why"]
    assert found["best"]["verify_ms"]["source"] == "device_timer"
    file.unlink()
    assert "No such file" in profiled(folder)["sources"]["trace"]["why"]["verify_ms"]


def test_a_launch_without_stages_or_requests_file(launch):
    folder = launch(None)
    (folder / "requests.jsonl").unlink()
    found = profiled(folder)
    assert found["best"]["verify_ms"]["value"] is None
    assert found["not_in_any_stage"]["why"] == "nothing to sum"
    assert found["comparisons"] == [c for c in found["comparisons"] if c["b"] == "server"]


def test_the_cycle_timer_fills_what_the_stage_timer_lacks(launch):
    lines = [{"event": "hooks", "worker": "v1", "attached": ["draft"], "missing": ["a.b.c"]}]
    lines += [
        {"event": "cycle", "t": t, "draft_ms": 0.5, "verify_ms": v, "extend_ms": 0.7, "cycle_ms": c}
        for t, v, c in (
            (99.0, 500.0, 500.0),  # warm-up
            (101.0, 8.0, None),
            (102.0, 8.2, 10.0),
            (103.0, 30.0, 10.4),
            (120.0, 500.0, 500.0),  # under the profiler
        )
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines) + '{"event": "cyc'
    timed = window(ms={"verify": 8.0}, from_epoch_s=100.0, to_epoch_s=110.0)
    folder = launch([timed], instances__0123456789ab__cycles_77_jsonl="")
    (folder / "instances" / "0123456789ab" / "cycles.77.jsonl").write_text(text)
    found = profiled(folder)
    timer = found["sources"]["cycle_timer"]
    assert (timer["verify_ms"], timer["cycle_ms"], timer["cycles"]) == (8.2, pytest.approx(10.2), 3)
    assert timer["problems"] == ["hook did not attach: a.b.c"]
    assert found["best"]["draft_ms"] == {"value": 0.5, "source": "cycle_timer", "why": None}
    assert found["best"]["verify_ms"]["source"] == "device_timer"
    assert ("cycle_ms", "cycle_timer") in {(c["quantity"], c["b"]) for c in found["comparisons"]}


def test_no_pass_that_passed_is_bad_input(launch):
    folder = launch([window()], [one_pass(status="failed")])
    with pytest.raises(BadInput, match="no timed pass"):
        profile(folder, 2)


def test_the_stage_timer_is_compared_with_the_replay_that_it_stands_around(launch):
    found = trace()
    graph = {"ph": "X", "pid": 0, "tid": 7, "cat": "kernel", "name": "k", "dur": 100.0}
    spans = [e for e in found["traceEvents"] if e["cat"] == "gpu_user_annotation" and e["name"] == "draft"]
    for i, span in enumerate(spans, start=1):
        args = {"stream": 7, "correlation": 100 + i}
        found["traceEvents"] += [graph | {"ts": span["ts"] + at, "args": args} for at in (0.0, 370.0)]
    compared = {
        (c["quantity"], c["b"]): c for c in profiled(launch([window()], [one_pass()], found))["comparisons"]
    }
    # 0.47 ms from the graph's first kernel to its last, against 0.5 ms by the timer.
    assert compared["draft_ms", "trace"]["b_value"] == pytest.approx(0.47)
    assert "graph" in compared["draft_ms", "trace"]["note"]
    assert "gaps grow" in compared["verify_ms", "trace"]["note"], "no graph is known of it"


def test_damaged_lines_cost_no_more_than_themselves(launch):
    good = {"event": "cycle", "t": 5.0, "verify_ms": 3.0, "cycle_ms": 4.0}
    lines = [good, {"event": "cycle", "verify_ms": 99.0}, good | {"verify_ms": "x"}, [1], good | {"t": 50.0}]
    cycles = "".join(json.dumps(line) + "\n" for line in lines) + '{"event": "cyc'
    windows = [window(from_epoch_s=1.0, to_epoch_s=9.0)]
    files = {"instances__0123456789ab__cycles.7.jsonl": cycles}
    folder = launch(windows, [one_pass()], requests=[request()], **files)
    (folder / "requests.jsonl").write_text((folder / "requests.jsonl").read_text() + 'null\n7\n{"phase": "ti')
    found = profiled(folder)
    assert (found["sources"]["cycle_timer"]["verify_ms"], found["sources"]["cycle_timer"]["cycles"]) == (
        3.0,
        2,
    )
    assert found["acceptance"]["cycles"] == 50
