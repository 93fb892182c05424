"""Where a job stands: its study, its launch, its folders, and how it tells what it is doing."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quietgate import records
from quietgate.study import Launch, Study, typical
from quietgate.study.stages import Stage, chain, launch_folder, live_folder, stage_digest
from quietgate.wording import counted

FROZEN = ".live/study.json"


@dataclass(frozen=True)
class Place:
    """One launch of the study, as its jobs see it.

    Attributes:
        results: results/<study>.
        folder: cells/<cell>/<launch> below it: the records.
        live: the lease's private state.
    """

    study: Study
    launch: Launch
    results: Path
    log: Path | None = None

    @classmethod
    def of(cls, record: str, log: str | None = None) -> Place:
        """The place of a rule's record, <results>/cells/<cell>/<launch>/<name>.json, in the frozen study."""
        folder = Path(record).parent
        root, cell, launch = folder.parents[2], folder.parent.name, folder.name
        study = Study.thaw(root / FROZEN)
        found = next(x for x in study.launches if x.cell.id == cell and x.id == launch)
        return cls(study, found, root, Path(log) if log else None)

    @property
    def folder(self) -> Path:
        """cells/<cell>/<launch>."""
        return launch_folder(self.results, self.launch)

    @property
    def live(self) -> Path:
        """The lease's private state."""
        return live_folder(self.results, self.launch)

    def instance_folder(self, instance: str) -> Path:
        """What one server life left: gate, exit, logs."""
        return self.folder / "instances" / instance

    def before(self, stage: Stage) -> Stage | None:
        """The stage whose record this one builds on."""
        stages = chain(self.study)
        i = stages.index(stage)
        return stages[i - 1] if i else None

    def read(self, stage: Stage) -> records.Record:
        """The stage's record, validated."""
        return records.read(self.folder / stage.record)

    def write(
        self,
        stage: Stage,
        status: str,
        started: float,
        instance: str | None,
        fields: dict[str, Any] | None = None,
        failure: dict[str, Any] | None = None,
        kind: str | None = None,
        file: str | None = None,
    ) -> records.Record:
        """Write the stage's record (or another `kind` of record of it into `file`).

        Args:
            started: time.time() when the stage began.
        """
        record: records.Record = {
            "schema": f"quietgate/{kind or Path(stage.record).stem}/1",
            "study": self.study.name,
            "cell": self.launch.cell.id,
            "launch": self.launch.id,
            "instance": instance,
            "digest": stage_digest(self.study, self.launch.cell, stage),
            "status": status,
            "failure": failure,
            "started_at": _iso(started),
            "seconds": round(time.time() - started, 3),
            **(fields or {}),
        }
        records.write(self.folder / (file or stage.record), record)
        return record

    def say(self, text: str) -> None:
        """One line for whoever watches, with the time, the cell and the launch; also in the rule's log."""
        line = f"{time.strftime('%H:%M:%S')} {self.launch.cell.id} {self.launch.id}: {text}"
        print(line, file=sys.stderr, flush=True)
        if self.log:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            with self.log.open("a", encoding="utf-8") as f:
                f.write(line + "\n")

    def time_left(self) -> str:
        """How many launches have no end yet, and the median time of those that have times that, in words."""
        done = typical.ended(self.study, self.results)
        left = len(self.study.launches) - len(done)
        each = typical.middle([typical.seconds(self.study, self.results, x) for x in typical.sample(done)])
        about = f", about {_words(each * left)}" if each is not None and left else ""
        return f"{counted(left, 'launch')} left{about}"


def _words(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _iso(t: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(t)) + f".{int(t % 1 * 1000):03d}Z"
