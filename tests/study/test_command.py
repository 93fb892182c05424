"""From a cell to argv and environment: the published command token by token, and every form of flag."""

import shlex
from pathlib import Path

import pytest

from quietgate.gate.plan import plan_for
from quietgate.study import Cell, Study
from quietgate.study.command import tokens
from quietgate.study.plan import command_lines, lines, study_warnings

KIMI = Path(__file__).parents[2] / "config" / "kimi-k2.5-eagle3.yaml"

# The launch of the hand-run study at 2 steps with its tuned NCCL profile, as its author typed it.
PUBLISHED_ENV = [
    "NCCL_PROTO=LL",
    "NCCL_ALGO=Ring",
    "NCCL_P2P_LEVEL=SYS",
    "NCCL_MAX_NCHANNELS=16",
    "NCCL_BUFFSIZE=16777216",
    "NCCL_NTHREADS=512",
    "EAGLE3_PROFILE=1",
    "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1",
]
PUBLISHED_ARGV = [
    "~/ml-env/bin/python3",
    "-m",
    "sglang.launch_server",
    "--model-path",
    "/shared/kimi-k2.5-int4",
    "--trust-remote-code",
    "--tp-size",
    "8",
    "--mem-fraction-static",
    "0.88",
    "--host",
    "0.0.0.0",
    "--port",
    "8000",
    "--num-continuous-decode-steps",
    "4",
    "--disable-custom-all-reduce",
    "--speculative-algorithm",
    "EAGLE3",
    "--speculative-draft-model-path",
    "/data/eagle3/output_100k_sglang/4",
    "--speculative-eagle-topk",
    "1",
    "--speculative-num-draft-tokens",
    "3",
    "--speculative-num-steps",
    "2",
]


@pytest.fixture(scope="module")
def kimi():
    return Study.from_file(KIMI)


def test_published_command_is_the_studys_own_layer(kimi):
    process = kimi.resolved(kimi.cell("steps-2_nccl-tuned"))["processes"][0]
    assert process["argv"] == PUBLISHED_ARGV
    assert [f"{k}={v}" for k, v in process["env"].items()] == PUBLISHED_ENV
    assert process["unset"] == []


def test_plan_prints_the_published_command_and_the_second_layer_apart(kimi):
    text = list(command_lines(kimi, kimi.cell("steps-2_nccl-tuned")))
    second = next(i for i, line in enumerate(text) if "added by the workflow" in line)
    own = [line.strip() for line in text[2:second]]
    assert own[:-1] == PUBLISHED_ENV
    assert own[-1] == " ".join(PUBLISHED_ARGV)
    added = " ".join(text[second + 1 :])
    assert added.index("--host 127.0.0.1") < added.index("--port '{port}'")
    for expected in ("SPT_NOENV=1", "NCCL_DEBUG=INFO", "127.0.0.1", "--enable-metrics"):
        assert expected in added
        assert expected not in " ".join(own)


def test_plan_prints_a_value_with_a_semicolon_as_shell_text(base, tmp_path):
    base["nccl_profiles"]["ll-ring"]["set"] = {"NCCL_ALGO": "ring,tree;allreduce:tree"}
    study = Study.from_config(base)
    cell = study.cell("steps-0_nccl-ll-ring")
    printed = "NCCL_ALGO='ring,tree;allreduce:tree'"
    assert printed in [line.strip() for line in command_lines(study, cell)]
    assert any(line.strip().endswith(printed) for line in lines(study, tmp_path))
    assert study.resolved(cell)["processes"][0]["env"]["NCCL_ALGO"] == "ring,tree;allreduce:tree"


def test_kimi_grid_is_eleven_steps_by_two_profiles(kimi):
    assert len(kimi.cells) == 22
    untuned = kimi.resolved(kimi.cell("steps-0_nccl-untuned"))["processes"][0]
    assert not any(name.startswith("NCCL_") for name in untuned["env"])
    assert not any("speculative" in token for token in untuned["argv"])


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ({"trust-remote-code": True}, "--trust-remote-code"),
        ({"trust-remote-code": False, "x": None}, ""),
        ({"mem-fraction-static": 0.88}, "--mem-fraction-static 0.88"),
        ({"cuda-graph-bs": [1, 2, 4]}, "--cuda-graph-bs 1 2 4"),
        ({"stream-interval": -1}, "--stream-interval -1"),
        ({"chat-template": "-x"}, "--chat-template=-x"),
        ({"json-model-override-args": {"a": [1]}}, """--json-model-override-args '{"a":[1]}'"""),
        (
            {"json-model-override-args": '{"a": {b} }'},
            """--json-model-override-args '{"a": {b} }'""",
        ),
        ({"tp": "08"}, "--tp 08"),
        ({"served_model_name": "a b"}, "--served_model_name 'a b'"),
    ],
)
def test_forms_of_flags(args, expected):
    assert tokens(args) == shlex.split(expected)


def test_entry_points(base):
    base["server"]["entry"] = ["-m", "sglang.cli", "serve"]
    study = Study.from_config(base)
    assert study.resolved(study.reference)["processes"][0]["argv"][:4] == [
        "/opt/ml/bin/python3", "-m", "sglang.cli", "serve",
    ]  # fmt: skip
    base["server"] |= {"python": None, "entry": ["sglang", "serve"]}
    study = Study.from_config(base)
    assert study.resolved(study.reference)["processes"][0]["argv"][:3] == [
        "sglang", "serve", "--model-path",
    ]  # fmt: skip


