"""NCCL's log in the wording of 2.18 to 2.30, alone, in several files, and among lines of others."""

# ruff: noqa: E501 - log lines stand as NCCL writes them
from __future__ import annotations

import json
from pathlib import Path

import pytest

from quietgate.errors import BadInput
from quietgate.inspect import nccl

INIT = (
    "ncclCommInitRank comm 0x1c4d rank {rank} nranks 2 cudaDev {rank} nvmlDev {rank} busId 60 commId 0xda8a"
)
MATRIX = (
    "Enabled NCCL Func/Proto/Algo Matrix:\n"
    "     Function |       LL     LL128    Simple   |          Tree           Ring  CollNetDirect   CollNetChain           NVLS       NVLSTree            PAT  \n"
    "    AllReduce |        1         0         2   |             0              1              0              0              0              0              0  \n"
)


def rank_log(
    rank: int = 0, variables: tuple[str, ...] = (), more: tuple[str, ...] = (), via: str = "P2P/CUMEM"
) -> str:
    said = [
        "NCCL version 2.28.9+cuda13.0",
        INIT.format(rank=rank) + " - Init START",
        *variables,
        f"Channel 00/08 : 0 1\nx:1:1 [{rank}] NCCL INFO Channel 00/0 : {rank}[{rank}] -> {1 - rank}[{1 - rank}] via {via}",
        "8 coll channels, 8 collnet channels, 0 nvls channels, 8 p2p channels, 2 p2p channels per peer",
        INIT.format(rank=rank) + " - Init COMPLETE",
        *more,
    ]
    return "".join(f"node7:71{rank}:71{rank} [{rank}] NCCL INFO {line}\n" for line in said)


def read(tmp_path: Path, *texts: str) -> dict:
    paths = []
    for i, text in enumerate(texts):
        paths.append(tmp_path / f"nccl.{i}.log")
        paths[-1].write_text(text)
    told = nccl.read(paths)
    json.dumps(told, allow_nan=False)
    return told


def test_variables_integers_lose_their_dot_and_texts_keep_theirs(tmp_path):
    told = read(
        tmp_path,
        rank_log(
            variables=(
                "NCCL_BUFFSIZE set by environment to 16777216.",
                "NCCL_CUMEM_ENABLE set by environment to 0.",
                "NCCL_MIN_NCHANNELS set by environment to -2.",
                "NCCL_PROTO set by environment to LL",
                "NCCL_ALGO set by environment to ring,tree;allreduce:tree",
                "NCCL_TOPO_DUMP_FILE set by environment to topo.v1.xml",
                "NET/IB : NCCL_IB_HCA set to mlx5_0",
            )
        ),
    )
    assert told["set_by_environment"] == {
        "NCCL_BUFFSIZE": "16777216",
        "NCCL_CUMEM_ENABLE": "0",
        "NCCL_MIN_NCHANNELS": "-2",
        "NCCL_PROTO": "LL",
        "NCCL_ALGO": "ring,tree;allreduce:tree",
        "NCCL_TOPO_DUMP_FILE": "topo.v1.xml",
        "NCCL_IB_HCA": "mlx5_0",
    }
    assert told["maybe_set_by_sglang"] == ["NCCL_CUMEM_ENABLE"]


def test_ranks_in_several_files(tmp_path):
    told = read(
        tmp_path,
        rank_log(0, ("NCCL_PROTO set by environment to LL",)),
        rank_log(1, ("NCCL_PROTO set by environment to Simple",)),
    )
    assert (told["ranks"], told["world_size"], told["init_complete_count"]) == ([0, 1], 2, 2)
    assert told["versions"] == ["2.28.9+cuda13.0"]
    assert told["channels"] == 8
    assert told["transports"] == {"P2P/CUMEM": 2}
    assert told["conflicting_values"] == {"NCCL_PROTO": ["LL", "Simple"]}
    assert [f["set_by_environment"]["NCCL_PROTO"] for f in told["files"]] == ["LL", "Simple"]
    assert told["failure"] is None


