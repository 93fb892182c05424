"""A test's own small world: folders, specs, owners and jobs as processes, and who is still alive."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from quietgate.serve import lease
from quietgate.serve.lease import LaunchSpec, Live, Process
from quietgate.serve.slots import Slot

HERE = Path(__file__).parent
STUB = HERE / "stub_server.py"
JOB = HERE / "job.py"
PATIENCE_S = 30.0  # a bound for a loaded machine, never a sleep
TAG = "QUIETGATE_TEST_HOUSE"


def until(what: Callable[[], Any], timeout_s: float = PATIENCE_S, why: str = "") -> Any:
    """The first true value of `what`, polled."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if value := what():
            return value
        time.sleep(0.01)
    raise AssertionError(f"not within {timeout_s} s: {why or what}")


class Job(subprocess.Popen):
    """A job as Snakemake would start it: told about its owner by the environment only."""

    def lines(self) -> list[dict]:
        text = self.out.read_text() if self.out.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def said(self, key: str, timeout_s: float = PATIENCE_S) -> Any:
        """The value of the first line with `key`; fails at once if the job ends without it."""

        def look():
            ended = self.poll() is not None
            for line in self.lines():
                if key in line:
                    return line[key] or True
            assert not ended, f"job ended, {self.returncode}, without {key}: {self.out.read_text()}"
            return None

        return until(look, timeout_s, f"{key} in {self.out}")


class House:
    """See the module."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.tag = uuid.uuid4().hex
        self.slot_dir = folder / "slots"
        self.study = folder / "study"
        self.slots = (Slot("cpu", ("cpu",), {}),)
        self._started: list[subprocess.Popen] = []

    def spec(self, *options: str, cell: str = "c", processes: int = 1, **changes: Any) -> LaunchSpec:
        """A launch of the stub server with these options."""
        made = LaunchSpec(
            study="s",
            cell=cell,
            launch="l1",
            digest="d",
            processes=tuple(self.process(*(options if n == 0 else ()), number=n) for n in range(processes)),
            cwd=str(self.folder),
            drop=(),
            keep=(),
            instances_dir=self.study / "cells" / cell / "l1" / "instances",
            live_dir=self.study / ".live" / cell / "l1",
            slots=self.slots,
            grace_s=0.5,
            idle_s=PATIENCE_S * 4,
            idle_contended_s=PATIENCE_S * 4,
        )
        return replace(made, **changes)

    @staticmethod
    def process(*options: str, number: int = 0, **more: Any) -> Process:
        seen = f"{{instance_dir}}/seen.{number}.json"
        return Process(
            (sys.executable, "-S", str(STUB), "--port", "{node_port}", "--seen", seen, *options), **more
        )

    def owner(self) -> subprocess.Popen:
        """A process that stands for a run's Snakemake; `.variable` is what its jobs inherit."""
        code = "from quietgate.serve import lease; import os, sys; lease.claim_owner();"
        code += "print(os.environ['QUIETGATE_OWNER'], flush=True); sys.stdin.read()"
        env = {k: v for k, v in os.environ.items() if k != "QUIETGATE_OWNER"}
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True
        )
        process.variable = process.stdout.readline().strip()
        self._started.append(process)
        return process

    def job(self, spec: LaunchSpec, *verb: str, owner: subprocess.Popen | None = None) -> Job:
        """Start `job.py VERB...` on a spec, owned by `owner` (default: this process)."""
        name = uuid.uuid4().hex[:8]
        path, out = self.folder / f"job.{name}.spec.json", self.folder / f"job.{name}.out"
        path.write_text(json.dumps(spec.as_json()))
        env = dict(os.environ, **({"QUIETGATE_OWNER": owner.variable} if owner else {}))
        with out.open("wb") as f:
            job = Job([sys.executable, str(JOB), str(path), *verb], env=env, stdout=f, stderr=f)
        job.out = out
        self._started.append(job)
        return job

    def up(self, live: Live, number: int = 0) -> dict:
        """Wait until a stub server listens; what it saw of its arguments and environment."""
        path = live.instance_dir / f"seen.{number}.json"
        until(path.exists, why=f"{path}: {live.log.read_text() if live.log.exists() else 'no log'}")
        return json.loads(path.read_text())

    def lease_of(self, spec: LaunchSpec) -> dict:
        return json.loads((spec.live_dir / "lease.json").read_text())

    def exits(self, spec: LaunchSpec) -> list[dict]:
        found = [json.loads(p.read_text()) for p in spec.instances_dir.glob("*/exit.json")]
        return sorted(found, key=lambda e: e["ended_at"])

    def exit(self, spec: LaunchSpec) -> dict:
        """The one exit record of a launch, once it is there."""
        return until(lambda: self.exits(spec), why=f"exit.json of {spec.cell}")[-1]

    def alive(self) -> list[str]:
        """Processes of this house except this one: by environment, or by a path of it in argv."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                    continue
                command = process.cmdline()
                if any(self.tag in word or str(self.folder) in word for word in command) or (
                    process.environ().get(TAG) == self.tag
                ):
                    found.append(f"{process.pid} {' '.join(command)}")
            except psutil.Error:
                continue
        return found

    def close(self) -> None:
        """End the helpers, then see that nothing of the house is left."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream:
                    stream.close()
        try:
            until(lambda: not self.alive(), 12, "nothing of ours left alive")
        except AssertionError:
            left = self.alive()
            for line in left:
                os.kill(int(line.split()[0]), signal.SIGKILL)
            raise AssertionError(f"still alive: {left}") from None


def release(spec: LaunchSpec, reason: str = "released") -> dict:
    return lease.release(spec.live_dir, spec.instances_dir, reason)


def kill(*pids: int) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
