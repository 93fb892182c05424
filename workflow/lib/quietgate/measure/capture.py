"""A short profiler pass on the live server: start the profiler, keep it decoding, take the traces.

The profiler stretches whatever is launched from the CPU, so this pass follows the timed ones and
none of its times is a result; kernel times inside its traces are. Stacks and shapes stay off: they
multiply the traces and the stretch.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quietgate.errors import BadInput, CellFailed
from quietgate.files import sha256
from quietgate.inspect.trace import stream
from quietgate.measure import answer, client, exchange
from quietgate.measure.prompts import Prompt
from quietgate.wording import counted

POLL_S = 0.2
HTTP_S = 10.0
# Starting the profiler loads its GPU library, and the answer waits for that.
START_S = 120.0
# How long decoding goes on without any trace before the profiler is told to stop: a server that
# does not know `num_steps` would never stop by itself.
NUDGE_S = 30.0
# How long no trace has changed where it is not known how many come.
QUIET_S = 2.0


def capture(
    base_url: str,
    out_dir: Path,
    prompts: Sequence[Prompt],
    sampling: dict[str, Any],
    cycles: int,
    timeout_s: float,
    stop_check: Callable[[], None],
) -> dict[str, Any]:
    """Profile `cycles` forwards of the live server; the own fields of the record `capture`.

    Requests run one after another until the trace of every rank is in `out_dir`, whole. Raises
    CellFailed (class `profiler`) when that does not happen in time, and whatever `stop_check`
    raises.
    """
    out_dir = Path(out_dir).resolve()
    out_dir.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    info = _server_info(base_url)
    before = set(_traces(out_dir))
    _start(base_url, out_dir, cycles, info, timeout_s)
    driver = _Driver(base_url, prompts, sampling, timeout_s)
    driver.start()
    try:
        ranks, more = _ranks_here(info), _several_nodes(info)
        files = _await_traces(base_url, out_dir, before, ranks, more, driver, timeout_s, stop_check)
        profiler_s = time.monotonic() - started
    finally:
        driver.stop()
    while driver.is_alive() and time.monotonic() < started + timeout_s:
        stop_check()
        driver.join(POLL_S)
    return {
        "trace_files": [{"name": f.name, "sha256": sha256(f), "bytes": f.stat().st_size} for f in files],
        "cycles_requested": cycles,
        "profiler_s": profiler_s,
        "requests": list(driver.done),
    }


def _server_info(base_url: str) -> dict[str, Any]:
    """The server's own arguments; empty where it does not tell (then nothing is assumed of it)."""
    for path in ("/server_info", "/get_server_info"):
        try:
            told = exchange.get(f"{base_url}{path}", HTTP_S)
            found = json.loads(told.text) if told.status == 200 else None
        except (exchange.Unanswered, ValueError):
            continue
        if isinstance(found, dict):
            return found
    return {}


