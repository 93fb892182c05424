"""Rule `share`: the archive of a study, and what was replaced in it."""

from __future__ import annotations

import sys
from pathlib import Path

from quietgate.errors import BadInput
from quietgate.share.bundle import bundle


def main(page: str, log: str) -> None:
    """Run the rule: write <study>-<date>.zip beside the results of `page`; exit status 1 where that fails."""
    results = Path(page).parent
    lines: list[str] = []
    try:
        path = bundle(results, results.parent, lines.append)
    except BadInput as e:
        Path(log).write_text(f"{e}\n", encoding="utf-8")
        print(e, file=sys.stderr)
        sys.exit(1)
    lines.append(f"{path}: {path.stat().st_size / 1e6:.1f} MB; look at the replacements before you send it")
    # The log names what was replaced, so it stays here: archives hold no logs of jobs.
    Path(log).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    print(*lines, sep="\n", flush=True)
