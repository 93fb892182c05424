"""A gate in front of the fake server: the launch as a study would ask for it."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_sglang.running import Running, fake_server, free_port, speculation

from quietgate.gate import GatePlan
from quietgate.measure.prompts import Prompt
from quietgate.serve import processes
from quietgate.serve.state import Live

__all__ = ["fake_server"]

PROMPTS = tuple(
    Prompt(f"p{i}", "writing", text)
    for i, text in enumerate(
        ("Tell me about rivers.", "Write a letter to a neighbour.", "Explain how a lock works.")
    )
)


@pytest.fixture
def gated(fake_server: Callable[..., Running], tmp_path: Path) -> Callable[..., Any]:
    """Start a fake server as a cell would ask for it: returns (live, plan)."""

    def begin(
        steps: int = 2,
        flags: str = "",
        env: dict[str, str] | None = None,
        asked_env: dict[str, str] | None = None,
        asked_flags: str | None = None,
        mode: str = "",
        ready: bool = False,
        port: int | None = None,
        **plan: Any,
    ) -> tuple[Live, GatePlan]:
        folder = tmp_path / "instance"
        folder.mkdir(exist_ok=True)
        port = port or free_port()
        variables = {
            "SPT_NOENV": "1",
            "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_SUBSYS": "INIT,ENV,TUNING",
            "NCCL_DEBUG_FILE": f"{folder}/nccl.%h.%p.log",
            **(env or {}),
        }
        words = [*speculation(steps), "--device", "cuda", "--enable-metrics", *shlex.split(flags)]
        server = fake_server(*words, env=variables, mode=mode, ready=ready, port=port)
        identity = processes.identity(server.pid)
        assert identity is not None
        live = Live(
            instance="0123456789ab",
            cell=f"steps-{steps}_nccl-default",
            launch="l1",
            digest="0" * 16,
            port=port,
            base_url=server.url,
            pids=(server.pid,),
            pgids=(server.pid,),
            slot="cpu",
            instance_dir=folder,
            log=server.log,
            started_at="2026-11-29T17:00:00.000Z",
            started=(identity,),
        )
        asked = words if asked_flags is None else [*words, *shlex.split(asked_flags)]
        argv = ("python", "server.py", "--model-path", "model", *asked, "--port", "{port}")
        made = GatePlan(
            steps=steps,
            argv=(argv,),
            env=({**variables, **(asked_env or {})},),
            device="cuda",
            algorithm="EAGLE3" if steps else None,
            prompts=PROMPTS,
            decode_tokens=40,
            sampling={"max_new_tokens": 24, "temperature": 0, "ignore_eos": True},
            ready_s=60,
            stall_s=30,
            decode_s=30,
            warm_up_tolerance=0.5,
        )
        return live, dataclasses.replace(made, **plan)

    return begin
