"""The time that is left: a median over a sample, so that a study of a thousand launches asks as fast."""

import json
import time

import pytest

from quietgate.files import read_json
from quietgate.steps.place import Place
from quietgate.study import Study, typical
from quietgate.study.stages import chain, launch_folder


def end(study, results, launches, seconds=1.0):
    for launch in launches:
        folder = launch_folder(results, launch)
        folder.mkdir(parents=True, exist_ok=True)
        for stage in chain(study):
            (folder / stage.record).write_text(json.dumps({"seconds": seconds}))


@pytest.mark.parametrize(
    ("ended", "says"),
    [
        (0, "8 launches left"),
        (3, "5 launches left, about 30 s"),
        (7, "1 launch left, about 6 s"),
        (8, "0 launches left"),
    ],
)
def test_in_words(base, tmp_path, ended, says):
    study = Study.from_config({**base, "replicates": 2})
    end(study, tmp_path, study.launches[:ended])
    assert Place(study, study.launches[0], tmp_path).time_left() == says


def test_one_slow_launch_and_a_damaged_record_do_not_decide(base, tmp_path):
    study = Study.from_config({**base, "replicates": 2})
    end(study, tmp_path, study.launches)
    end(study, tmp_path, study.launches[:1], seconds=1000)
    (launch_folder(tmp_path, study.launches[1]) / "gate.json").write_text("[")
    done = typical.ended(study, tmp_path)
    assert typical.middle([typical.seconds(study, tmp_path, x) for x in done]) == len(chain(study))


def test_a_thousand_launches(base, tmp_path, monkeypatch):
    study = Study.from_config({**base, "replicates": 250})
    end(study, tmp_path, study.launches)
    reads = []
    monkeypatch.setattr(typical, "read_json", lambda path: reads.append(path) or read_json(path))
    took = []
    for _ in range(3):
        reads.clear()
        began = time.perf_counter()
        assert Place(study, study.launches[0], tmp_path).time_left() == "0 launches left"
        took.append(time.perf_counter() - began)
    assert len(reads) <= 15 * len(chain(study))
    assert min(took) < 0.1, took
