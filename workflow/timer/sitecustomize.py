"""Installs the cycle timer in SGLang releases without plugins (before 0.5.11).

Python runs the first `sitecustomize` on its path; this one may stand before another (a
distribution's, a user's), so it runs that one too.
"""

import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path


def _run_the_next_one():
    here = Path(__file__).resolve().parent
    others = [p for p in sys.path if Path(p).resolve() != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if os.environ.get("EAGLE3_PROFILE", "0") not in ("", "0") and os.environ.get("QUIETGATE_CYCLES"):
    import quietgate_cycle_timer

    quietgate_cycle_timer.register()

_run_the_next_one()
