"""The check of all-reduces: what is asked, in which environment; right, wrong and stuck are told apart."""

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from serve_lease.house import release

from quietgate.errors import BadConfig, BadInput, CellFailed
from quietgate.gate import all_reduce
from quietgate.gate.all_reduce import Check
from quietgate.serve import lease
from quietgate.study import Study
from quietgate.study.here import missing

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "workflow" / "all_reduce" / "check.py"
PYTHON = ROOT / "resources" / "sglang-cpu" / "bin" / "python"
HERE = Path(__file__).parent

embedded = [
    pytest.mark.embedded,
    pytest.mark.process,
    pytest.mark.skipif(not PYTHON.exists(), reason="no PyTorch: resources/sglang-cpu is not built"),
]


# Both set by the user.
BOTH = {"NCCL_CUMEM_ENABLE": "1", "NCCL_NVLS_ENABLE": "0"}


def script():
    """The check as a module; it imports no PyTorch before it is a rank."""
    spec = importlib.util.spec_from_file_location("all_reduce_check", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("version", "environ", "flags", "changed"),
    [
        # The facts of each release, for two ranks: what was unset, what was set, and what flags do.
        ("0.5.16", {}, "", {"NCCL_CUMEM_ENABLE": "0", "NCCL_NVLS_ENABLE": "0"}),
        ("0.5.16", {"NCCL_CUMEM_ENABLE": "1"}, "", {"NCCL_NVLS_ENABLE": "0"}),
        ("0.5.16", BOTH, "", {}),
        ("0.4.6", {"NCCL_CUMEM_ENABLE": "1"}, "", {"NCCL_CUMEM_ENABLE": "0", "NCCL_NVLS_ENABLE": "0"}),
        ("0.5.16", BOTH, "enable_nccl_nvls", {"NCCL_NVLS_ENABLE": "1"}),
        ("0.5.16", BOTH | {"NCCL_CUMEM_ENABLE": "0"}, "enable_symm_mem", dict.fromkeys(BOTH, "1")),
        ("0.5.20", BOTH, "", {"NCCL_GRAPH_REGISTER": "0"}),
        ("0.5.20", BOTH, "disable_cuda_graph", {}),
        (None, BOTH, "", {"NCCL_GRAPH_REGISTER": "0"}),
        (
            "0.5.16",
            BOTH | {"NCCL_ALGO": "Ring"},
            "enable_deterministic_inference",
            {"NCCL_ALGO": "allreduce:tree"},
        ),
    ],
)
def test_what_sglang_would_set(version, environ, flags, changed):
    check = script()
    found = check.as_sglang(environ, check.numbers(version), 2, {flags})
    assert found.pop("CUDA_DEVICE_MAX_CONNECTIONS") == "8"
    assert found == changed


def model(folder, config):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def asked(base, **settings):
    study = Study.from_config({**base, "all_reduce": {"enabled": True, **settings}})
    return {c.steps: all_reduce.check_of(study, c) for c in study.cells}


def test_sizes_are_those_of_verify_and_draft_at_each_concurrency(base, tmp_path):
    base["server"]["args"]["model-path"] = model(tmp_path / "m", {"text_config": {"hidden_size": 100}})
    base["benchmark"] = {"concurrency": [1, 8]}
    found = asked(base, timeout_s=7)
    study = Study.from_config(base)
    own = {c.steps: all_reduce.sizes_of(study, c) for c in study.cells}
    assert own == {0: {200, 1600}, 2: {200, 600, 1600, 4800}}
    assert found[0].sizes == found[2].sizes == (200, 600, 1600, 4800), "one check does for the profile"
    assert found[2] == Check("/opt/ml/bin/python3", SCRIPT, "cuda", 2, found[2].sizes, 7)
    assert asked(base, bytes=[64, 32], python="py")[0].sizes == (32, 64)


def test_what_cannot_be_asked(base):
    with pytest.raises(BadInput, match=r"hidden_size from /models/target/config.json; list the sizes"):
        asked(base)
    base["server"]["nodes"] = [{}, {}, {}]
    with pytest.raises(BadInput, match="2 ranks do not divide into 3 server processes"):
        asked(base, bytes=[32])
    base["server"] |= {"python": None, "entry": ["sglang", "serve"]}
    with pytest.raises(BadConfig, match=r"all_reduce.python: missing"):
        asked(base, bytes=[32])


def test_a_missing_interpreter_is_named_before_anything_starts(base):
    base["all_reduce"] = {"enabled": True, "python": "/no/such/python"}
    assert any("all_reduce.python: no program /no/such/python" in x for x in missing(Study.from_config(base)))


def check_with(python, script, **changes):
    return replace(Check(str(python), script, "cpu", 2, (4096, 16384), 60.0), **changes)


def run(house, check, env=(), processes=1):
    """Run the check in place of the house's stub server; (instance, fields, its folder)."""
    server = house.spec("--ignore-term", processes=processes)
    server = replace(
        server,
        drop=("NCCL_*",),
        processes=tuple(replace(p, env={"NCCL_PROTO": "LL", **dict(env)}) for p in server.processes),
    )
    lives = house.study / "cells" / "c" / "l1" / "all_reduce"
    spec = all_reduce.spec_of(server, check, "other", lives)
    try:
        instance, fields = all_reduce.run(spec, check, lambda line: None)
    finally:
        assert lease.live(server) is None
        assert [e["left"] for e in house.exits(spec)] == [[]]
    return instance, fields, lives / instance


