"""Rules `server_env` and `tiny_models`: the default study's server and models, made on the spot."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from quietgate.study import command
from quietgate.study.study import BASEDIR


def server_env(stamp: str, log: str) -> None:
    """Install SGLang for CPU into the folder of `stamp`, which is named after the pins."""
    build = Path(BASEDIR) / "workflow" / "embedded" / "build_env.py"
    pins = Path(BASEDIR) / command.EMBEDDED_REQUIREMENTS
    _run([sys.executable, str(build), str(Path(stamp).parent), "--requirements", str(pins)], log)
    Path(stamp).touch()


def tiny_models(stamp: str, log: str) -> None:
    """Train the tiny target and its draft into the folder of `stamp`, with the server's own Python."""
    train = Path(BASEDIR) / "workflow" / "embedded" / "make_tiny_models.py"
    _run([f"{command.EMBEDDED_ENV}/bin/python", str(train), "--out", str(Path(stamp).parent)], log)


def _run(argv: list[str], log: str) -> None:
    """Run a program, its lines to whoever watches and to the log; its failure is the rule's."""
    with (
        Path(log).open("w", encoding="utf-8") as file,
        subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            file.write(line)
            print(line, end="", file=sys.stderr, flush=True)
    if process.returncode:
        sys.exit(1)
