"""What a run would refuse on this machine is what `plan` warns of, under its one heading."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from quietgate import __main__
from quietgate.gate import beforehand
from quietgate.study import Study

CONFIG = {
    "study": "t",
    "server": {"args": {"model-path": "/no/model"}},
    "grid": {"steps": [0], "nccl": ["default"]},
    "nccl_profiles": {"default": {}},
}


def test_every_check_of_the_machine_is_in_the_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "prompts.jsonl").write_text("junk\n")
    config = tmp_path / "study.yaml"
    more = {
        "benchmark": {"prompts": str(tmp_path / "prompts.jsonl")},
        "all_reduce": {"enabled": True, "python": "python3"},
    }
    server = {"args": {"model-path": "/no/model", "tp-size": 2, "device": "cpu"}}
    config.write_text(yaml.safe_dump(CONFIG | more | {"server": server}))
    found = beforehand.problems(Study.from_file(config))
    for place in ("server.args.model-path: no model", "benchmark.prompts", "all_reduce.bytes"):
        assert sum(place in line for line in found) == 1, found
    assert __main__.main(["plan", str(config)]) == 0
    said = capsys.readouterr().out.splitlines()
    at = said.index("Warnings:") + 1
    assert said[at : at + len(found)] == [f"  - {line}" for line in found]


def test_a_plan_without_a_remark_has_no_heading(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "study.yaml"
    server = {"args": {"model-path": "org/model", "device": "cpu"}}
    config.write_text(yaml.safe_dump(CONFIG | {"server": server}))
    assert __main__.main(["plan", str(config)]) == 0
    assert "Warnings:" not in capsys.readouterr().out
