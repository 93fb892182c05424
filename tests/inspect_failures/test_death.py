"""Why a server ended where its own log says only that NCCL failed: NCCL's sentence, if that explains it."""

import pytest

from quietgate.gate.cause import of_death
from quietgate.inspect.death import why
from quietgate.serve.hold import ServerEnded, explained

CAPTURE = """\
[2026-11-30 09:00:01 TP0] Load weight end. type=LlamaForCausalLM
[2026-11-30 09:00:02 TP0] Capture decode CUDA graph begin. bs=[1, 8]
[2026-11-30 09:00:03 TP0] Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/sglang/pynccl_wrapper.py", line 378, in NCCL_CHECK
    raise RuntimeError(f"NCCL error: {error_str}")
RuntimeError: NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)

Traceback (most recent call last):
  File "/opt/sglang/scheduler.py", line 4623, in run_scheduler_process
Exception: Capture cuda graph failed: NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)
[2026-11-30 09:00:03] Received sigquit from a child process. It usually means the child failed.
"""
TIMEOUT = (
    "[rank0]:[E1130 09:00:00.1 ProcessGroupNCCL.cpp:607] Watchdog caught collective operation timeout: X\n"
)
FULL = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
PEER_GONE = "RuntimeError: NCCL error: remote process exited or there was a network error\n"

INFO = "n1:{pid}:{pid} [{rank}] NCCL INFO "
WARN = "[2026-11-30 09:00:03] n1:{pid}:{pid} [{rank}] "
UP = INFO + "comm 0x1 rank {rank} nranks 2 - Init COMPLETE\n"
NO_TREE = (
    WARN + "enqueue.cc:1859 NCCL WARN Error : no algorithm/protocol available for function AllGather with "
    "datatype ncclInt8. NCCL_ALGO was set to Tree.\n" + INFO + "enqueue.cc:399 -> 5\n"
)
LATER = (
    "enqueue.cc:9 NCCL WARN No algorithm/protocol nor symKernelId available for function Broadcast with x\n"
)
DUPLICATE = WARN + "init.cc:1012 NCCL WARN Duplicate GPU detected : rank 0 and rank 1 both on 60\n"
CLOSED = WARN + "misc/socket.cc:49 NCCL WARN Connection closed by remote peer n2<40001>\n"
RESET = WARN + "misc/socket.cc:38 NCCL WARN Call to recv from n2<40001> failed : Connection reset by peer\n"
NETWORK = (
    WARN + "net_ib.cc:99 NCCL WARN NET/IB : Got completion from peer n2<40001> with status=12 opcode=0\n"
)


def life(folder, server, *ranks, **others):
    """A server life's folder: its log, NCCL's of each rank, logs of other processes."""
    (folder / "server.log").write_text(server)
    for rank, text in enumerate(ranks):
        pid = 4000 + rank
        (folder / f"nccl.n1.{pid}.log").write_text(text.format(pid=pid, rank=rank))
    for name, text in others.items():
        (folder / f"server.{name.removeprefix('process')}.log").write_text(text)
    return folder / "server.log"


def test_nccls_own_sentence_is_the_reason(tmp_path):
    log = life(tmp_path, CAPTURE, UP + NO_TREE, UP + NO_TREE)
    dead = why(log)
    assert (dead.log.name, dead.failure.line, dead.failure.location) == (
        "nccl.n1.4000.log",
        2,
        "enqueue.cc:1859",
    )
    for found, reason in (
        (of_death(log, -9), of_death(log, -9).message),
        ((e := explained(ServerEnded("killed by SIGKILL", -9), log)), e.reason),
    ):
        assert found.failure_class == "nccl_init"
        assert reason.startswith("NCCL WARN Error : no algorithm/protocol available for function AllGather")
        assert "(nccl.n1.4000.log, line 2" in reason
        lines = "\n".join(found.lines if hasattr(found, "lines") else found.evidence)
        assert "RuntimeError: NCCL error: invalid usage" in lines, "what the server said stays as evidence"
        assert 'NCCL_ALGO="ring,tree;allreduce:tree"' in lines, "the remedy"
    assert e.reason.endswith("; killed by SIGKILL)")


@pytest.mark.parametrize(
    ("server", "ranks", "failure_class", "says"),
    [
        # As NCCL from 2.31 says it.
        (CAPTURE, [UP + WARN + LATER], "nccl_init", "nor symKernelId available for function Broadcast"),
        # The rank that explains most, whichever comes first.
        (CAPTURE, [UP + CLOSED, UP + RESET, DUPLICATE], "nccl_init", "Duplicate GPU"),
        (PEER_GONE, [UP, UP + CLOSED], "nccl_init", "closed by remote peer n2"),
        (TIMEOUT, [UP + NETWORK], "nccl_init", "status=12"),
        # Classes of NCCL's own lines.
        (CAPTURE, [WARN + "alloc.h:9 NCCL WARN Cuda failure 2 'out of memory'\n"], "out_of_memory", "Cuda"),
    ],
)
def test_what_explains_most(tmp_path, server, ranks, failure_class, says):
    found = why(life(tmp_path, server, *ranks)).failure
    assert found.failure_class == failure_class
    assert says in found.message


@pytest.mark.parametrize(
    ("server", "ranks", "failure_class"),
    [
        # A cause that has nothing to do with NCCL.
        (FULL, [UP + NO_TREE], "out_of_memory"),
        (CAPTURE.replace("RuntimeError: NCCL error: invalid", FULL + "x"), [UP + NO_TREE], "out_of_memory"),
        ("ValueError: no such setting\n", [UP + NO_TREE], "unknown"),
        # NCCL went on after its warning.
        (
            CAPTURE,
            [DUPLICATE + UP, NO_TREE + INFO + "AllReduce: 4 Bytes -> Algo RING proto LL\n"],
            "nccl_init",
        ),
        # What ranks say of each other once one waits in vain.
        (TIMEOUT, [UP + RESET, UP + CLOSED], "nccl_timeout"),
        ("Exception: Capture cuda graph failed: something odd\n", [UP + RESET], "graph_capture"),
        # Nothing there, or nothing of NCCL's.
        (CAPTURE, [], "nccl_init"),
        (CAPTURE, ["", "\x00\x01"], "nccl_init"),
    ],
)
def test_what_nccl_says_does_not_displace_a_cause(tmp_path, server, ranks, failure_class):
    dead = why(life(tmp_path, server, *ranks))
    assert (dead.failure.failure_class, dead.log.name, dead.own) == (failure_class, "server.log", None)


def test_the_cause_may_stand_in_another_process_of_the_server(tmp_path):
    dead = why(life(tmp_path, PEER_GONE, UP + CLOSED, process1=FULL))
    assert (dead.failure.failure_class, dead.log.name) == ("out_of_memory", "server.1.log")
    assert "remote process exited" in dead.own.message
    dead = why(life(tmp_path, "started\n", UP + NO_TREE, process1=CAPTURE))
    assert (dead.log.name, dead.own.failure_class) == ("nccl.n1.4000.log", "nccl_init")
    assert why(life(tmp_path, "started\n", UP + NO_TREE, process1="Killed\n")) is None
    assert why(life(tmp_path, "started\n", process1="", process2="Received signal: 15\n")) is None