@pytest.mark.process
def test_the_environment_is_the_servers(house, monkeypatch):
    monkeypatch.setenv("NCCL_ALGO", "Tree")
    monkeypatch.setenv("SOME_SHELL_VARIABLE", "kept")
    env = {"NCCL_DEBUG_FILE": "{instance_dir}/nccl.log", "LD_PRELOAD": "", "P": "{slot}"}
    server = replace(
        house.spec(),
        drop=("NCCL_*",),
        processes=tuple(replace(p, env=env, unset=("LC_ALL",)) for p in house.spec().processes),
    )
    live = lease.start(server)
    servers = house.up(live)["env"]
    release(server)
    check = check_with(sys.executable, HERE / "stand_in.py")
    spec = all_reduce.spec_of(server, check, "other", house.study / "all_reduce")
    instance, _ = all_reduce.run(spec, check, lambda line: None)
    folder = spec.instances_dir / instance
    checks = json.loads((folder / "environment.json").read_text())
    assert checks.pop("QUIETGATE_INSTANCE") == instance
    assert servers.pop("QUIETGATE_INSTANCE") == live.instance
    assert checks.pop("NCCL_DEBUG_FILE") == f"{folder}/nccl.log"
    servers.pop("NCCL_DEBUG_FILE")
    assert checks == servers
    assert "NCCL_ALGO" not in checks
    assert checks["SOME_SHELL_VARIABLE"] == "kept"


class TestWithGloo:
    pytestmark = embedded

    @pytest.mark.parametrize("processes", [1, 2])
    def test_right_sums_and_times(self, house, processes):
        _, fields, folder = run(house, check_with(PYTHON, SCRIPT), processes=processes)
        assert (fields["backend"], fields["clock"], fields["nccl_log"]) == ("gloo", "wall", None)
        assert [s["bytes"] for s in fields["sizes"]] == [4096, 16384]
        assert all(
            s["wrong"] == [] and 0 < s["min_us"] <= s["median_us"] <= s["max_us"] for s in fields["sizes"]
        )
        assert [r["rank"] for r in fields["ranks"]] == [0, 1]
        assert len({r["pid"] for r in fields["ranks"]}) == 2
        for rank in fields["ranks"]:
            assert rank["environment"] | fields["set_as_sglang"] | {"NCCL_PROTO": "LL"} == (
                rank["environment"] | {"CUDA_DEVICE_MAX_CONNECTIONS": "8"}
            )
        assert fields["set_as_sglang"]["NCCL_CUMEM_ENABLE"] == "0"
        assert all_reduce.last_words(folder) == {0: "done", 1: "done"}

    def test_wrong_sums(self, house):
        with pytest.raises(CellFailed) as caught:
            run(house, check_with(PYTHON, HERE / "spoilt.py"), env={"SPOILT": "adds"})
        assert caught.value.failure_class == "wrong_sums"
        assert "rank 1, 4096 bytes, eager: 1 of 2048 sums wrong, the first at 7:" in caught.value.reason
        assert [line.split(",")[1] for line in caught.value.evidence] == [" 4096 bytes", " 16384 bytes"]

    def test_what_was_gathered_wrongly(self, house):
        with pytest.raises(CellFailed) as caught:
            run(house, check_with(PYTHON, HERE / "spoilt.py"), env={"SPOILT": "misplaces"})
        assert caught.value.failure_class == "wrong_sums"
        assert (
            "all-gather brought wrong numbers: rank 1, 4096 bytes, all-gather, eager:" in caught.value.reason
        )
        assert caught.value.reason.endswith("of 4096 numbers wrong, the first at 0: 5 instead of 0")
        assert len(caught.value.evidence) == 1

    def test_a_profile_that_cannot_gather_is_told_with_nccls_sentence(self, house):
        env = {"SPOILT": "gathers", "NCCL_DEBUG_FILE": "{instance_dir}/nccl.%h.%p.log"}
        with pytest.raises(CellFailed) as caught:
            run(house, check_with(PYTHON, HERE / "spoilt.py"), env=env)
        assert caught.value.failure_class == "nccl_init"
        assert "no algorithm/protocol available for function AllGather" in caught.value.reason
        assert "NCCL_ALGO was set to Tree. (nccl.n1." in caught.value.reason
        assert any("ring,tree;allreduce:tree" in line for line in caught.value.evidence)

    def test_a_hang_is_told_with_its_place_and_everything_is_ended(self, house):
        check = check_with(PYTHON, HERE / "spoilt.py", timeout_s=15.0)
        with pytest.raises(CellFailed) as caught:
            run(house, check, env={"SPOILT": "sleeps"})
        assert caught.value.failure_class == "hang"
        assert "within 15 s" in caught.value.reason
        assert "rank 0 at '4096 bytes: sums'" in caught.value.reason
        # `run` and `house` have looked: nothing of it is alive.

    def test_a_rank_that_dies_is_told_with_what_it_said(self, house):
        with pytest.raises(CellFailed) as caught:
            run(house, check_with(PYTHON, HERE / "spoilt.py"), env={"SPOILT": "dies"})
        assert caught.value.failure_class == "out_of_memory"
        assert "Tried to allocate" in caught.value.reason
