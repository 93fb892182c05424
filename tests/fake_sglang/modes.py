"""How the fake server misbehaves: `FAKE_SGLANG_MODE`, several modes joined by spaces.

    slow-start:S            listens after S seconds
    crash-at-start[:S]      CUDA out of memory after S seconds (0.1)
    exit-at-start[:STATUS]  ends by itself while weights load, with an error that nobody knows
    crash-mid-request[:N]   the scheduler dies inside a request, after N whole ones (0)
    never-healthy           HTTP answers, /health is 503 for ever, /generate never answers
    healthy-but-no-decode   /health is 200, prefill works, no decode ever ends
    ignore-term             SIGTERM does nothing
    grandchildren           a process in its own session, cleared environment, ignoring SIGTERM
    hang[:N]                after N whole requests, a stream stops in the middle and stays open
    cut-stream[:N]          after N whole requests, a stream is closed in the middle
    http-500[:N]            after N whole requests, /generate answers 500
    degenerate              the text is a loop of three tokens that the draft guesses always
    wrong-args[:NAME=VALUE] one effective argument is not the requested one
    lose-env                the ranks lack every NCCL variable of the launch

Conditions follow a mode: `crash-at-start@speculative_num_steps=2` holds for that server argument
only, `crash-at-start@once=/path` holds until that file exists, and makes it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

NAMES = (
    "slow-start",
    "crash-at-start",
    "exit-at-start",
    "crash-mid-request",
    "never-healthy",
    "healthy-but-no-decode",
    "ignore-term",
    "grandchildren",
    "hang",
    "cut-stream",
    "http-500",
    "degenerate",
    "wrong-args",
    "lose-env",
)


def _holds(condition: str, args: dict[str, Any]) -> bool:
    name, _, value = condition.partition("=")
    if name == "once":
        first = not Path(value).exists()
        Path(value).touch()
        return first
    return str(args.get(name)) == value


def read(environ: dict[str, str], args: dict[str, Any]) -> dict[str, str]:
    """The modes in force: name -> what follows its colon ("" where nothing does)."""
    text = environ.get("FAKE_SGLANG_MODE", "")
    file = environ.get("FAKE_SGLANG_MODE_FILE")
    if file and Path(file).is_file():
        text += " " + Path(file).read_text()
    modes = {}
    for word in text.split():
        mode, *conditions = word.split("@")
        name, _, value = mode.partition(":")
        if name not in NAMES:
            raise SystemExit(f"fake_sglang: unknown mode {name!r}; known: {', '.join(NAMES)}")
        if all(_holds(condition, args) for condition in conditions):
            modes[name] = value
    return modes