def _ranks_here(info: dict[str, Any]) -> int | None:
    """How many scheduler processes write a trace here at least, or None where unknown."""
    sizes = {name: info.get(name) for name in ("tp_size", "pp_size", "dp_size", "nnodes")}
    known = {name: size for name, size in sizes.items() if isinstance(size, int) and size > 0}
    if "tp_size" not in known:
        return None
    ranks = known["tp_size"] * known.get("pp_size", 1)
    if not info.get("enable_dp_attention"):  # DP attention divides the TP ranks among itself
        ranks *= known.get("dp_size", 1)
    return max(1, ranks // known.get("nnodes", 1))


def _several_nodes(info: dict[str, Any]) -> bool:
    """Whether the server has several nodes: nothing tells how many of them write into this folder."""
    return isinstance(info.get("nnodes"), int) and info["nnodes"] > 1


def _start(
    base_url: str,
    out_dir: Path,
    cycles: int,
    info: dict[str, Any],
    timeout_s: float,
) -> None:
    body = {
        "output_dir": str(out_dir),
        "num_steps": cycles,
        "activities": ["CPU"] if info.get("device") == "cpu" else ["CPU", "GPU"],
        "with_stack": False,
        "record_shapes": False,
    }
    limit_s = min(START_S, timeout_s)
    for attempt in (1, 2):
        try:
            told = exchange.post(f"{base_url}/start_profile", limit_s, body)
            if told.status == 200:
                return
            if attempt == 1:  # perhaps left running by a capture that was interrupted
                exchange.post(f"{base_url}/stop_profile", limit_s)
        except exchange.Unanswered as e:
            raise CellFailed("profiler", f"/start_profile gave no answer ({e})") from None
    raise CellFailed(
        "profiler", f"/start_profile answered {told.status}: {' '.join(told.text.split())[:200]}"
    )


def _await_traces(
    base_url: str,
    out_dir: Path,
    before: set[Path],
    ranks: int | None,
    more: bool,
    driver: _Driver,
    timeout_s: float,
    stop_check: Callable[[], None],
) -> list[Path]:
    """The whole traces of `ranks` ranks; where there may be `more`, all that come until none is written."""
    deadline = time.monotonic() + timeout_s
    nudge_at = time.monotonic() + min(NUDGE_S, timeout_s / 2)
    watched: dict[Path, _Watched] = {}
    while True:
        stop_check()
        for path in _traces(out_dir):
            if path not in before:
                watched.setdefault(path, _Watched(path)).look()
        if watched:
            driver.stop()
        complete = sorted(path for path, w in watched.items() if w.complete)
        if complete and len(complete) == len(watched) and len(complete) >= (ranks or 1):
            exact = ranks is not None and not more
            if exact or all(w.quiet_s() > QUIET_S for w in watched.values()):
                return complete
        if time.monotonic() >= deadline:
            raise CellFailed("profiler", _missing(complete, watched, ranks, timeout_s, driver))
        if not watched and driver.failed_only():
            raise CellFailed(
                "profiler", f"no request succeeded under the profiler: {driver.done[-1]['error']}"
            )
        if not watched and time.monotonic() >= nudge_at and driver.done:
            nudge_at = deadline
            with contextlib.suppress(exchange.Unanswered):  # the deadline speaks
                exchange.post(f"{base_url}/stop_profile", HTTP_S)
        time.sleep(POLL_S)


def _missing(
    complete: list[Path],
    watched: dict[Path, _Watched],
    ranks: int | None,
    timeout_s: float,
    driver: _Driver,
) -> str:
    of = "" if ranks is None else f" of {ranks}"
    partial = sorted(p.name for p, w in watched.items() if not w.complete)
    unfinished = f"; unfinished: {', '.join(partial)}" if partial else ""
    return (
        f"{len(complete)}{of} traces complete after {timeout_s:.0f} s and "
        f"{counted(len(driver.done), 'request')}{unfinished}"
    )


def _traces(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.name.endswith((".json.gz", ".trace.json")))


@dataclass
class _Watched:
    """A trace file that may still be growing."""

    path: Path
    size: int = -1
    since: float = field(default_factory=time.monotonic)
    complete: bool = False

    def look(self) -> None:
        """Check a file that has stopped growing, once per size."""
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            return
        if size != self.size:
            self.size, self.since, self.complete = size, time.monotonic(), False
        elif not self.complete and size:
            self.complete = _whole(self.path)

    def quiet_s(self) -> float:
        """Seconds since its size last changed."""
        return time.monotonic() - self.since


def _whole(path: Path) -> bool:
    """Whether the trace reads to its end: gzip's own check, or the closing brace of plain JSON."""
    reader = stream.TraceFile(path)
    last = b""
    try:
        for chunk in reader.chunks():
            last = chunk
    except BadInput:
        return False
    return last.rstrip().endswith((b"}", b"]"))


class _Driver(threading.Thread):
    """Sends requests one after another until told to stop, so that the profiler sees decoding."""

    def __init__(
        self,
        base_url: str,
        prompts: Sequence[Prompt],
        sampling: dict[str, Any],
        timeout_s: float,
    ):
        super().__init__(name="capture-requests", daemon=True)
        self.done: list[dict[str, Any]] = []
        self._base_url, self._prompts = base_url, prompts
        self._sampling, self._timeout_s = sampling, timeout_s
        self._stop_asked = threading.Event()

    def stop(self) -> None:
        """No further request after the one now running."""
        self._stop_asked.set()

    def failed_only(self) -> bool:
        """Whether three requests came back and none of them succeeded."""
        return len(self.done) >= 3 and not any(r["ok"] for r in self.done)

    def run(self) -> None:
        """Thread body."""
        began = time.perf_counter()
        for prompt in itertools.cycle(self._prompts):
            if self._stop_asked.is_set():
                return
            got = client.ask(self._base_url, prompt.text, self._sampling, self._timeout_s)
            line = answer.record(got, phase="capture", concurrency=1, repeat=0, began_s=began)
            self.done.append(line | {"prompt_id": prompt.id, "category": prompt.category})
            if not got.ok:
                self._stop_asked.wait(0.5)
