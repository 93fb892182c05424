"""`python -m quietgate inspect KIND` of what cannot be read: exit status 2, one line that names the file."""

import gzip
import json
import os
import random
import threading

import pytest

from quietgate.__main__ import main
from quietgate.gate.cause import of_death
from quietgate.inspect.failures import CLASSES

NOISE = random.Random(1).randbytes(5000)
JUNK = {
    "empty": b"",
    "blank": b"\n \n\n",
    "binary": NOISE,
    "utf-16": "sglang:gen_throughput 1.0\n".encode("utf-16"),
    "empty gzip": gzip.compress(b""),
    "cut gzip": gzip.compress(NOISE.hex().encode())[:-50],
    "gzip of noise": gzip.compress(NOISE),
    "zip": b"PK\x03\x04" + NOISE,
}
# Text about something else.
OTHER = {
    "prose": b"Dear diary,\nnothing happened.\n",
    "null": b"null\n",
    "empty object": b"{}\n",
    "empty list": b"[]\n",
    "cut object": b'{"traceEvents": [{"ph": "X", ',
    "comments": b"# HELP a b\n# TYPE a counter\n",
    "open label": b'a{b="c\n',
    "html": b"<html><body>502 Bad Gateway</body></html>\n",
    "readme": b"# A server\n\nInstall it with `pip install sglang==0.5.9`, then:\n\n    ./launch.sh --tp 2\n",
    "yaml": b"server:\n  extra: {--tp: 2}\n  # it may fail\nname: error\n",
    "python": b"""import re
READY = "The server is fired up and ready to roll!"
LINE = "[2026-11-29 12:00:00] Decode batch, #running-req: 2, gen throughput (token/s): 88.20, #queue-req: 0"


def fail() -> None:
    \"\"\"Fails.

    Raises:
        ValueError: always.
    \"\"\"
    raise ValueError("CUDA out of memory. Tried to allocate 1 GiB")
""",
    "no line end": b'import os\nprint("[2026-11-29 12:00:00] The server is fired up and ready to roll!")',
    "json": b'{"said": "the server hangs", "lines": ["ValueError: odd", true, null]}\n',
    "deep list": b"[" * 200_000,
    "long word": b"a" * 200_000 + b"\n",
    "long number": b"a" + b"1" * 200_000 + b"\n",
    "long rule": b"=" * 200_000 + b"\n",
    "json lines": b'{"index": 0, "text": "Killed"}\n{"index": 1, "text": "RuntimeError: NCCL error"}\n',
}
# The kinds themselves, each of which only its own reader takes.
KINDS = {
    "log": b"[2026-11-29 12:00:00] server_args=ServerArgs(model_path='m')\n"
    b"[2026-11-29 12:01:00] The server is fired up and ready to roll!\n",
    "nccl": b"node1:77:77 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.1<0>\n"
    b"node1:77:77 [0] NCCL INFO NCCL version 2.27.5+cuda12.9\n",
    "trace": json.dumps(
        {"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2, "pid": 0, "tid": 7}]}
    ).encode(),
    "bench": b"============ Serving Benchmark Result ============\nSuccessful requests:     10\n"
    b"Output token throughput (tok/s):         53.14\n==================================================\n",
    "metrics": b"# HELP sglang:gen_throughput tok/s\n# TYPE sglang:gen_throughput gauge\n"
    b"sglang:gen_throughput 91.5\n",
}
# What a server leaves that died early, or has hardly begun.
DIED = {
    "traceback": b'Traceback (most recent call last):\n  File "/s/launch_server.py", line 6, in <module>\n'
    b"    import torch\nOSError: libcudart.so.12: cannot open shared object file\n",
    "usage": b"usage: launch_server.py [-h] --model-path MODEL_PATH\n"
    b"launch_server.py: error: the following arguments are required: --model-path/--model\n",
    "no module": b"/usr/bin/python3: Error while finding module specification for 'sglang.launch_server'\n",
    "no python": b"bash: line 1: python3: command not found\n",
    "killed": b"Killed\n",
    "boot": b"[2026-11-29 12:00:00] Using default HuggingFace chat template\n",
    "no date": b"[12:00:00 TP0] Init torch distributed begin.\n",
    "nccl": b"node1:77:77 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.1<0>\n"
    b"node1:77:99 [0] transport/net.cc:1 NCCL WARN something odd\n",
    "torch": b"[rank0]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3356\n",
    "warnings": b"/site/torchao/quant_api.py:1731: SyntaxWarning: invalid escape sequence\n"
    b"W1129 12:00:00.000000 77 torch/utils/cpp_extension.py:118] No CUDA runtime is found\n",
    "docker": b'{"log":"INFO 11-29 12:00:00 Automatically detected platform\\n","stream":"stderr"}\n',
    "loki": b'{"line":"Using default HuggingFace chat template","timestamp":"2026-11-29T12:00:00Z"}\n',
    "kubectl": b"[pod/sglang-0/server] [2026-11-29 12:00:00] Using default HuggingFace chat template\n",
    "labels": b'{app="sglang"} 2026-11-29 12:00:00 Using default HuggingFace chat template\n',
    "srun": b"0: [2026-11-29 12:00:00] Using default HuggingFace chat template\n",
    "a host's": b"node12: [2026-11-29 12:00:00] Using default HuggingFace chat template\n",
    "compose": b"sglang-1  | Traceback (most recent call last):\nsglang-1  | ValueError: odd\n",
    "journal": b"Nov 29 12:00:00 node1 sglang[77]: Loading safetensors\n",
    "a bar": b"\rLoading checkpoint shards:  50%|#####     | 1/2 [00:01<00:01]",
}


def refused(capsys, kind, path):
    assert main(["inspect", kind, str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(str(path)), err
    assert err.count("\n") == 1, err
    assert err.strip().isprintable(), err
    assert len(err) < len(str(path)) + 200, err
    return err


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (kind, name)
        for kind in ("log", "nccl", "trace", "bench", "metrics")
        for name in (*JUNK, *OTHER, "a folder", "no file", "not ours")
    ],
)
def test_junk(tmp_path, capsys, kind, name):
    path = tmp_path / "what"
    if name == "a folder":
        path.mkdir()
    elif name == "not ours":
        if os.getuid() == 0:
            pytest.skip("root may read everything")
        path.write_bytes(b"x")
        path.chmod(0)
    elif name != "no file":
        path.write_bytes({**JUNK, **OTHER}[name])
    refused(capsys, kind, path)


def test_a_reading_in_gzip_and_a_gauge_without_a_value(tmp_path, capsys):
    path = tmp_path / "metrics.gz"
    path.write_bytes(gzip.compress(b"sglang:gen_throughput NaN\nsglang:spec_accept_length 2.5\n"))
    assert main(["inspect", "metrics", str(path)]) == 0
    gauges = json.loads(capsys.readouterr().out)["gauges"]
    assert (gauges["gen_throughput"], gauges["spec_accept_length"]) == (None, 2.5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("given", KINDS)
def test_a_file_of_another_kind_is_named(tmp_path, capsys, kind, given):
    path = tmp_path / "what"
    path.write_bytes(KINDS[given])
    if kind == given:
        assert main(["inspect", kind, str(path)]) == 0
    else:
        said = refused(capsys, kind, path)
        assert said.endswith(f"python -m quietgate inspect {given} FILE\n")


def test_a_long_line_in_a_benchmarks_block(tmp_path, capsys):
    path = tmp_path / "what"
    head, _, end = KINDS["bench"].rstrip().rpartition(b"\n")
    long = (b"A(" * 200_000, b"Backend: x" + b" " * 400_000 + b"y")
    path.write_bytes(b"\n".join((head, *long, end)) + b"\n")
    assert main(["inspect", "bench", str(path)]) == 0


def test_json_too_deep_to_read_within_a_log(tmp_path, capsys):
    path = tmp_path / "what"
    path.write_bytes(KINDS["log"] + b'{"log": "x", "time": "1", "a": ' + b"[" * 200_000 + b"\n")
    assert main(["inspect", "log", str(path)]) == 0


@pytest.mark.parametrize("summary", [{"Succeed requests": 10}, {"aggregated_metrics": {"num_requests": 10}}])
def test_a_summary_of_another_load_generator_is_named(tmp_path, capsys, summary):
    path = tmp_path / "what"
    path.write_text(json.dumps(summary, indent=1))
    assert refused(capsys, "log", path).endswith("python -m quietgate inspect bench FILE\n")


@pytest.mark.parametrize("name", DIED)
def test_a_log_that_ends_early_is_a_log(tmp_path, capsys, name):
    path = tmp_path / "server.log"
    path.write_bytes(DIED[name])
    assert main(["inspect", "log", str(path)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert not told["ready"]
    assert told["decode"]["lines"] == 0


def test_a_log_is_told_by_all_of_it(tmp_path, capsys):
    """What stands before the server's first line says nothing: a job's script prints what it likes."""
    path = tmp_path / "job.out"
    path.write_bytes(b'{"settings": 1}\nall is well\n' * 20_000 + KINDS["log"])
    assert main(["inspect", "log", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["ready"]


def test_a_log_through_a_pipe(tmp_path, capsys):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(KINDS["log"],))
    writer.start()
    assert main(["inspect", "log", str(path)]) == 0
    writer.join()
    assert json.loads(capsys.readouterr().out)["ready"]


def test_what_the_gate_reads_is_never_refused(tmp_path):
    for name, content in {**JUNK, **OTHER, **KINDS, **DIED}.items():
        path = tmp_path / "server.log"
        path.write_bytes(content)
        cause = of_death(path, 1)
        assert cause.failure_class in CLASSES, name
