"""What a profile changes where it acts: verify, and NCCL's transfer in it."""

import pytest

from draw import synthetic
from draw.conftest import made, material
from quietgate.draw import transfer
from quietgate.draw.drawn import NotDrawn
from quietgate.draw.style import house_style

MOVED = {"untuned": 0.5, "tuned": 0.12}


def drawn(root, **changes):
    study, outcome = made(root, synthetic.config([0, 2], concurrency=(1, 8)), **changes)
    with house_style():
        return transfer.transfer(material(root, study, outcome))


def test_both_are_drawn_with_intervals_at_the_profiled_streams(tmp_path):
    figure = drawn(tmp_path, transfer=MOVED)
    cells = figure.frame[figure.frame["kind"] == "cell"]
    assert set(cells["metric"]) == {"target_ms", "nccl_transfer_ms"}
    assert set(cells["concurrency"]) == {1}
    moved = cells[cells["metric"] == "nccl_transfer_ms"]
    for row in moved.to_dict("records"):
        assert row["value"] == pytest.approx(MOVED[row["nccl"]], rel=0.02)
        assert row["low"] < row["value"] < row["high"]
    target = cells[cells["metric"] == "target_ms"].set_index("cell")["value"]
    assert target["steps-0_nccl-tuned"] == pytest.approx(synthetic.DECODE_MS["tuned"], rel=0.05)
    assert target["steps-2_nccl-tuned"] > target["steps-0_nccl-tuned"]
    assert "from SGLang's stage timer" in figure.caption


def test_a_cell_without_collectives_did_not_fail(tmp_path):
    frame = drawn(tmp_path, transfer={"tuned": 0.12}).frame
    moved = frame[(frame["metric"] == "nccl_transfer_ms") & (frame["kind"] == "cell")]
    assert set(moved["nccl"]) == {"tuned"}
    assert set(frame[frame["metric"] == "target_ms"]["nccl"]) == {"tuned", "untuned"}


def test_without_nccl_there_is_nothing_to_draw(tmp_path):
    with pytest.raises(NotDrawn, match="no trace has collectives of NCCL"):
        drawn(tmp_path)
