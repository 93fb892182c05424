"""What this library imports besides the standard library; it imports none of that, to tell of a gap."""

from __future__ import annotations

import importlib.util
import sys

PACKAGES = (
    "aiohttp",
    "jinja2",
    "jsonschema",
    "markupsafe",
    "matplotlib",
    "msgspec",
    "numpy",
    "pandas",
    "PIL",
    "prometheus_client",
    "referencing",
    "requests",
    "rocrate",
    "scipy",
    "yaml",
)


def lacking() -> list[str]:
    """One line for each package that this Python has not.

    A job that meets a gap does so when its server already runs. Packages are found, not imported, which would
    take a second; a folder without code is none.
    """
    lines = []
    for name in PACKAGES:
        found = importlib.util.find_spec(name)
        if found is None or found.origin is None:
            lines.append(
                f"{sys.executable} has no package {name}; install the pins of envs/workflow.txt for it"
            )
    return lines
