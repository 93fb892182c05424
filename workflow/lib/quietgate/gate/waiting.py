"""Waiting for a starting server: until it is there, dies, stalls, or its time is up."""

from __future__ import annotations

from collections.abc import Callable

from quietgate.gate.progress import last_stage
from quietgate.gate.ranks import added_by_sglang
from quietgate.gate.stage import Evidence, StageFailed, Subject, tail


def wait_while_working(subject: Subject, done: Callable[[], bool], deadline_s: float) -> None:
    """Wait for `done` while the server shows signs of work.

    StageFailed of class `hang` when log and processes have been still for `stall_s`, and of class
    `never_ready` when the deadline passes in spite of work; both name the last stage that was reached.
    """

    def finished() -> bool:
        if done():
            return True
        if subject.progress.stalled_s() > subject.plan.stall_s:
            subject.poll()  # a dead server is as still as one that hangs
            raise _hang(subject)
        return False

    subject.wait(finished, deadline_s, lambda: _late(subject, deadline_s))


def _hang(subject: Subject) -> StageFailed:
    stage, lines, evidence = standstill(subject)
    added = evidence["added_by_sglang"]
    hint = ""
    if added:
        words = ", ".join(f"{name}={value}" for name, value in sorted(added.items()))
        hint = f"; SGLang itself added {words} to its ranks"
    return StageFailed(
        "hang",
        f"no sign of work for {subject.plan.stall_s:g} s, the last stage reached is {stage!r}{hint}",
        lines,
        evidence,
    )


def _late(subject: Subject, deadline_s: float) -> StageFailed:
    stage, lines, evidence = standstill(subject)
    return StageFailed(
        "never_ready",
        f"not ready after {deadline_s:g} s, the last stage reached is {stage!r}",
        lines,
        evidence,
    )


def standstill(subject: Subject) -> tuple[str, list[str], Evidence]:
    """Where a boot stands: its stage, the last lines of every log, what SGLang put in the ranks."""
    text = tail(subject.live.log)
    stage, line = last_stage(text)
    lines = [f"server.log: {last}" for last in _last_lines(text, 3)]
    for log in sorted(subject.live.instance_dir.glob("nccl.*.log")):
        lines += [f"{log.name}: {last}" for last in _last_lines(tail(log), 1)]
    evidence = {
        "boot": stage,
        "line": line,
        "added_by_sglang": {
            name: value for name, value in added_by_sglang(subject).items() if name.startswith("NCCL_")
        },
    }
    return stage, lines, evidence


def _last_lines(text: str, count: int) -> list[str]:
    lines = [part.strip() for part in text.replace("\r", "\n").splitlines() if part.strip()]
    return [line[:300] for line in lines[-count:]]