@pytest.mark.parametrize(
    ("logged", "kind"),
    [
        ("P2P/CUMEM", "P2P/CUMEM"),
        ("P2P/IPC", "P2P/IPC"),
        ("P2P/direct pointer", "P2P/direct"),
        ("SHM/direct/direct", "SHM/direct/direct"),
        ("NET/Socket/0", "NET/Socket"),
        ("NET/IB/3/GDRDMA", "NET/IB/GDRDMA"),
        ("NET/AWS Libfabric/2/GDRDMA/Shared", "NET/AWS Libfabric/GDRDMA/Shared"),
        ("NET/My RDMA Plugin v8/0(3)", "NET/My RDMA Plugin v8"),
        ("NET/AWS Libfabric/1 comm 0x7f2a nRanks 08", "NET/AWS Libfabric"),
        ("P2P/IPC comm 0x7f2a nRanks 02", "P2P/IPC"),
        ("P2P/indirect/3[c6000] comm 0x7f2a nRanks 08", "P2P/indirect"),
        ("direct shared memory comm 0x7f2a nRanks 02", "direct shared memory"),
    ],
)
def test_transports(tmp_path, logged, kind):
    assert list(read(tmp_path, rank_log(via=logged))["transports"]) == [kind]


@pytest.mark.parametrize(
    ("line", "choice"),
    [
        (
            "AllReduce: 16384 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}",
            ("AllReduce", 16384, "RING", "LL", 2),
        ),
        ("AllReduce: 16384 Bytes -> Algo 1 proto 2 time 12.3", ("AllReduce", 16384, "RING", "SIMPLE", None)),
        (
            "Broadcast:    32768 Bytes -> Algo 1 proto 2 time 0.0",
            ("Broadcast", 32768, "RING", "SIMPLE", None),
        ),
        ("16384 Bytes -> Algo 0 proto 0 time 12.3", (None, 16384, "TREE", "LL", None)),
        (
            "AllGather: 8 Bytes -> Algo NVLS proto SIMPLE channel{Lo..Hi}={0..0}",
            ("AllGather", 8, "NVLS", "SIMPLE", 1),
        ),
        (
            "AllReduce [Symmetric]: 8192 Bytes -> Kernel AllReduce_AGxLL_R nchannels 4 nthreads 512",
            ("AllReduce", 8192, "SYMMETRIC:AllReduce_AGxLL_R", None, 4),
        ),
    ],
)
def test_choices_in_every_wording(tmp_path, line, choice):
    told = read(tmp_path, rank_log(more=(line, line)))
    (found,) = told["choices"]
    assert tuple(found.values()) == (*choice, 2)
    assert told["algorithms"] == [choice[2]]
    assert told["protocols"] == ([choice[3]] if choice[3] else [])


def test_the_matrix_of_what_is_enabled(tmp_path):
    told = read(tmp_path, rank_log(more=(MATRIX.rstrip("\n"),)))
    assert told["enabled"] == {"AllReduce": {"protocols": ["LL", "Simple"], "algorithms": ["Ring"]}}


def test_a_kernels_name_proves_no_protocol(tmp_path):
    text = rank_log() + "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)\n"
    told = read(tmp_path, text)
    assert told["protocols"] == []
    assert told["algorithms"] == []


def test_invalid_values_and_plugins(tmp_path):
    told = read(
        tmp_path,
        rank_log(
            variables=(
                "Invalid NCCL_NTHREADS 500 (must be a multiple of 32)",
                "TUNER/Plugin: Could not find: libnccl-tuner.so",
                "NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.",
            )
        ),
    )
    assert told["invalid_values"] == ["Invalid NCCL_NTHREADS 500 (must be a multiple of 32)"]
    assert told["plugins"]["tuner"].startswith("Could not find")
    assert told["tuner_plugin"] is None
    loaded = read(tmp_path, rank_log(variables=("TUNER/Plugin: Using tuner plugin nccl_ofi_tuner",)))
    assert loaded["tuner_plugin"] == "Using tuner plugin nccl_ofi_tuner"


