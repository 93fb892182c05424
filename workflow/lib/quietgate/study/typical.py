"""What a launch of this study takes, from those that have ended: a sample, however many there are."""

from __future__ import annotations

from pathlib import Path

from quietgate.files import read_json
from quietgate.study.cells import Launch
from quietgate.study.stages import RELEASE, chain, launch_folder
from quietgate.study.study import Study

# Enough for a median, few enough to be read at every launch of a study of thousands.
_SAMPLE = 15


def ended(study: Study, results: Path) -> list[Launch]:
    """The launches whose server has come and gone, in run order."""
    return [x for x in study.launches if (launch_folder(results, x) / RELEASE.record).exists()]


def sample(launches: list[Launch]) -> list[Launch]:
    """A few of them, spread over the whole run."""
    count = min(_SAMPLE, len(launches))
    return [launches[i * len(launches) // count] for i in range(count)]


def seconds(study: Study, results: Path, launch: Launch) -> float:
    """What the stages of an ended launch took together."""
    folder = launch_folder(results, launch)
    found = (read_json(folder / stage.record) for stage in chain(study))
    return sum(float(r.get("seconds") or 0.0) for r in found if isinstance(r, dict))


def middle(values: list[float]) -> float | None:
    """The (upper) median; None of nothing."""
    return sorted(values)[len(values) // 2] if values else None
