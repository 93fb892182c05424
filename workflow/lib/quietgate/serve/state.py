"""What a launch asks for, what a live server is, and the private files in which both are kept.

Everything in a launch's `.live` folder is private to this package and lives no longer than a run:
it is written so that readers never see half a file, but not flushed to disk.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quietgate.serve.processes import Identity
from quietgate.serve.slots import Slot


@dataclass(frozen=True)
class Process:
    """One process of a server: its argument list and environment.

    Placeholders in arguments and values: `{port}` (where the server answers HTTP), `{node_port}`
    (this process's own: `{port}` for the first), `{dist_port}` (free, with eight free ports above
    it; the same for all processes), `{instance_dir}`, `{slot}`.
    """

    argv: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()


@dataclass(frozen=True)
class LaunchSpec:
    """Everything needed to start one server and to end it."""

    study: str
    cell: str
    launch: str
    digest: str
    processes: tuple[Process, ...]
    cwd: str
    drop: tuple[str, ...]
    keep: tuple[str, ...]
    instances_dir: Path
    live_dir: Path
    slots: tuple[Slot, ...]
    grace_s: float = 30.0
    idle_s: float = 600.0
    idle_contended_s: float = 30.0
    max_life_s: float = 24 * 3600.0
    slot_timeout_s: float = 7 * 24 * 3600.0
    port: int | None = None
    memory_timeout_s: float = 120.0

    def as_json(self) -> dict[str, Any]:
        """The spec as a JSON object, paths made absolute."""
        plain = {
            name: value
            for name, value in vars(self).items()
            if name not in ("processes", "slots", "instances_dir", "live_dir", "cwd")
        }
        return plain | {
            "processes": [vars(p) for p in self.processes],
            "slots": [s.as_json() for s in self.slots],
            "instances_dir": str(self.instances_dir.absolute()),
            "live_dir": str(self.live_dir.absolute()),
            "cwd": str(Path(self.cwd).absolute()),
        }

    @staticmethod
    def from_json(value: dict[str, Any]) -> LaunchSpec:
        """The inverse of `as_json`."""
        return LaunchSpec(
            **{
                **value,
                "processes": tuple(
                    Process(tuple(p["argv"]), dict(p["env"]), tuple(p["unset"])) for p in value["processes"]
                ),
                "slots": tuple(Slot.from_json(s) for s in value["slots"]),
                "drop": tuple(value["drop"]),
                "keep": tuple(value["keep"]),
                "instances_dir": Path(value["instances_dir"]),
                "live_dir": Path(value["live_dir"]),
            }
        )


@dataclass(frozen=True)
class Live:
    """A server that was started and, when this was read, not yet ended.

    `pids` and `pgids` have one entry per process of the launch; `started` the same as identities;
    `gpus` are the UUIDs of its slot's GPUs.
    """

    instance: str
    cell: str
    launch: str
    digest: str
    port: int
    base_url: str
    pids: tuple[int, ...]
    pgids: tuple[int, ...]
    slot: str
    instance_dir: Path
    log: Path
    started_at: float  # Unix time
    live_dir: Path = Path()
    started: tuple[Identity, ...] = ()
    grace_s: float = 30.0
    gpus: tuple[str, ...] = ()


@dataclass(frozen=True)
class End:
    """Why a server ended: in words, and whether that was a failure, and whether its own.

    `returncode` is that of the process that ended by itself first.
    """

    reason: str
    interrupted: bool = False
    by_itself: bool = False
    returncode: int | None = None


class State:
    """The files of a launch's private folder."""

    def __init__(self, live_dir: Path):
        self.folder = Path(live_dir).absolute()
        self.lock = self.folder / "lock"  # held by the supervisors for the server's whole life
        self.order = self.folder / "spec.json"  # what the last launch asked for
        self.lease = self.folder / "lease.json"  # the last server that was started
        self.supervisor_log = self.folder / "supervisor.log"
        self.consumers = self.folder / "consumers"

    def release(self, instance: str) -> Path:
        """Present when this server was asked to end."""
        return self.folder / f"release.{instance}.json"

    def refusal(self, instance: str) -> Path:
        """Present when this launch ended before any server was started."""
        return self.folder / f"refused.{instance}.json"

    def consumer(self, instance: str, name: str) -> Path:
        """Present while a job uses this server."""
        return self.consumers / f"{instance}.{name}.json"

    def tidy(self, instance: str) -> None:
        """Remove what earlier launches left behind. Only for the holder of the lock."""
        for path in [*self.folder.glob("re*.*.json"), *self.consumers.glob("*.json")]:
            if instance not in path.name:
                path.unlink(missing_ok=True)


def exit_file(instances_dir: Path, instance: str) -> Path:
    """Where the end of a server life is recorded."""
    return instances_dir / instance / "exit.json"


def put_json(path: Path, value: Any) -> None:
    """Write private JSON so that a reader sees the old or the new file; not flushed to disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(json.dumps(value, indent=1))
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def utc(seconds: float | None = None) -> str:
    """A time (default: now) as ISO 8601 in UTC, to the millisecond."""
    seconds = time.time() if seconds is None else seconds
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds * 1000) % 1000:03d}Z"
