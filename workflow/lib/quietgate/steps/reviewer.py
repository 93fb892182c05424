"""Rule `figures` in reviewer mode: is what somebody shared whole, and does it follow from its records?"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from quietgate.errors import BadInput
from quietgate.share import redraw, verify
from quietgate.share.archive import opened
from quietgate.wording import counted


def main(results: str, scratch: str, log: str) -> None:
    """Run the rule: a verdict per file, and exit status 1 unless every one is good."""
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        print(line, flush=True)

    good = False
    try:
        good = review(Path(results), Path(scratch), say)
    except BadInput as e:
        lines.append(str(e))
        print(e, file=sys.stderr, flush=True)
    Path(log).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    if not good:
        sys.exit(1)


def review(results: Path, scratch: Path, say: Callable[[str], None]) -> bool:
    """Verify and redraw the results at `results`; True where nothing is wrong.

    Args:
        scratch: where tables and figures are made again; emptied before.
    """
    if scratch.exists():
        shutil.rmtree(scratch)
    scratch.mkdir(parents=True)
    with opened(results) as root:
        found = verify.check(root)
        for line in found.problems:
            say(f"problem: {line}")
        for line in found.notes:
            say(f"note: {line}")
        say(
            f"verified: {counted(len(found.problems), 'problem')}"
            if found.problems
            else "verified: whole and unchanged"
        )
        if not found.readable:
            say("not redrawn: the records are not safe to read")
            return False
        verdicts, notes = redraw.attempt(root, scratch)
        bad = sum(v.verdict == redraw.DIFFERS for v in verdicts)
        if bad and (other := redraw.other_code(root)):
            notes.append(other)
        # The link to the unpacked records leads nowhere once they are removed.
        (scratch / "cells").unlink(missing_ok=True)
    for line in notes:
        say(f"note: {line}")
    for verdict in verdicts:
        say(str(verdict))
    same = sum(v.verdict == redraw.SAME for v in verdicts)
    say(
        f"redrawn into {scratch}: {len(verdicts) - bad - same} identical"
        + (f", {same} the same data" if same else "")
        + (f", {bad} DIFFER" if bad else "")
    )
    return not found.problems and not bad