def test_lines_of_others_between(tmp_path):
    mixed = ""
    for line in rank_log(variables=("NCCL_PROTO set by environment to LL",)).splitlines(keepends=True):
        mixed += "[2026-11-29 12:00:00 TP0] Init torch distributed begin.\n" + line
    mixed += "node7:1:1 [1] NCCL INFO node7:2:2 [0] NCCL INFO NCCL_ALGO set by environment to Ring\n"
    told = read(tmp_path, mixed)
    assert told["set_by_environment"] == {"NCCL_PROTO": "LL", "NCCL_ALGO": "Ring"}
    assert told["ranks"] == [0]


def test_init_complete_is_no_success(tmp_path):
    late = "[rank1]:[E909 ProcessGroupNCCL.cpp:2252] [PG ID 2 Rank 1]  failure detected by watchdog at work sequence id: 40231\n"
    told = read(tmp_path, rank_log(), late + rank_log(1))
    assert told["failure"]["class"] == "nccl_timeout"
    assert told["failure"]["file"] == "nccl.1.log"


def test_a_refused_value_is_the_failure(tmp_path):
    told = read(
        tmp_path,
        "node7:1:1 [0] graph/tuning.cc:12 NCCL WARN Unrecognized element token 'LK' when parsing 'LK'\n",
    )
    assert told["failure"]["class"] == "nccl_init"
    assert told["invalid_values"]


def test_an_absent_line_of_an_excerpt_proves_nothing(tmp_path):
    told = read(tmp_path, "node7:1:1 [0] NCCL INFO NCCL version 2.25.1+cuda12.2\n")
    assert told["set_by_environment"] == {}
    assert "proves nothing" in told["warnings"][0]


def test_version_alone_and_several_versions(tmp_path):
    assert read(tmp_path, "NCCL version 2.30.7+cuda13.0\n")["versions"] == ["2.30.7+cuda13.0"]
    told = read(tmp_path, "NCCL version 2.18.1+cuda11.0\n" + rank_log())
    assert told["versions"] == ["2.18.1+cuda11.0", "2.28.9+cuda13.0"]
    assert "several NCCL versions" in told["warnings"][0]


def test_no_line_of_nccl(tmp_path):
    with pytest.raises(BadInput, match="no line of NCCL"):
        read(tmp_path, "hello\n")
    with pytest.raises(BadInput, match="name one or more"):
        nccl.read([])


def choices(tmp_path: Path, *lines: str) -> dict:
    return read(tmp_path, rank_log(more=lines))


LL = "AllReduce: {} Bytes -> Algo RING proto LL channel{{Lo..Hi}}={{0..0}}"
SIMPLE = "AllReduce: {} Bytes -> Algo RING proto SIMPLE channel{{Lo..Hi}}={{0..3}}"


def test_profiles_that_serve_every_size_alike(tmp_path):
    a = choices(tmp_path, LL.format(1024), LL.format(2048), LL.format(2048))
    b = choices(tmp_path, LL.format(2048), LL.format(1024))
    told = nccl.compare_choices(a, b)
    assert told["same"] is True
    assert [e["bytes"] for e in told["alike"]] == [1024, 2048]


def test_profiles_that_differ_and_only_on_large_messages(tmp_path):
    a = choices(tmp_path, LL.format(1024), LL.format(1 << 20), LL.format(7))
    b = choices(tmp_path, LL.format(1024), SIMPLE.format(1 << 20))
    told = nccl.compare_choices(a, b)
    assert told["same"] is False
    assert told["different"] == [
        {"collective": "AllReduce", "bytes": 1 << 20, "a": [["RING", "LL", 1]], "b": [["RING", "SIMPLE", 4]]}
    ]
    assert [e["bytes"] for e in told["only_a"]] == [7]
    assert nccl.compare_choices(a, b, largest_bytes=4096)["same"] is True
    assert nccl.compare_choices(a["choices"], b["choices"])["same"] is False


def test_profiles_without_a_size_in_common(tmp_path):
    told = nccl.compare_choices(choices(tmp_path, LL.format(1)), choices(tmp_path))
    assert told["same"] is None


