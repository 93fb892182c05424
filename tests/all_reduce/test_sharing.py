"""Launches that are alike share one check; what may differ, or be a matter of the moment, is not shared."""

import os

import pytest

from quietgate import records
from quietgate.errors import CellFailed
from quietgate.gate import all_reduce
from quietgate.steps import all_reduce as step
from quietgate.study import Study

FOUND = {
    "backend": "nccl",
    "clock": "cuda_graph",
    "torch": "2",
    "nccl": "2.28.9",
    "sglang": "0.5.16",
    "set_as_sglang": {},
    "ranks": [{"rank": r, "pid": 1, "device": "g", "environment": {}} for r in (0, 1)],
    "nccl_log": None,
}


class Made:
    """A study of two profiles, two steps, two launches of each cell; its LL profile fails the check."""

    def __init__(self, config, results, monkeypatch):
        self.results, self.checks, self.failure = results, [], "hang"
        self.study = Study.from_config(config)
        self.study.freeze(results / ".live" / "study.json")
        monkeypatch.setattr(all_reduce, "run", self.run)

    def run(self, spec, check, say):
        self.checks.append(f"{spec.cell}/{spec.launch}")
        instance = f"{len(self.checks):012x}"
        (spec.instances_dir / instance).mkdir(parents=True)
        if spec.processes[0].env.get("NCCL_PROTO") == "LL":
            raise CellFailed(self.failure, "it did not end", ["rank 0: sums"])
        sizes = [{"bytes": b, "wrong": [], "median_us": 1, "min_us": 1, "max_us": 1} for b in check.sizes]
        return instance, {**FOUND, "sizes": sizes}

    def records(self):
        """The records of every launch, made in run order."""
        found = {}
        for launch in self.study.launches:
            path = self.results / "cells" / launch.cell.id / launch.id / "all_reduce.json"
            step.main(str(path), str(path.parent / "log.txt"))
            found[f"{launch.cell.id}/{launch.id}"] = records.read(path, "all_reduce")
        return found

    def checked(self, profile):
        return [c for c in self.checks if profile in c]


@pytest.fixture
def made(base, tmp_path, monkeypatch):
    base |= {"replicates": 2, "all_reduce": {"enabled": True, "bytes": [32, 64]}}

    def make(**changes):
        return Made({**base, **changes}, tmp_path, monkeypatch)

    return make


def test_one_check_for_a_profile_whatever_comes_of_it(made):
    study = made()
    found = study.records()
    assert len(found) == 8
    [good], [bad] = study.checked("default"), study.checked("ll-ring")
    for name, record in found.items():
        assert record["status"] == ("passed" if "default" in name else "failed"), name
        assert (record["instance"] is None) == (name not in (good, bad)), name
        if "default" in name:
            assert record["same_as"] == (None if name == good else good)
            assert [s["bytes"] for s in record["sizes"]] == [32, 64]
        else:
            assert record["failure"]["class"] == "hang"
            assert record["failure"]["reason"] == "it did not end" + f" (as in {bad})" * (name != bad)
            assert record["failure"]["evidence"] == ["rank 0: sums"]


def test_a_failure_of_the_moment_is_not_shared(made):
    study = made()
    study.failure = "killed"
    study.records()
    assert len(study.checked("ll-ring")) == 4


@pytest.mark.parametrize("off_s", [-60, 3600])
def test_a_failure_of_an_earlier_run_is_not_shared(made, off_s):
    study = made()
    names = list(study.records())
    lock = study.results / ".live/study.lock"
    lock.touch()
    before = lock.stat().st_mtime + off_s
    for path in study.results.glob("cells/*/*/all_reduce.json"):
        os.utime(path, (before, before))
    study.checks.clear()
    bad = [name for name in names if "ll-ring" in name]
    again = [*bad[-2:], [name for name in names if "default" in name][-1]]
    for name in again:
        (study.results / "cells" / name / "all_reduce.json").unlink()
    for name in again:
        step.main(str(study.results / "cells" / name / "all_reduce.json"), str(study.results / "log.txt"))
    assert study.checks == bad[-2:-1], "one of this run is, and whatever passed"


def test_another_environment_or_a_size_that_was_not_checked_is_checked(made, base):
    axes = {"cumem": {"variable": "NCCL_CUMEM_ENABLE", "values": [0, 1]}}
    study = made(grid={**base["grid"], "steps": [0], "nccl": ["default"], "axes": axes})
    study.records()
    assert len(study.checks) == 2, "one for each value"
    first = study.study.launches[0]
    path = study.results / "cells" / first.cell.id / first.id / "all_reduce.json"
    record = records.read(path)
    record["sizes"] = record["sizes"][:1]
    records.write(path, record)
    for launch in study.study.launches:
        if launch != first:
            (study.results / "cells" / launch.cell.id / launch.id / "all_reduce.json").unlink()
    study.checks.clear()
    again = next(x for x in study.study.launches if x.cell == first.cell and x != first)
    place = study.results / "cells" / again.cell.id / again.id / "all_reduce.json"
    step.main(str(place), str(place.parent / "log.txt"))
    assert study.checks == [f"{again.cell.id}/{again.id}"]


def test_one_rank_has_nothing_to_reduce(made, base):
    study = made(server={**base["server"], "args": {"model-path": "m"}})
    found = study.records().values()
    assert study.checks == []
    assert {(r["status"], r["why"]) for r in found} == {("passed", "one rank: there is nothing to reduce")}
