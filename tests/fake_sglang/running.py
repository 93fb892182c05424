"""Start the fake server from a test and always end it, by its pid.

from fake_sglang.running import fake_server  # in a conftest.py: a fixture

def test_x(fake_server):
    server = fake_server("--speculative-num-steps", "2", mode="cut-stream")
    requests.get(server.url + "/server_info")
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("server.py")
SPECULATION = (
    "--speculative-algorithm EAGLE3 --speculative-draft-model-path draft --speculative-eagle-topk 1"
    " --speculative-num-steps {steps} --speculative-num-draft-tokens {tokens}"
)


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def speculation(steps: int) -> list[str]:
    """The EAGLE-3 flags for a number of steps; none for 0."""
    return SPECULATION.format(steps=steps, tokens=steps + 1).split() if steps else []


@dataclass
class Running:
    """One fake server that a test started."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Its process."""
        return self.process.pid

    def text(self) -> str:
        """What it has logged so far."""
        return self.log.read_text(errors="replace")

    def wait_for(self, pattern: str, timeout_s: float = 30) -> str:
        """Wait until a line of the log matches; its first match."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            if found := re.search(pattern, self.text()):
                return found.group()
            if self.process.poll() is not None and not re.search(pattern, self.text()):
                break
            time.sleep(0.01)
        raise AssertionError(f"no {pattern!r} in the log of the fake server:\n{self.text()}")

    def grandchildren(self) -> list[int]:
        """Pids of the runaway processes that it announced."""
        return [int(p) for p in re.findall(r"fake_sglang: grandchild (\d+)", self.text())]

    def stop(self) -> int:
        """End it and what it left behind; its exit status."""
        for sig, grace_s in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 10.0)):
            if self.process.poll() is None:
                self.process.send_signal(sig)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(grace_s)
        for pid in self.grandchildren():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return self.process.wait()


def start(
    log: Path,
    *flags: str,
    mode: str = "",
    env: dict[str, str] | None = None,
    port: int | None = None,
    ready: bool = True,
    model: str = "model",
    timeout_s: float = 30,
) -> Running:
    """Start a fake server that logs to `log`; with `ready`, return once it says that it is."""
    port = port or free_port()
    argv = [sys.executable, str(SCRIPT), "--model-path", model, "--host", "127.0.0.1"]
    argv += ["--port", str(port), "--fake-health-s", "0.05", *flags]
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("NCCL_", "FAKE_SGLANG"))}
    environ |= {"FAKE_SGLANG_MODE": mode, **(env or {})}
    with log.open("wb") as out:
        process = subprocess.Popen(
            argv, stdout=out, stderr=subprocess.STDOUT, env=environ, start_new_session=True
        )
    running = Running(process, port, log)
    if ready:
        try:
            running.wait_for("ready to roll", timeout_s)
        except BaseException:
            running.stop()
            raise
    return running


@pytest.fixture
def fake_server(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """A function that starts fake servers (see `start`, without the log); all end with the test."""
    servers: list[Running] = []

    def begin(*flags: str, **options: object) -> Running:
        log = tmp_path / f"fake-{len(servers)}.log"
        server = start(log, *flags, **options)  # type: ignore[arg-type]
        servers.append(server)
        return server

    yield begin
    for server in servers:
        server.stop()
