"""A study: its cells, its launches in run order, their exact commands and digests, from a resolved config."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from quietgate import versions
from quietgate.errors import BadConfig
from quietgate.files import at_home, digest, read_json, sha256, write_json
from quietgate.study import command
from quietgate.study.cells import Cell, Launch
from quietgate.study.config import load, resolve
from quietgate.study.cross_field import Config
from quietgate.study.epochs import Asked, lay_out
from quietgate.study.flags import canonical

PROMPTS = Path(__file__).parents[3] / "prompts" / "default.jsonl"
BASEDIR = str(Path(__file__).parents[4])


class Study:
    """A resolved config and what follows from it.

    Attributes:
        config: the config with every default filled in.
        source: the file(s) it came from, for messages.
        history: the launches that a finished study of this name had asked for (see `epochs`).
        left_out: launches that are not waited for (see `left_out.unmeasured`).
        only_measured: whether this run is to leave out what is not measured. No part of `config`: the study
            is the same, and whoever repeats it from its records means to measure.
    """

    only_measured = False

    def __init__(
        self,
        config: Config,
        source: str = "config",
        basedir: str = BASEDIR,
        history: tuple[Asked, ...] = (),
        left_out: tuple[Asked, ...] = (),
    ):
        self.config = config
        self.source = source
        self.basedir = basedir
        self.history = history
        self.left_out = left_out
        self._digests: dict[str, dict[str, str]] = {}
        if len({c.id for c in self.cells}) < len(self.cells):
            raise BadConfig([f"{source}: grid: two cells have the same folder name; change a value"])

    @classmethod
    def from_config(cls, config: Config, source: str = "config") -> Study:
        """Build from a config as read; BadConfig lists every problem."""
        resolved = resolve(config, source)
        only_measured = resolved.pop("only_measured")
        study = cls(resolved, source)
        study.only_measured = only_measured
        return study

    @classmethod
    def from_file(cls, path: Path) -> Study:
        """Build from a YAML file; BadConfig lists every problem."""
        return cls.from_config(load(path), str(path))

    @classmethod
    def thaw(cls, path: Path) -> Study:
        """A study as the main process froze it for its jobs (see `freeze`)."""
        frozen = read_json(path)
        if frozen is None:
            raise BadConfig([f"{path}: missing; run snakemake, not the step by itself"])
        history, left_out = (
            tuple(Asked(*asked) for asked in frozen[name]) for name in ("history", "left_out")
        )
        return cls(frozen["config"], frozen["source"], frozen["basedir"], history, left_out)

    def freeze(self, path: Path) -> None:
        """Write the resolved config for the jobs of this run; untouched when nothing changed."""
        frozen = {
            "config": self.config,
            "source": self.source,
            "basedir": self.basedir,
            "history": [[a.cell, a.block, a.epoch] for a in self.history],
            "left_out": [[a.cell, a.block, a.epoch] for a in self.left_out],
        }
        if read_json(path) != frozen:
            write_json(path, frozen)

    @property
    def name(self) -> str:
        """The study's name and folder."""
        return str(self.config["study"])

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """Every cell, in grid order: steps within profile within the other axes."""
        grid = self.config["grid"]
        names = list(grid["axes"])
        cells = []
        for values in itertools.product(*(grid["axes"][n]["values"] for n in names)):
            for nccl, steps in itertools.product(grid["nccl"], grid["steps"]):
                cell = Cell(int(steps), nccl, dict(zip(names, values, strict=True)))
                if steps > 0 or self._first_speculative(cell):
                    cells.append(cell)
        return tuple(cells)

    def _first_speculative(self, cell: Cell) -> bool:
        """Without speculation its flags are not on the command line: one such cell stands for all values."""
        axes = self.config["grid"]["axes"]
        return all(
            value == axes[name]["values"][0] for name, value in cell.axes.items() if self._speculative(name)
        )

    @cached_property
    def untimed(self) -> Cell | None:
        """One cell of the grid once more with every timer off: its twin shows what the timers cost.

        None where the config wants no such cell, where no timer is on (on a CPU, by default), and in a study
        that was finished without one, unless the config asks for it. A study that was finished with one keeps
        it when its grid grows.
        """
        # Studies resolved before there was such a cell have none.
        asked = self.config.get("timer_cost") or {"enabled": False}
        if asked["enabled"] is False:
            return None
        finished = {a.cell for a in self.history}
        named = [
            c for c in self.cells if asked["steps"] in (None, c.steps) and asked["nccl"] in (None, c.nccl)
        ]
        before = (c for c in named if replace(c, timers=False).id in finished)
        twin = next(before, None) or self._twin(asked)
        cell = replace(twin, timers=False)
        # A study that was finished without it does not grow unasked; to name the cell is to ask for it.
        unasked = all(value is None for value in asked.values())
        if unasked and finished and cell.id not in finished:
            return None
        return cell if command.timers_on(self.resolved(twin)) else None

    def _twin(self, asked: dict[str, Any]) -> Cell:
        """The cell that is launched without timers too, by the config's `timer_cost`."""
        steps, grid = asked["steps"], self.config["grid"]
        if steps is None:
            # One step has no draft pass to time.
            steps = min(grid["steps"], key=lambda s: (s < 2, s == 0, s))
        nccl = self.reference.nccl if asked["nccl"] is None else asked["nccl"]
        first = {name: axis["values"][0] for name, axis in grid["axes"].items()}
        return Cell(steps, nccl, first if steps else self._as_without_speculation(first))

    @property
    def about_untimed(self) -> dict[str, Any] | None:
        """The cell without timers by its id, its twin in the grid, and which timers the twin has on."""
        if self.untimed is None:
            return None
        twin = self.untimed.twin
        return {"id": self.untimed.id, "twin": twin.id, "timers": command.timers_on(self.resolved(twin))}

    @cached_property
    def launched(self) -> tuple[Cell, ...]:
        """Every cell that is launched: the grid's, then the one without timers."""
        return self.cells if self.untimed is None else (*self.cells, self.untimed)

    def cell(self, cell_id: str) -> Cell:
        """The launched cell of that id; StopIteration if there is none."""
        return next(c for c in self.launched if c.id == cell_id)

    @property
    def launches(self) -> tuple[Launch, ...]:
        """Every launch that counts, in run order: all that are asked for but those left out."""
        if not self.left_out:
            return self.asked_for
        out = {(a.cell, a.block) for a in self.left_out}
        return tuple(x for x in self.asked_for if (x.cell.id, x.block) not in out)

    @cached_property
    def asked_for(self) -> tuple[Launch, ...]:
        """Every launch in run order: randomised complete blocks, one launch of every cell per block."""
        by_id = {c.id: c for c in self.launched}
        beside = {} if self.untimed is None else {self.untimed.id: self.untimed.twin.id}
        asked = lay_out(list(by_id), self.reference.id, self.config["replicates"], self.history, beside)
        order = []
        for block, members in itertools.groupby(asked, key=lambda a: a.block):
            found = [Launch(by_id[a.cell], block, a.epoch) for a in members]
            launches = [x for x in found if x.cell.timers]
            random.Random(f"{self.config['seed']}/{block}").shuffle(launches)
            for extra in (x for x in found if not x.cell.timers):
                # Put among the others, whose order is the same with and without it.
                place = random.Random(f"{self.config['seed']}/{block}/untimed").randint(0, len(launches))
                launches.insert(place, extra)
            order += launches
        return tuple(order)

    @cached_property
    def reference(self) -> Cell:
        """The cell others are compared with: as named, else the first value of every axis."""
        grid, named = self.config["grid"], self.config["reference"]
        steps = named.get("steps", 0 if 0 in grid["steps"] else grid["steps"][0])
        nccl = named.get("nccl", grid["nccl"][0])
        axes = {
            name: named.get("axes", {}).get(name, axis["values"][0]) for name, axis in grid["axes"].items()
        }
        return Cell(steps, nccl, axes if steps else self._as_without_speculation(axes))

    def _as_without_speculation(self, axes: dict[str, Any]) -> dict[str, Any]:
        """Whatever speculative value they name: the cell at 0 steps that stands for all of them."""
        first = {name: axis["values"][0] for name, axis in self.config["grid"]["axes"].items()}
        return {name: first[name] if self._speculative(name) else value for name, value in axes.items()}

    def _speculative(self, axis: str) -> bool:
        return str(self.config["grid"]["axes"][axis].get("flag", "")).startswith("speculative")

    @property
    def prompts_path(self) -> Path:
        """The prompts file: the user's, else the project's own."""
        named = self.config["benchmark"]["prompts"]
        return at_home(named) if named else PROMPTS

    def sampling(self, max_new_tokens: int | None = None) -> dict[str, Any]:
        """SGLang's sampling_params of every request of the benchmark, or with another output length."""
        settings = self.config["benchmark"]
        return {
            "max_new_tokens": max_new_tokens or settings["max_new_tokens"],
            "temperature": settings["temperature"],
            "top_p": settings["top_p"],
            "ignore_eos": settings["ignore_eos"],
        }

    @property
    def server_folder(self) -> Path:
        """Where relative paths of the server start: of its program, its scripts, its models."""
        return at_home(self.config["server"]["cwd"] or ".")

    @property
    def target_model(self) -> str | None:
        """The target model's path or name, as the server gets it."""
        for key, value in self.config["server"]["args"].items():
            if canonical(key) == "model_path":
                return str(command.model_path(value))
        return None

    def resolved(self, cell: Cell) -> dict[str, Any]:
        """The launch of a cell in two layers; see `quietgate.study.command.resolve`."""
        return command.resolve(self.config, cell.steps, cell.nccl, cell.axes, self.basedir, cell.timers)

    def digests(self, cell: Cell) -> dict[str, str]:
        """What each record of the cell depends on: {"server", "benchmark", "capture"} -> 16 hex digits."""
        if cell.id not in self._digests:
            self._digests[cell.id] = self._digest(cell)
        return self._digests[cell.id]

    def _digest(self, cell: Cell) -> dict[str, str]:
        config = self.config
        launch = self.resolved(cell)
        # Where this code lies in the file system is not part of what is measured.
        launch = json.loads(json.dumps(launch).replace(f"{self.basedir}/", ""))
        if command.is_embedded(config):
            launch["requirements"] = sha256(Path(self.basedir) / command.EMBEDDED_REQUIREMENTS)
        server = digest(launch, config["server"]["cwd"], config["gate"], versions.SERVE)
        prompts = self._prompts_digest
        return {
            "server": server,
            "benchmark": digest(server, config["benchmark"], prompts, versions.MEASURE),
            "capture": digest(server, config["capture"], prompts, versions.CAPTURE),
        }

    @cached_property
    def _prompts_digest(self) -> str:
        try:
            return sha256(self.prompts_path)
        except OSError as e:
            raise BadConfig(
                [f"{self.source}: benchmark.prompts: {self.prompts_path}: {e.strerror or e}"]
            ) from None