@pytest.mark.parametrize("key", ["log", "message", "textPayload"])
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_lines_in_a_shippers_json(tmp_path, key, separators):
    variables = ("NCCL_PROTO set by environment to LL", "NCCL_BUFFSIZE set by environment to 16777216.")
    lines = [
        json.dumps({key: line + "\n", "stream": "stdout"}, separators=separators)
        for line in rank_log(0, variables).splitlines()
    ]
    told = read(tmp_path, "\n".join(lines))
    assert told["set_by_environment"] == {"NCCL_PROTO": "LL", "NCCL_BUFFSIZE": "16777216"}
    assert told["transports"] == {"P2P/CUMEM": 1}


def test_a_value_with_blanks_and_words_in_somebodys_text(tmp_path):
    told = read(
        tmp_path,
        "We saw NCCL_PROTO set by environment to Simple in the docs.\n"
        + rank_log(0, ("NCCL_TOPO_FILE set by environment to /my topo/x.xml",))
        + "NCCL_ALGO set by environment to Ring\n",
    )
    assert told["set_by_environment"] == {"NCCL_TOPO_FILE": "/my topo/x.xml", "NCCL_ALGO": "Ring"}


@pytest.mark.parametrize(
    ("last", "variables", "choices"),
    [
        ("NCCL_BUFFSIZE set by environment to 1677", {}, 0),
        ("NCCL_BUFFSIZE set by environment to 16777216.", {"NCCL_BUFFSIZE": "16777216"}, 0),
        ("AllReduce: 8 Bytes -> Algo RING proto LL", {}, 0),
        ("AllReduce: 8 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..1", {}, 0),
        ("AllReduce: 8 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..15}", {}, 1),
    ],
)
def test_what_the_files_end_cuts_is_no_value(tmp_path, last, variables, choices):
    told = read(tmp_path, rank_log() + f"node7:710:710 [0] NCCL INFO {last}")
    assert told["set_by_environment"] == variables
    assert len(told["choices"]) == choices


def test_p2p_disable_has_no_dot(tmp_path):
    told = read(tmp_path, rank_log(0, ("NCCL_P2P_DISABLE set by environment to 1",)))
    assert told["set_by_environment"] == {"NCCL_P2P_DISABLE": "1"}


def test_the_matrix_behind_a_shipper(tmp_path):
    text = "".join(
        f"2026-11-29T12:00:00.1Z stderr F {line}\n" for line in rank_log(more=(MATRIX,)).splitlines()
    )
    assert read(tmp_path, text)["enabled"] == {
        "AllReduce": {"protocols": ["LL", "Simple"], "algorithms": ["Ring"]}
    }


def test_rccl_and_other_wordings(tmp_path):
    told = read(
        tmp_path,
        "h:1:1 [0] NCCL INFO RCCL version : 2.22.3-HEAD:abc\n"
        "h:1:1 [0] NCCL INFO ncclCommSplit comm 0x1 rank 0 nranks 4 cudaDev 0 parent 0x3 key 0- Init COMPLETE\n"
        "h:1:1 [0] NCCL INFO Channel 01/0 : 8[0] -> 0[0] [receive] via NET/IBext_v8/3(2)/GDRDMA/Shared\n",
    )
    assert told["versions"] == ["2.22.3"]
    assert told["init_complete_count"] == 1
    assert told["transports"] == {"NET/IBext_v8/GDRDMA/Shared": 1}


def test_collectives_in_the_network(tmp_path):
    told = read(
        tmp_path,
        "h:1:1 [0] NCCL INFO NET/Plugin: Loaded net plugin Fabric (v10)\n"
        "h:1:1 [0] NCCL INFO NET/Plugin: Loaded collnet plugin SHARP (v10)\n"
        "h:1:1 [0] NCCL INFO CollNet 00/0 : 0 [send] via COLLNET/SHARP/0/GDRDMA\n"
        "h:1:1 [0] NCCL INFO Coll 01 : 0 [receive] via COLLNET/SHARP/0/GDRDMA\n",
    )
    assert told["transports"] == {"COLLNET/SHARP/GDRDMA": 2}
    assert told["plugins"] == {
        "net": "Loaded net plugin Fabric (v10)",
        "collnet": "Loaded collnet plugin SHARP (v10)",
    }


