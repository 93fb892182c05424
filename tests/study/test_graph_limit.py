"""A concurrency beyond the largest captured batch, which the gate of every launch would refuse."""

import pytest

from quietgate.errors import BadConfig
from quietgate.study import Study


@pytest.mark.parametrize(
    ("args", "refused"),
    [
        ({"cuda-graph-max-bs": 2}, "cuda-graph-max-bs 2"),
        ({"cuda-graph-bs": [1, 2, 4]}, "cuda-graph-bs 4"),
        ({"cuda_graph_max_bs_decode": 4}, "cuda-graph-max-bs-decode 4"),
        ({"cuda-graph-max-bs": 8}, None),
        ({"cuda-graph-max-bs": 2, "cuda-graph-bs": [1, 8]}, None),  # the list holds, as for the gate
        ({"cuda-graph-max-bs": 8, "cuda-graph-bs": [1, 4]}, "cuda-graph-bs 4"),
        ({"cuda-graph-max-bs": 2, "disable-cuda-graph": True}, None),
        ({"cuda-graph-max-bs": 2, "device": "cpu"}, None),
        ({}, None),
    ],
)
def test_concurrency_against_the_captured_batches(base, args, refused):
    base["server"]["args"] |= args
    base["benchmark"] = {"concurrency": [1, 8]}
    if refused is None:
        assert Study.from_config(base, "my.yaml").cells
        return
    with pytest.raises(BadConfig, match=f"benchmark.concurrency: 8 is more than server.args.{refused}"):
        Study.from_config(base, "my.yaml")


def test_an_axis_over_the_flag_decides(base):
    base["server"]["args"]["cuda-graph-max-bs"] = 2
    base["benchmark"] = {"concurrency": [8]}
    base["grid"]["axes"] = {"graphs": {"flag": "cuda-graph-max-bs", "values": [8, 16]}}
    assert Study.from_config(base, "my.yaml").cells
