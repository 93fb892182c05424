"""What a rank's environment shows, and what NCCL's files would add to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from quietgate.gate.environment import compare, leaks, settings
from quietgate.gate.ranks import Rank, coordinates

WANTED = {"NCCL_PROTO": "LL", "CUDA_DEVICE_MAX_CONNECTIONS": "32", "SPT_NOENV": "1"}


def rank(environ: dict[str, str] | None, why: str | None = None) -> Rank:
    return Rank(12, "sglang::scheduler_TP0", {"TP": 0}, 11, environ, why)


def test_everything_arrived() -> None:
    found = compare(rank(WANTED), WANTED, frozenset({"NCCL_ALGO"}), {"NCCL_PROTO": "LL"})
    assert found["problems"] == found["overwritten"] == []
    assert found["variables"]["NCCL_PROTO"] == "LL"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"NCCL_PROTO": "Simple"}, "NCCL_PROTO=LL was asked for, but it is 'Simple'"),
        ({"NCCL_PROTO": None}, "but it is absent"),
        ({"NCCL_ALGO": "Ring"}, "NCCL_ALGO=Ring is set, but was to be absent"),
    ],
)
def test_what_did_not(change: dict[str, str | None], says: str) -> None:
    environ = {n: v for n, v in {**WANTED, **change}.items() if v is not None}
    found = compare(rank(environ), WANTED, frozenset({"NCCL_ALGO"}), {"NCCL_PROTO": "LL"})
    assert len(found["problems"]) == 1
    assert says in found["problems"][0]


def test_sglangs_own_overwriting_is_a_remark_but_for_the_profile_and_the_axes() -> None:
    environ = WANTED | {"CUDA_DEVICE_MAX_CONNECTIONS": "8"}
    assert "always sets it to 8" in compare(rank(environ), WANTED, frozenset(), {})["overwritten"][0]
    axis = frozenset({"CUDA_DEVICE_MAX_CONNECTIONS"})
    assert compare(rank(environ), WANTED, frozenset(), {}, axis)["problems"]
    assert compare(rank(environ), WANTED, frozenset(), WANTED)["problems"]


def test_a_wiped_environment_is_unknown_not_empty() -> None:
    found = compare(rank(None, "wiped: start with SPT_NOENV=1"), WANTED, frozenset(), {})
    assert "SPT_NOENV=1" in found["problems"][0]


def test_what_the_launch_fills_in_stands_for_any_text() -> None:
    wanted = {"PYTHONPATH": "/timer:{inherited}", "X": "{dist_port}"}
    assert compare(rank({"PYTHONPATH": "/timer:/a:/b", "X": "4"}), wanted, frozenset(), {})["problems"] == []
    assert compare(rank({"PYTHONPATH": "/a:/timer", "X": "4"}), wanted, frozenset(), {})["problems"]
    # Nothing inherited leaves no colon behind (`serve.environment`).
    assert compare(rank({"PYTHONPATH": "/timer", "X": "4"}), wanted, frozenset(), {})["problems"] == []
    assert compare(rank({"PYTHONPATH": "", "X": "4"}), wanted, frozenset(), {})["problems"]


def test_files_that_nccl_reads(tmp_path: Path) -> None:
    own, system = tmp_path / ".nccl.conf", tmp_path / "etc.conf"
    own.write_text("# mine\nNCCL_ALGO=Tree\nNCCL_PROTO=Simple\n")
    system.write_text("NCCL_ALGO=Ring\nNCCL_NTHREADS = 256\n")
    home = {"HOME": str(tmp_path), "NCCL_PROTO": "LL"}
    assert leaks(home, system) == [
        {"path": str(own), "adds": {"NCCL_ALGO": "Tree"}},
        {"path": str(system), "adds": {"NCCL_NTHREADS": "256"}},
    ]
    named = home | {"NCCL_CONF_FILE": str(tmp_path / "absent")}  # replaces the one at home
    assert leaks(named, system) == [
        {"path": str(system), "adds": {"NCCL_ALGO": "Ring", "NCCL_NTHREADS": "256"}}
    ]
    assert leaks({}, tmp_path / "absent") == []


def test_settings_of_a_file() -> None:
    assert settings("A=1\n#B=2\nA=3\n\nrubbish\nC=x=y\n") == {"A": "1", "C": "x=y"}


def test_coordinates_in_a_title() -> None:
    assert coordinates("sglang::scheduler_DP1_PP0_TP3_EP3") == {"DP": 1, "PP": 0, "TP": 3, "EP": 3}
    assert coordinates("sglang::scheduler") == {}
