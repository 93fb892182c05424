"""What NCCL would silently misread is found before it runs."""

from __future__ import annotations

import pytest

from quietgate.study import nccl_variables as nccl


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_PROTO", "LL"),
        ("NCCL_PROTO", "ll,Simple"),
        ("NCCL_PROTO", "^LL128"),
        ("NCCL_ALGO", "Ring"),
        ("NCCL_ALGO", "ring;allreduce:tree;broadcast:ring"),
        ("NCCL_ALGO", "ring,tree;allreduce:tree"),
        ("NCCL_P2P_LEVEL", "SYS"),
        ("NCCL_P2P_LEVEL", "4"),
        ("NCCL_BUFFSIZE", "16777216"),
        ("NCCL_BUFFSIZE", "0x1000000"),
        ("NCCL_NTHREADS", "512"),
        ("NCCL_LL128_NTHREADS", "640"),
        ("NCCL_MAX_NCHANNELS", "16"),
        ("NCCL_CUMEM_ENABLE", ""),
        ("NCCL_DEBUG", "info"),
        ("NCCL_SOCKET_IFNAME", "^docker0"),
        ("NCCL_IB_HCA", "=mlx5_0:1"),
        ("NCCL_GRAPH_FILE", "/nowhere/graph.xml"),  # may exist where the study runs
        ("NCCL_VERSION", "2.28.3-1"),  # an image's label, not a variable of NCCL
        ("NCCL_OFI_DISABLE", "yes"),
        ("SGLANG_NCCL_SO_PATH", "16M"),
        ("PATH", "x"),
    ],
)
def test_good_values_pass(name: str, value: str) -> None:
    assert nccl.problems(name, value) == []


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("NCCL_PROT", "LL", "did you mean NCCL_PROTO"),
        ("NCCL_PROTOCOL", "LL", "did you mean NCCL_PROTO"),
        ("NCCL_ALGORITHM", "Ring", "did you mean NCCL_ALGO"),
        ("nccl_proto", "LL", "did you mean NCCL_PROTO"),
        ("NCCL-PROTO", "LL", "did you mean NCCL_PROTO"),
        ("NCCL_BUFFER_SIZE", "1", "did you mean NCCL_BUFFSIZE"),
        ("NCCL_MAX_CHANNELS", "1", "did you mean NCCL_MAX_NCHANNELS"),
        ("NCCL_TREE_THRESHOLD", "0", "no more since 2.5"),
        ("NCCL_BUFFSIZE", "16M", "reads it as 16 "),
        ("NCCL_BUFFSIZE", "0", "no buffer size"),
        ("NCCL_IB_DISABLE", "true", "reads it as 0 "),
        ("NCCL_CUMEM_ENABLE", "010", "reads it as 8 "),
        ("NCCL_MAX_NCHANNELS", "1.5", "reads it as 1 "),
        ("NCCL_MAX_NCHANNELS", "0", "outside 1 to 64"),
        ("NCCL_MAX_NCHANNELS", "128", "outside 1 to 64"),
        ("NCCL_NTHREADS", "500", "uses 512 instead"),
        ("NCCL_NTHREADS", "32", "uses 64 instead"),
        ("NCCL_NTHREADS", "1024", "uses 512 instead"),
        ("NCCL_LL128_NTHREADS", "128", "uses 160 instead"),
        ("NCCL_P2P_LEVEL", "sys", "write SYS"),
        ("NCCL_P2P_LEVEL", "NODE", "ignored without a word"),
        ("NCCL_PROTO", "LL256", "refuses to start"),
        ("NCCL_PROTO", "LL, Simple", "' Simple'"),
        ("NCCL_ALGO", "allreduces:tree", "no collective"),
        ("NCCL_DEBUG", "DEBUG", "log nothing"),
        ("NCCL_CONF_FILE", "~/nccl.conf", "does not expand"),
    ],
)
def test_misread_values_are_named(name: str, value: str, says: str) -> None:
    problems = nccl.problems(name, value)
    assert len(problems) == 1
    assert says in problems[0]


def test_a_missing_file_is_told_apart(tmp_path) -> None:
    graph = tmp_path / "graph.xml"
    assert "initialisation fails" in (nccl.missing_file("NCCL_GRAPH_FILE", str(graph)) or "")
    graph.write_text("<graphs/>")
    assert nccl.missing_file("NCCL_GRAPH_FILE", str(graph)) is None
    assert nccl.missing_file("NCCL_PROTO", "/nowhere") is None


@pytest.mark.parametrize(
    ("name", "value", "left"),
    [
        ("NCCL_PROTO", "LL", {"LL"}),
        ("NCCL_PROTO", "^LL128", {"LL", "Simple"}),
        ("NCCL_PROTO", "Simple;allreduce:ll", {"LL"}),
        ("NCCL_PROTO", "broadcast:LL", {"LL", "LL128", "Simple"}),
        ("NCCL_ALGO", "ring,TREE", {"Ring", "Tree"}),
    ],
)
def test_what_a_list_leaves_to_all_reduce(name: str, value: str, left: set[str]) -> None:
    assert nccl.allowed_choices(name, value) == left


def test_every_text_variable_is_known() -> None:
    assert nccl.TEXT <= nccl.NAMES
    assert {"NCCL_PROTO", "NCCL_NVLS_ENABLE", "NCCL_MULTI_RANK_GPU_ENABLE"} <= nccl.NAMES
