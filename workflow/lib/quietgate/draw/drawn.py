"""What a figure function gets and gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from quietgate.analyse import reference as observations
from quietgate.analyse import tables
from quietgate.draw.style import Look, looks
from quietgate.study import command

# The weakest verdict of a profile's cells is said of the profile.
_VERDICT_WORDS = {
    "not_exercised": "not exercised",
    "contradicted": "contradicted by NCCL's log",
    "unknown": "not proved",
}


class NotDrawn(Exception):
    """There is nothing to draw; the message says why, for the report."""


@dataclass(frozen=True)
class Drawn:
    """A finished figure.

    Attributes:
        name: file name without extension.
        title: what it shows, in a few words.
        caption: what a reader must know: unit, n, interval, sources, what is missing and why.
        frame: the exact numbers drawn.
    """

    name: str
    title: str
    caption: str
    figure: Figure
    frame: pd.DataFrame


@dataclass(frozen=True, eq=False)
class Material:
    """Everything figures are drawn from.

    Attributes:
        study: study.json.
        tables: by name, as read from tables/*.csv.
        statistics: tables/statistics.json, or None.
        marks: published observations in tok/s to draw as marks, or None.
        derived: what follows from the published observations by arithmetic.
    """

    study: Mapping[str, Any]
    tables: Mapping[str, pd.DataFrame]
    statistics: Mapping[str, Any] | None = None
    marks: pd.DataFrame | None = None
    derived: tuple[observations.Derived, ...] = ()
    cells: pd.DataFrame = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "cells", self.tables["cells"])

    @classmethod
    def read(
        cls,
        tables_dir: Path,
        study: Mapping[str, Any],
        statistics: Mapping[str, Any] | None,
        reference: Path | None,
    ) -> Material:
        """From the tables of a study; `reference` is a CSV of published observations."""
        frames = {
            path.stem: tables.read(path)
            for path in sorted(Path(tables_dir).glob("*.csv"))
            if path.stat().st_size > 1
        }
        frames.setdefault("cells", tables.read(Path(tables_dir) / "cells.csv"))
        if reference is None:
            return cls(study, frames, statistics)
        published = observations.read_reference(reference)
        derived = tuple(observations.derive(published))
        return cls(study, frames, statistics, observations.marks(published), derived)

    def table(self, name: str, what: str) -> pd.DataFrame:
        """A table with at least one row; NotDrawn says what is missing."""
        frame = self.tables.get(name)
        if frame is None or frame.empty:
            raise NotDrawn(what)
        return frame

    @cached_property
    def axes(self) -> list[str]:
        """The axes beside steps and profile."""
        return [a for a in self.study["axes"] if a not in ("steps", "nccl")]

    @cached_property
    def profiles(self) -> list[str]:
        """NCCL profiles in the study's order."""
        return list(dict.fromkeys(c["nccl"] for c in self.study["cells"]))

    @cached_property
    def looks(self) -> dict[str, Look]:
        """How each profile is drawn."""
        return looks(self.profiles)

    @cached_property
    def on_cpu(self) -> bool:
        """Whether the servers ran on a CPU, where NCCL is never used."""
        return command.device(dict(self.study["config"])) == "cpu"

    @cached_property
    def steps(self) -> list[int]:
        """Every number of steps in the grid, rising."""
        return sorted({int(c["steps"]) for c in self.study["cells"]})

    @cached_property
    def passed(self) -> pd.DataFrame:
        """The rows of cells.csv that are results."""
        return self.cells[self.cells["status"] == "passed"]

    @cached_property
    def lowest(self) -> int:
        """The fewest streams that were timed: the study's number."""
        if self.passed.empty:
            raise NotDrawn("no launch was measured to the end")
        return int(self.passed["concurrency"].min())

    @cached_property
    def verdicts(self) -> dict[str, str]:
        """What the gates say of each cell's NCCL profile: the weakest word over its passed launches."""
        order = ["contradicted", "unknown", "not_exercised", "confirmed"]
        found: dict[str, str] = {}
        for cell, words in self.passed.groupby("cell")["nccl_verdict"]:
            known = [w if w in order else "unknown" for w in words]
            found[str(cell)] = min(known, key=order.index)
        return found

    def profile_label(self, nccl: str) -> str:
        """The profile's name, with what is not proved of it behind."""
        cells = [c["id"] for c in self.study["cells"] if c["nccl"] == nccl]
        words = {self.verdicts[c] for c in cells if c in self.verdicts}
        for verdict in ("contradicted", "not_exercised", "unknown"):
            if verdict in words:
                return f"{nccl} ({_VERDICT_WORDS[verdict]})"
        return nccl

    @cached_property
    def nothing_exercised(self) -> bool:
        """Whether no profile did anything: cells that differ by it alone are one configuration."""
        return bool(self.verdicts) and set(self.verdicts.values()) == {"not_exercised"}

    @cached_property
    def apart(self) -> dict[str, str]:
        """Measured cells whose values are not comparable with most others', and why.

        Compared is what the study's statistics compare with the reference in its first epoch.
        """
        frame = self.tables.get("contrasts")
        if frame is None or "kind" not in frame or not (frame["kind"] == "reference").any():
            return {}
        rows = frame[frame["kind"] == "reference"]
        first = int(rows["epoch"].min())
        together = {self.study["reference"], *rows.loc[rows["epoch"] == first, "cell"]}
        later = set(rows["cell"])
        return {
            cell: "in a later epoch" if cell in later else "on another machine than the reference"
            for cell in dict.fromkeys(self.passed["cell"])
            if cell not in together
        }

    def hollow(self, cell: str) -> bool:
        """Whether the cell is drawn hollow: its profile did nothing that was proved."""
        return self.verdicts.get(cell, "unknown") != "confirmed"
