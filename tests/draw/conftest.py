from __future__ import annotations

from pathlib import Path

import pytest

from draw import synthetic
from quietgate.analyse import collect, statistics, tables
from quietgate.draw.drawn import Material
from quietgate.files import write_json


def made(root: Path, settings, analysed: bool = True, **kwargs):
    """A results folder with its tables; returns the study record and the statistics."""
    study = synthetic.write(root, settings, **kwargs)
    frames = tables.collect(tables.read_all(root, study), study)
    outcome = None
    if analysed:
        outcome, derived = statistics.statistics(frames["cells"], study)
        frames |= derived | {"within": collect.within(frames)}
        write_json(root / "tables" / "statistics.json", outcome)
    tables.write(frames, root / "tables")
    return study, outcome


def material(root: Path, study, outcome=None, reference: Path | None = None) -> Material:
    return Material.read(root / "tables", study, outcome, reference)


@pytest.fixture(scope="session")
def results(tmp_path_factory):
    """Three launches of three cells under two profiles at two levels; a failed cell, a failed launch."""
    root = tmp_path_factory.mktemp("results")
    study, outcome = made(
        root,
        synthetic.config([0, 1, 3], concurrency=(1, 8)),
        failed={(3, "tuned"): "out_of_memory"},
        failed_launches={(1, "untuned", "l2"): "killed"},
        drivers=dict.fromkeys(("l1", "l2", "l3"), "580.1"),
        transfer={"untuned": 0.5, "tuned": 0.12},
    )
    return root, study, outcome


@pytest.fixture(scope="session")
def on_cpu(tmp_path_factory):
    """One launch per cell on a CPU, where NCCL does nothing and no stage is timed."""
    root = tmp_path_factory.mktemp("cpu")
    settings = synthetic.config([0, 2], launches=1, profiles=("default", "ll-ring"), capture=False)
    settings["server"]["args"] = {"model-path": "/models/target", "device": "cpu"}
    study, outcome = made(root, settings, verdict="not_exercised", timer=False)
    return root, study, outcome


@pytest.fixture
def marks(tmp_path):
    """Two published observations."""
    path = tmp_path / "published.csv"
    path.write_text(
        "quantity,steps,nccl,value,unit,kind,note\n"
        "request_tokens_per_s,0,tuned,88.8,tok/s,observed,\n"
        "request_tokens_per_s,3,elsewhere,99,tok/s,observed,another profile\n"
    )
    return path