def test_variables_set_and_unset(base):
    base["nccl_profiles"]["default"] = {"unset": ["NCCL_PROTO"]}
    base["server"] |= {"env": {"A": 1, "NCCL_DEBUG": "TRACE"}, "unset_env": ["CUDA_MODULE_LOADING"]}
    study = Study.from_config(base)
    resolved = study.resolved(study.cell("steps-0_nccl-default"))
    process = resolved["processes"][0]
    assert process["env"] == {"A": "1", "NCCL_DEBUG": "TRACE"}
    assert process["unset"] == ["NCCL_PROTO", "CUDA_MODULE_LOADING"]
    # The study's own log level stands, the file goes where the gate reads it.
    assert "NCCL_DEBUG" not in resolved["workflow_env"]
    assert resolved["workflow_env"]["NCCL_DEBUG_FILE"].startswith("{instance_dir}/")


def test_what_the_workflow_sets_over_the_study_is_said_and_not_held_against_it(base):
    base["nccl_profiles"]["default"] = {"set": {"NCCL_DEBUG_FILE": "/tmp/mine.log"}, "unset": ["NCCL_DEBUG"]}
    base["server"]["nodes"] = [
        {"env": {"NCCL_DEBUG_SUBSYS": "COLL"}},
        {"env": {"NCCL_DEBUG_SUBSYS": "COLL", "PYTHONPATH": "/mine"}},
    ]
    study = Study.from_config(base)
    said = [line for line in study_warnings(study) if "does not hold" in line]
    for asked in ("NCCL_DEBUG_FILE=/tmp/mine.log", "unset NCCL_DEBUG", "NCCL_DEBUG_SUBSYS=COLL"):
        assert sum(line.startswith(f"profile default: {asked} does not hold") for line in said) == 1, said
    assert all("proof" in line for line in said)
    gate = plan_for(study, study.reference, ())
    assert gate.env[0]["NCCL_DEBUG"] == "INFO"
    assert "NCCL_DEBUG" not in {*gate.unset, *gate.profile_unset}


def test_what_the_workflow_leaves_alone_is_not_said(base):
    base["server"]["env"] = {"NCCL_DEBUG": "TRACE", "EAGLE3_PROFILE": 1, "PYTHONPATH": "/mine"}
    assert not any("does not hold" in line for line in study_warnings(Study.from_config(base)))


def test_axes_over_flags_and_variables(base):
    base["grid"]["axes"] = {
        "tp": {"flag": "tp-size", "values": [1, 2]},
        "custom-ar": {"flag": "disable-custom-all-reduce", "values": [False, True]},
        "shm": {"variable": "NCCL_SHM_DISABLE", "values": [None, 1]},
    }
    study = Study.from_config(base)
    assert len(study.cells) == 2 * 2 * 2 * 2 * 2
    cell = Cell(2, "ll-ring", {"tp": 1, "custom-ar": True, "shm": 1})
    assert cell in study.cells
    process = study.resolved(cell)["processes"][0]
    assert process["argv"][5:7] == ["--tp-size", "1"], "the study's own place of the flag is kept"
    assert "--disable-custom-all-reduce" in process["argv"]
    assert process["env"]["NCCL_SHM_DISABLE"] == "1"
    off = study.resolved(Cell(2, "ll-ring", {"tp": 1, "custom-ar": False, "shm": None}))["processes"][0]
    assert "--disable-custom-all-reduce" not in off["argv"]
    assert "NCCL_SHM_DISABLE" not in off["env"]
    assert "NCCL_SHM_DISABLE" in off["unset"]


def test_speculative_axis_has_one_cell_without_speculation(base):
    base["grid"]["axes"] = {"topk": {"flag": "speculative-eagle-topk", "values": [1, 4]}}
    base["server"]["speculative"]["draft_tokens"] = {"2": 3}
    study = Study.from_config(base)
    assert sum(c.steps == 0 for c in study.cells) == 2, "one per profile, not one per topk"
    argv = study.resolved(Cell(2, "default", {"topk": 4}))["processes"][0]["argv"]
    assert argv[argv.index("--speculative-eagle-topk") + 1] == "4"


def test_every_cell_is_pinned_alike(base):
    study = Study.from_config(base)
    pins = {tuple(study.resolved(c)["workflow_argv"]) for c in study.cells}
    assert len(pins) == 1
    assert next(iter(pins))[:2] == ("--max-running-requests", "48")
    base["server"]["args"]["max-running-requests"] = 64
    study = Study.from_config(base)
    assert "--max-running-requests" not in study.resolved(study.reference)["workflow_argv"]


def test_several_processes_per_server(base):
    base["server"]["nodes"] = [
        {"args": {"node-rank": 0}, "env": {"X": 0}},
        {"args": {"node-rank": 1}, "env": {"X": 1}},
    ]
    study = Study.from_config(base)
    processes = study.resolved(study.reference)["processes"]
    assert [p["argv"][-2:] for p in processes] == [["--node-rank", "0"], ["--node-rank", "1"]]
    assert [p["env"]["X"] for p in processes] == ["0", "1"]


def test_processes_on_one_machine_open_different_ports(base):
    one = Study.from_config(base)
    assert one.resolved(one.reference)["workflow_argv"][-2:] == ["--port", "{port}"]
    base["server"]["nodes"] = [{"args": {"node-rank": 0}}, {"args": {"node-rank": 1}}]
    two = Study.from_config(base)
    assert two.resolved(two.reference)["workflow_argv"][-2:] == ["--port", "{node_port}"]
