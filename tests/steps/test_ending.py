"""How a job ends that cannot go on: one line where a person or the machine is the cause, else a traceback."""

import subprocess
import sys
from pathlib import Path

import pytest

from quietgate.errors import CellFailed
from quietgate.steps import server
from quietgate.steps.place import Place
from quietgate.study import Study
from quietgate.study.stages import LAUNCH

LIBRARY = Path(__file__).parents[2] / "workflow" / "lib"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        ("OSError(28, 'No space left on device', 'a/b')", "a/b: No space left on device; make room"),
        ("OSError(30, 'Read-only file system')", "Read-only file system; make room"),
        ("KeyboardInterrupt", "interrupted; the next run repeats what was cut"),
        ("quietgate.errors.BadInput('x.json: no such record')", "x.json: no such record"),
        ("OSError(2, 'No such file', 'a/b')", None),
        ("ValueError('a bug of ours')", None),
    ],
)
def test_one_line(error, line):
    code = f"import quietgate.steps, quietgate.errors\nraise {error}"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=LIBRARY, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    if line is None:
        assert "Traceback" in done.stderr
    else:
        assert done.stderr.startswith(line)
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "failure_class"),
    [(OSError(28, "full"), None), (OSError(5, "I/O"), "internal_error"), (CellFailed("hang", "x"), "hang")],
)
def test_a_full_disk_is_no_failure_of_a_cell(tmp_path, error, failure_class):
    config = {
        "study": "s",
        "server": {"python": "python3", "speculative": {"draft_model_path": "d"}},
        "grid": {"steps": [0]},
    }
    study = Study.from_config(config)
    place = Place(study, study.launches[0], tmp_path)

    def work(place):
        raise error

    if failure_class is None:
        with pytest.raises(OSError, match="full"):
            server.run(place, LAUNCH, work)
        assert not (place.folder / LAUNCH.record).exists(), "the next run repeats it"
    else:
        server.run(place, LAUNCH, work)
        assert place.read(LAUNCH)["failure"]["class"] == failure_class
