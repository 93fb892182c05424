"""Prometheus readings, their difference, and the window of a timed pass."""

from __future__ import annotations

import http.server
import threading

import pytest

from quietgate.inspect import metrics
from quietgate.measure import stages

TIMER = "sglang:forward_execution_seconds_total"
PASSES = "sglang:cuda_graph_passes_total"


def text(ranks, passes, mode="decode_cuda_graph", engine=()):
    """A reading of /metrics: seconds by category for each rank, decode passes, engine counters."""
    lines = [f"# TYPE {TIMER} counter"]
    for rank, categories in ranks.items():
        labels = f'tp_rank="{rank}",pp_rank="0",moe_ep_rank="0",model_name="m, \\"x\\""'
        lines += [f'{TIMER}{{category="{c}",{labels}}} {s}' for c, s in categories.items()]
        lines.append(f'{PASSES}{{mode="{mode}",{labels}}} {passes}')
        lines.append(f'{PASSES}{{mode="prefill_none",{labels}}} 3')
    lines += [f'{name}{{model_name="m"}} {value}' for name, value in engine]
    return "\n".join(lines) + "\n"


def reading(*args, **kwargs):
    return metrics.parse(text(*args, **kwargs))


BEFORE = {
    0: {"eagle_draft": 1.0, "target_verify": 10.0, "extend": 5.0},
    1: {"eagle_draft": 1.0, "target_verify": 8.0, "extend": 5.0},
}
AFTER = {
    0: {"eagle_draft": 1.2, "target_verify": 12.0, "eagle_draft_extend": 0.4, "extend": 5.5},
    1: {"eagle_draft": 1.1, "target_verify": 9.0, "eagle_draft_extend": 0.2, "extend": 5.5},
}


def test_window_is_what_grew_by_rank_and_their_median():
    engine = [("sglang:spec_verify_calls_total", 100), ("sglang:generation_tokens_total", 300)]
    later = [("sglang:spec_verify_calls_total", 195), ("sglang:generation_tokens_total", 500)]
    found = stages.window(reading(BEFORE, 50, engine=engine), reading(AFTER, 150, engine=later), 2.5, 4, 2)
    assert (found["concurrency"], found["repeat"], found["wall_s"]) == (4, 2, 2.5)
    assert (found["source"], found["why"], found["problems"]) == ("device_timer", None, [])
    assert found["seconds"] == pytest.approx(
        {"eagle_draft": 0.15, "target_verify": 1.5, "eagle_draft_extend": 0.3, "extend": 0.5}
    )
    assert found["passes"] == {"decode_cuda_graph": 100, "prefill_none": 0}
    # SGLang's `extend` is prefill and belongs to no cycle; our extend is the draft's catch-up.
    assert found["ms_per_pass"] == pytest.approx({"draft": 1.5, "verify": 15.0, "extend": 3.0})
    assert found["seconds_by_rank"]["TP1"]["target_verify"] == pytest.approx(1.0)
    assert found["counters"]["spec_verify_calls"] == 95
    assert found["counters"]["generation_tokens"] == 200
    assert found["counters"]["cached_tokens"] is None


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ((AFTER, 150), (BEFORE, 50), "went backwards"),
        ((BEFORE, 50), ({0: AFTER[0]}, 150), "TP1 are gone"),
        (({0: {}}, 50), ({0: {}}, 150), "SGLANG_ENABLE_METRICS_DEVICE_TIMER"),
        ((BEFORE, 50), (BEFORE, 50), "did not advance"),
    ],
)
def test_no_window_without_a_reason(before, after, says):
    found = stages.window(reading(*before), reading(*after), 1.0, 1, 1)
    assert found["source"] is None
    assert says in found["why"]
    assert found["seconds"] == {}


def test_eager_decode_is_named():
    before, after = reading(BEFORE, 0, mode="decode_none"), reading(AFTER, 100, mode="decode_none")
    found = stages.window(before, after, 1.0, 1, 1)
    assert found["source"] == "device_timer"
    assert "100 decode passes ran without a CUDA graph" in found["problems"][0]


def test_ranks_with_different_passes_are_divided_each_by_its_own():
    ranks = {
        0: ({"decode": 1.0}, 100),
        1: ({"decode": 4.0}, 200),
    }
    lines = "".join(text({rank: seconds}, passes) for rank, (seconds, passes) in ranks.items())
    found = stages.window(metrics.Snapshot(), metrics.parse(lines), 1.0, 1, 1)
    assert found["ms_per_pass"] == pytest.approx({"decode": 15.0})


def test_a_record_has_a_source_or_a_reason():
    good = stages.window(reading(BEFORE, 50), reading(AFTER, 150), 1.0, 1, 1)
    none = stages.window(metrics.Snapshot(why="off"), metrics.Snapshot(why="off"), 1.0, 1, 2)
    assert stages.record([none])["why"] == "off"
    assert stages.record([good, none]) == {"source": "device_timer", "why": None, "windows": [good, none]}
    assert stages.record([])["source"] is None


@pytest.mark.parametrize(
    ("version", "stage", "has"),
    [
        ("0.5.10", "verify", False),
        ("0.5.11", "draft", False),
        ("0.5.12.post1", "draft", True),
        ("0.5.15", "extend", False),
        ("0.5.16", "extend", True),
        ("v0.6.0rc1", "extend", True),
        (None, "draft", None),
        ("main", "draft", None),
    ],
)
def test_what_each_releases_timer_has(version, stage, has):
    assert metrics.timer_has(stage, version) is has


@pytest.fixture
def served():
    """A server that answers /metrics with whatever `served.answer` holds."""

    class Handler(http.server.BaseHTTPRequestHandler):
        answer: tuple[int, str] = (200, "")

        def do_GET(self):
            status, content = type(self).answer
            self.send_response(status)
            self.end_headers()
            self.wfile.write(content.encode())

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    Handler.url = f"http://127.0.0.1:{server.server_port}"
    yield Handler
    server.shutdown()
    thread.join()
    server.server_close()


def test_snapshot_reads_now_and_never_raises(served, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    served.answer = (200, text(AFTER, 100))
    found = stages.snapshot(served.url)
    assert found.why is None
    assert metrics.stage_seconds(found)[
        metrics.rank_of(frozenset({("tp_rank", "0"), ("pp_rank", "0"), ("moe_ep_rank", "0")}))
    ]
    for answer, says in (
        ((404, "Not Found"), "without --enable-metrics"),
        ((200, "<html>"), "Prometheus"),
        ((200, ""), "empty"),
    ):
        served.answer = answer
        assert says in stages.snapshot(served.url).why
    assert "no answer" in stages.snapshot("http://127.0.0.1:9", timeout_s=2).why
