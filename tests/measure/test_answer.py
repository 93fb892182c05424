import pytest

from quietgate.measure.answer import Answer, record, timings


def answer(chunk_s, totals, **meta):
    return Answer(
        chunk_s=chunk_s,
        chunk_total=totals,
        end_s=chunk_s[-1] if chunk_s else 0.0,
        meta={"completion_tokens": totals[-1] if totals else 0, **meta},
    )


def test_numbers_of_a_speculative_answer():
    got = timings(answer([0.1, 0.2, 0.3, 0.5], [1, 3, 4, 7], spec_verify_ct=3, spec_x=1))
    assert got["ttft_s"] == 0.1
    assert got["chunk_tokens"] == [1, 2, 1, 3]
    assert got["decode_tokens_per_s"] == pytest.approx(6 / 0.4)
    assert got["request_tokens_per_s"] == pytest.approx(7 / 0.5)
    assert got["tokens_per_cycle"] == pytest.approx(2.0)
    assert got["cycle_ms"] == pytest.approx(1000 * 0.4 / 3)
    assert got["spec"] == {"spec_verify_ct": 3, "spec_x": 1}


def test_without_speculation_a_cycle_is_one_token():
    got = timings(answer([0.1, 0.2, 0.4], [2, 3, 6]))
    assert got["tokens_per_cycle"] == 1.0
    assert got["spec_verify_ct"] is None
    assert got["cycle_ms"] == pytest.approx(1000 * 0.3 / 4)  # six tokens, two with the first chunk


def test_chunks_without_tokens_do_not_count_as_ends():
    got = timings(answer([0.05, 0.1, 0.2, 0.9], [0, 1, 5, 5]))
    assert (got["ttft_s"], got["decode_s"]) == (0.1, pytest.approx(0.1))
    assert got["decode_tokens_per_s"] == pytest.approx(40)
    assert got["chunk_tokens"] == [0, 1, 4, 0]


@pytest.mark.parametrize("got", [answer([0.1], [9]), answer([0.1, 0.1], [1, 9]), answer([0.1, 0.2], [4, 4])])
def test_no_decode_speed_without_two_chunks_apart(got):
    assert timings(got)["decode_tokens_per_s"] is None
    assert timings(got)["cycle_ms"] is None


def test_a_failed_answer_still_has_every_field():
    whole = record(answer([0.1, 0.2], [1, 2]), phase="timed", concurrency=1, repeat=1, began_s=0.0)
    failed = record(Answer(error="x"), phase="timed", concurrency=1, repeat=1, began_s=0.0)
    assert whole.keys() == failed.keys()
    assert failed["ok"] is False
    assert failed["ttft_s"] is None