def test_the_channels_in_rccls_wording(tmp_path):
    told = read(
        tmp_path,
        "h:1:1 [0] NCCL INFO comm:0x3ab, nRanks:2, nNodes:1, coll channels:28 collnet channels:28, "
        "nvls channels:0, p2p channels:32, p2p channels per peer:4\n",
    )
    assert told["channels"] == 28
    assert told["channel_counts"] == {"coll": 28, "collnet": 28, "nvls": 0, "p2p": 32}


def test_ranks_are_those_of_the_largest_communicator(tmp_path):
    split = "ncclCommSplit comm 0x9 rank 1 nranks 2 cudaDev 0 parent 0x1 color 0 key 1"
    told = read(
        tmp_path,
        "h:1:1 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 6 nranks 8 cudaDev 0 - Init COMPLETE\n"
        f"h:1:1 [0] NCCL INFO {split} - Init COMPLETE\n",
    )
    assert (told["ranks"], told["world_size"], told["init_complete_count"]) == ([6], 8, 2)
    assert told["files"][0]["ranks"] == [6]


def test_lines_that_ray_shows_once_for_all(tmp_path):
    repeated = " [repeated 3x across cluster]"
    said = (
        "NCCL_P2P_LEVEL set by environment to SYS",
        "NCCL_MAX_NCHANNELS set by environment to 8.",
        "Using network IB",
    )
    told = read(tmp_path, "".join(f"(Worker pid=7) h:1:1 [0] NCCL INFO {s}{repeated}\n" for s in said))
    assert told["set_by_environment"] == {"NCCL_P2P_LEVEL": "SYS", "NCCL_MAX_NCHANNELS": "8"}
    assert told["networks"] == ["IB"]


@pytest.mark.parametrize(
    ("last", "seen"), [("P2P/IP", {}), ("P2P/IPC", {"P2P/IPC": 1}), ("NET/Socket/0", {"NET/Socket": 1})]
)
def test_a_transport_that_the_files_end_cuts(tmp_path, last, seen):
    text = "h:1:1 [0] NCCL INFO NCCL version 2.27.3+cuda12.9\nh:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via "
    assert read(tmp_path, text + last)["transports"] == seen


def test_what_an_application_was_compiled_with_did_not_run(tmp_path):
    told = read(
        tmp_path,
        "h:1:1 [0] NCCL INFO NCCL version 2.31.0+cuda13.0\n"
        "h:1:1 [0] NCCL WARN It was compiled with NCCL version 2.29.2, but is running with NCCL library version 2.31.0.\n",
    )
    assert told["versions"] == ["2.31.0+cuda13.0", "2.31.0"]
    assert not any("several" in w for w in told["warnings"])


@pytest.mark.parametrize(
    ("said", "failed"),
    [
        ("Call to ibv_create_cq failed with error Cannot allocate memory", True),
        ("Call to ibv_modify_qp failed with 61 No data available", True),
        ("Call to ibv_query_port_speed failed with error Protocol not supported errno 93", False),
        (
            "NET/IB : Got completion from peer 192.0.2.7<55921> with status=12 opcode=1 len=0 vendor err 129",
            True,
        ),
        ("NET/IB : mlx5_3:1 Got async event : port active", False),
        ("socketProgress: Connection closed by remote peer n1<48422>", True),
        ("lib wrapper not initialized.", False),
        ('Missing "iommu=pt" from kernel command line which can lead to system instability or hang!', False),
        ("This is not compatible with NCCL_NVLS_ENABLE=1.", True),
    ],
)
def test_warnings_that_are_failures_and_such_that_are_not(tmp_path, said, failed):
    failure = read(tmp_path, f"{rank_log()}\nh:1:1 [0] misc/x.cc:1 NCCL WARN {said}\n")["failure"]
    assert (failure is not None) is failed
    assert failure is None or failure["class"] == "nccl_init"


@pytest.mark.parametrize("junk", ["hannel 1", "1", "NCCL_X ", "a"])
def test_a_line_without_end_spoils_nothing(tmp_path, junk):
    long = f"node7:1:1 [0] NCCL INFO  Bytes -> {junk * 300_000} across cluster]\n"
    assert read(tmp_path, long + rank_log())["channels"] == 8
