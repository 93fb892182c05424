"""Where and with what something ran: host, GPUs, versions, code."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from quietgate import __version__
from quietgate.files import read_json, source_digest
from quietgate.gpus import all_gpus, driver_version, links

_PACKAGES = (
    "snakemake",
    "pandas",
    "numpy",
    "scipy",
    "matplotlib",
    "seaborn",
    "aiohttp",
    "requests",
)


def _first_line(path: str, starts: str = "") -> str | None:
    try:
        for line in Path(path).read_text().splitlines():
            if line.startswith(starts):
                return line.split(":", 1)[-1].strip()
    except OSError:
        pass
    return None


@cache
def host() -> dict[str, Any]:
    """The machine: name, system, kernel, processor, cores usable, memory in MiB."""
    memory = _first_line("/proc/meminfo", "MemTotal")
    return {
        "name": platform.node(),
        "system": platform.system(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "processor": _first_line("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "memory_mib": int(memory.split()[0]) // 1024 if memory else None,
    }


@cache
def gpus() -> tuple[dict[str, Any], ...]:
    """Each GPU's uuid, name, memory in MiB and links to the others; empty where there is none."""
    found = all_gpus()
    return tuple(
        {"uuid": g.uuid, "name": g.name, "memory_mib": g.memory_mib, "links": list(row)}
        for g, row in zip(found, links([g.uuid for g in found]), strict=True)
    )


@cache
def driver() -> str | None:
    """The NVIDIA driver's version, or None."""
    return driver_version()


def machine() -> dict[str, Any]:
    """The fields host, gpus and driver of a record."""
    return {"host": host(), "gpus": list(gpus()), "driver": driver()}


@cache
def versions() -> dict[str, str]:
    """Versions of this code, of Python and of the libraries that results depend on."""
    found = {"quietgate": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def sources() -> str:
    """A digest of all of this code: tells what it made from what another version of it made."""
    return source_digest(Path(__file__).parent)


@cache
def git(folder: str) -> dict[str, Any]:
    """The commit checked out in `folder` and whether tracked files differ from it; nulls without git.

    A folder that was packed (workflow/packing) and is no clone says which commit it was packed from, and not
    whether it was edited since. A repository around it that does not track the Snakefile is another's.
    """
    unknown = {"commit": None, "modified": None}
    packed = Path(folder) / ".packed.json"
    if packed.exists() and not (Path(folder) / ".git").exists():
        try:
            said = read_json(packed)
            return {"commit": str(said["commit"]), "modified": True if said["modified"] else None}
        except (TypeError, LookupError):
            return unknown

    def ask(*words: str) -> str | None:
        try:
            run = subprocess.run(
                ["git", "-C", folder, *words],
                capture_output=True,
                text=True,
                timeout=10,
                check=True,
            )
        except (OSError, subprocess.SubprocessError):
            return None
        return run.stdout.strip()

    if ask("ls-files", "--error-unmatch", "Snakefile") is None:
        return unknown
    status = ask("status", "--porcelain", "--untracked-files=no")
    return {
        "commit": ask("rev-parse", "HEAD"),
        "modified": bool(status) if status is not None else None,
    }
