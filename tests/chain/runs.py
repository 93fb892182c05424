"""Run the real Snakefile on the fake server, in a folder of its own, and look at what is left.

A `Run` is one study folder. Snakemake is started as a user would start it; processes are recognised as
this run's by their working folder or by the folder's path on their command line, and are only ever ended
by pid.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import yaml

ROOT = Path(__file__).parents[2]
SNAKEMAKE = str(Path(sys.executable).with_name("snakemake"))
FAKE = ROOT / "tests" / "fake_sglang" / "server.py"

STUDY: dict[str, Any] = {
    "study": "t",
    "server": {
        "python": sys.executable,
        "entry": [str(FAKE)],
        "args": {
            "model-path": "model",
            "device": "cpu",
            "max-running-requests": 16,
            "fake-health-s": 0.05,
        },
        "speculative": {"draft_model_path": "draft"},
    },
    "grid": {"steps": [0, 2], "nccl": ["default"]},
    "nccl_profiles": {"default": {}, "ll-ring": {"set": {"NCCL_PROTO": "LL", "NCCL_ALGO": "Ring"}}},
    "benchmark": {"prompt_count": 2, "max_new_tokens": 24, "repeats": 2, "chat_template": "off"},
    "gate": {"prompts": 2, "max_new_tokens": 16, "warm_up_passes": 2, "stall_s": 4, "ready_s": 20},
    "capture": {"cycles": 4, "max_new_tokens": 24, "timeout_s": 20},
    "lease": {"grace_s": 2, "idle_s": 30, "idle_contended_s": 5},
}


class Run:
    """One study in one folder.

    Attributes:
        folder: where snakemake runs; the config is study.yaml in it.
        mode_file: what is written here is the fake server's FAKE_SGLANG_MODE from its next start on.
    """

    def __init__(self, folder: Path, source: Path = ROOT, **changes: Any):
        self.folder = folder
        self.source = source
        self.mode_file = folder / "mode"
        self.config = json.loads(json.dumps(STUDY))
        self.edit(**changes)

    def edit(self, **changes: Any) -> None:
        """Change the config: keys are dotted with __, e.g. benchmark__repeats=3."""
        for dotted, value in changes.items():
            target = self.config
            *path, last = dotted.split("__")
            for key in path:
                target = target.setdefault(key, {})
            target[last] = value
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "study.yaml").write_text(yaml.safe_dump(self.config, sort_keys=False))

    @property
    def results(self) -> Path:
        return self.folder / "results" / self.config["study"]

    def start(self, *args: str, log: str = "log", target: str = "all") -> subprocess.Popen[bytes]:
        """Start snakemake in a session of its own; its output goes to `log` in the folder."""
        environ = {k: v for k, v in os.environ.items() if not k.startswith(("QUIETGATE_OWNER", "NCCL_"))}
        environ |= {
            "FAKE_SGLANG_MODE_FILE": str(self.mode_file),
            "QUIETGATE_SLOT_DIR": str(self.folder / "slots"),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
        }
        command = [SNAKEMAKE, "-s", str(self.source / "Snakefile"), "--cores", "1", target, *args]
        if "--configfile" not in args and "--config" not in args:
            command += ["--configfile", "study.yaml"]
        with (self.folder / log).open("wb") as out:
            return subprocess.Popen(
                command,
                cwd=self.folder,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )

    def __call__(self, *args: str, log: str = "log", target: str = "all", timeout_s: float = 300) -> int:
        """Run snakemake to its end; returns its exit status."""
        process = self.start(*args, log=log, target=target)
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise AssertionError(f"snakemake did not end:\n{self.text(log)[-3000:]}") from None

    def text(self, log: str = "log") -> str:
        """What snakemake printed."""
        return (self.folder / log).read_text(errors="replace")

    def jobs(self, log: str = "log") -> Counter[str]:
        """The jobs that a run set out to do: rule -> how many."""
        table = re.search(r"^Job stats:\n.*\n[- ]+\n((?:\w+ +\d+\n)+)", self.text(log), re.M)
        planned = dict(line.split() for line in table[1].splitlines()) if table else {}
        return Counter(
            {rule: int(n) for rule, n in planned.items() if rule not in ("all", "measured", "total")}
        )

    def finished(self, log: str = "log") -> bool:
        """Whether this run found nothing to do."""
        return "Nothing to be done" in self.text(log)

    def record(self, cell: str, name: str, launch: str = "l1") -> dict[str, Any]:
        """One record of a launch."""
        return json.loads((self.results / "cells" / cell / launch / f"{name}.json").read_text())

    def wait_for(self, pattern: str, log: str = "log", timeout_s: float = 120, count: int = 1) -> None:
        """Wait until snakemake's output matches `count` times."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            path = self.folder / log
            if path.exists() and len(re.findall(pattern, self.text(log))) >= count:
                return
            time.sleep(0.02)
        raise AssertionError(f"never saw {pattern!r}:\n{self.text(log)[-3000:]}")

    def processes(self) -> dict[int, str]:
        """Live processes of this folder, except the test itself: pid -> command line."""
        found = {}
        for process in psutil.process_iter():
            try:
                if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                    continue
                line = " ".join(process.cmdline())
                if str(self.folder) in line or process.cwd().startswith(str(self.folder)):
                    found[process.pid] = line
            except psutil.Error:
                continue
        return found

    def servers(self) -> set[str]:
        """Instances whose server is alive now."""
        marked = set()
        for pid in self.processes():
            try:
                environ = psutil.Process(pid).environ()
            except psutil.Error:
                continue
            if "QUIETGATE_INSTANCE" in environ:
                marked.add(environ["QUIETGATE_INSTANCE"])
        return marked

    def nothing_left(self, timeout_s: float = 30) -> None:
        """Every process of this folder ends within the time."""
        end = time.monotonic() + timeout_s
        while self.processes():
            if time.monotonic() > end:
                left = self.processes()
                for pid in left:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                raise AssertionError(f"left alive: {left}")
            time.sleep(0.05)

    def copy_source(self) -> Path:
        """A copy of the workflow's own code, to edit."""
        target = self.folder / "code"
        for name in ("workflow", "config", "envs", "profiles"):
            shutil.copytree(
                ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True
            )
        shutil.copy2(ROOT / "Snakefile", target / "Snakefile")
        self.source = target
        return target


def every(run: Run, name: str) -> list[Path]:
    """That record of every launch present."""
    return sorted(run.results.glob(f"cells/*/*/{name}.json"))


def stamps(run: Run) -> dict[str, int]:
    """Modification time of every record, table and figure."""
    kept = [p for p in run.results.rglob("*") if p.is_file() and ".live" not in p.parts]
    return {str(p.relative_to(run.results)): p.stat().st_mtime_ns for p in kept if "log" not in p.parts}


Act = Callable[[Run, subprocess.Popen[bytes]], None]
