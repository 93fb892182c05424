"""Two studies of one grid side by side."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from quietgate import __main__
from quietgate.errors import BadInput
from quietgate.files import write_json
from quietgate.share.compare import compare
from quietgate.share.ratios import ratios
from share import studies


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same grid measured twice; the second time on another machine with another page size."""
    root = tmp_path_factory.mktemp("pair")
    a, b = (
        studies.write(root / name, draw=False, launches=3, profiles=("tuned",), options={"seed": seed})
        for name, seed in (("a", 1), ("b", 2))
    )
    for folder, size in ((a, 1), (b, 64)):
        for path in folder.glob("cells/*/*/instances/*/gate.json"):
            gate = json.loads(path.read_text())
            stage = next(s for s in gate["stages"] if s["name"] == "arguments")
            stage["evidence"] = {
                "version": "0.5.23",
                "effective": {"page_size": size, "port": size, "tp_size": 8},
            }
            write_json(path, gate)
    for path in b.glob("cells/*/*/launch.json"):
        studies.edit(path, driver="590.2", versions={"sglang": "0.5.24"})
    return a, b


def test_ratios_intervals_and_what_differs(pair: tuple[Path, Path]) -> None:
    text = "\n".join(compare(*pair))
    assert "steps-0_nccl-tuned        1    3 / 3" in text
    assert " to " in text.split("steps-2_nccl-tuned", 1)[1].splitlines()[0]
    assert "page_size: 1 -> 64 (every cell)" in text
    assert "port" not in text.split("Effective server arguments")[1]
    assert "sglang: 0.5.23 -> 0.5.24" in text
    assert "driver: None -> 590.2" in text
    assert "benchmark" not in text.split("Configuration that differs")[1].split("Effective")[0]


def test_a_study_against_itself(pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["compare", str(pair[0]), str(pair[0])]) == 0
    out = capsys.readouterr().out
    assert "1.000" in out
    assert out.count("  none\n") == 3


def test_grids_without_a_common_cell(pair: tuple[Path, Path], tmp_path: Path) -> None:
    other = studies.write(tmp_path, draw=False, profiles=("other",), launches=1)
    with pytest.raises(BadInput, match="no cell in common"):
        list(compare(pair[0], other))


def test_one_launch_has_no_interval(tmp_path: Path) -> None:
    a, b = (studies.write(tmp_path / n, draw=False, profiles=("tuned",), launches=1) for n in "ab")
    text = "\n".join(compare(a, b))
    assert "none" in text
    assert "one launch per cell, so the variation from launch to launch is unknown" in text


def invented(rng: np.random.Generator, cells: int, blocks: int, between: float, within: float) -> Any:
    """A table `cells` and its study, of equal cells with known variation."""
    names = [f"steps-{i}_nccl-x" for i in range(cells)]
    shift = rng.normal(0, between, blocks)
    rows = [
        {
            "cell": name, "steps": i, "nccl": "x", "launch": f"l{b + 1}", "concurrency": 1, "repeat": 1,
            "status": "passed", "nccl_verdict": "confirmed", "instance": f"{name}{b}",
            "decode_tokens_per_s": 50 * math.exp(shift[b] + rng.normal(0, within)),
        }
        for i, name in enumerate(names)
        for b in range(blocks)
    ]  # fmt: skip
    launches = [{"cell": r["cell"], "launch": r["launch"], "block": int(r["launch"][1:])} for r in rows]
    return pd.DataFrame(rows), {"cells": [{"id": n} for n in names], "launches": launches, "axes": []}


@pytest.mark.slow
@pytest.mark.parametrize(("between", "within"), [(0.0, 0.01), (0.01, 0.01), (0.02, 0.004)])
def test_intervals_hold_jointly_in_at_least_95_percent(between: float, within: float) -> None:
    rng = np.random.default_rng(3)
    runs = 400
    held = 0
    for _ in range(runs):
        a, b = (invented(rng, 4, 4, between, within) for _ in range(2))
        found = ratios(a, b, "decode_tokens_per_s")
        held += all(r.low <= 1 <= r.high for r in found if r.low is not None and r.high is not None)
    # 95 % less three standard errors of 400 runs.
    assert held / runs >= 0.917


def test_an_archive_that_cannot_be_read_is_named(pair: tuple[Path, Path], tmp_path: Path) -> None:
    mine = studies.copy(pair[0], tmp_path)
    record = "cells/steps-2_nccl-tuned/l1/exit.json"
    studies.edit(mine / record, seconds=10**30)
    archive = Path(shutil.make_archive(str(tmp_path / "sent"), "zip", mine))
    with pytest.raises(BadInput) as caught:
        list(compare(pair[1], archive))
    assert str(caught.value).startswith(f"{archive}/{record}: holds the number")
