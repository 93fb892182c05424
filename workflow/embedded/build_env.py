"""Build the embedded server's own Python environment: `build_env.py TARGET --requirements FILE`.

A virtual environment cannot be moved, so it is built in place and TARGET/quietgate-env.json is written
last: a folder without that stamp, or with a stamp for other requirements, another Python or another
place, is a cut or an old build and is made again from nothing. Standard library only.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

STAMP = "quietgate-env.json"
HERE = Path(__file__).resolve().parent

# What the trial imports: everything a server's processes do, so that the first launch finds it compiled.
TRIAL_MODULES = (
    "sglang.launch_server",
    "sglang.srt.entrypoints.http_server",
    "sglang.srt.managers.scheduler",
    "sglang.srt.managers.detokenizer_manager",
    "sglang.srt.models.registry",
    "sglang.srt.models.llama_eagle3",
    "sglang.srt.speculative.eagle_worker_v2",
)

# Requirements of a wheel that bring shared libraries of CUDA: torch's CUDA build cannot be imported without.
CUDA_LIBRARIES = re.compile(r"(nvidia|cuda)[-_.]", re.IGNORECASE)


class BuildError(Exception):
    """The environment could not be built; one line says why and where the whole output is."""


def requirements_digest(requirements: Path) -> str:
    """SHA-256 over the pins alone: comments, blank lines and their order do not rebuild anything."""
    lines = (line.split("#")[0].strip() for line in requirements.read_text().splitlines())
    pins = sorted(line for line in lines if line)
    return hashlib.sha256("\n".join(pins).encode()).hexdigest()


def wanted(target: Path, requirements: Path) -> dict[str, str]:
    """The part of the stamp that says what the environment is for; a different one means: build again."""
    return {
        "target": str(target.absolute()),
        "python": platform.python_version(),
        "requirements_sha256": requirements_digest(requirements),
    }


def is_built(target: Path, requirements: Path) -> bool:
    """Whether TARGET holds a finished environment for these requirements, this Python, this place."""
    try:
        stamp = json.loads((target / STAMP).read_text())
    except (OSError, ValueError):
        return False
    fits = wanted(target, requirements).items() <= stamp.items()
    return fits and interpreter(target).exists()


def interpreter(target: Path) -> Path:
    """The environment's Python."""
    return target / "bin" / "python"


def cuda_requirements(metadata: str) -> list[str]:
    """The CUDA libraries that a wheel's METADATA asks for, as requirements; empty for a CPU build."""
    found = []
    for line in metadata.splitlines():
        if not line.strip():
            break  # the headers end at the first blank line
        name, _, value = line.partition(": ")
        if name == "Requires-Dist" and CUDA_LIBRARIES.match(value) and "extra ==" not in value:
            found.append(value)
    return found


def run(command: list[str | Path], log: Path, what: str) -> str:
    """Run one step, its output into the log and back to the caller; BuildError when it fails."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET")}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # the trial import is there to leave compiled files
    done = subprocess.run(
        [str(c) for c in command],
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        close_fds=False,  # the lock of `alone`
    )
    with log.open("a") as f:
        f.write(f"$ {' '.join(map(str, command))}\n{done.stdout}\n")
    if done.returncode:
        raise BuildError(f"{what} failed: {telling_line(done.stdout)} (whole output: {log})")
    return done.stdout


def telling_line(output: str) -> str:
    """The one line of a failed command's output that says most: pip's first ERROR, or the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return (errors or lines[-1:] or ["no output"])[0]


def say(text: str, began: float) -> None:
    """One line of progress for the person who waits."""
    print(f"[{time.monotonic() - began:5.0f} s] {text}", flush=True)


@contextlib.contextmanager
def alone(target: Path) -> Iterator[None]:
    """Hold TARGET against a second build, by a lock beside it that the kernel releases if we die.

    The steps inherit the lock: a pip that outlives a killed build holds it until it has stopped writing.
    """
    with target.with_name(f".{target.name}.lock").open("w") as lock:
        os.set_inheritable(lock.fileno(), True)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"another build of {target} is running; waiting for it", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build(target: Path, requirements: Path, torch_index: str | None = None) -> dict[str, object]:
    """Build TARGET from nothing and return the stamp that was written."""
    began = time.monotonic()
    log = target.with_name(f"{target.name}.build.log")
    log.write_text("")
    if target.exists():
        shutil.rmtree(target)
    say(f"virtual environment of Python {platform.python_version()} in {target}", began)
    run([sys.executable, "-m", "venv", target], log, "python -m venv (on Debian: install python3-venv)")
    python = interpreter(target)
    # --no-compile: the trial below compiles what a server imports, a third of what is installed.
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--no-compile"]
    if torch_index:
        pin = next(p for p in requirements.read_text().split() if p.startswith("torch=="))
        say(f"{pin} from {torch_index}", began)
        run([*pip, "--no-deps", "--index-url", torch_index, pin], log, f"pip install {pin}")
    say(f"packages of {requirements.name} (about 2 GB)", began)
    run([*pip, "--no-deps", "-r", requirements], log, f"pip install -r {requirements}")
    metadata = next(target.glob("lib/python*/site-packages/torch-*.dist-info/METADATA"), None)
    cuda = cuda_requirements(metadata.read_text()) if metadata else []
    if cuda:
        say("torch is a CUDA build: adding the CUDA libraries it links to (about 3 GB)", began)
        run([*pip, *cuda, "-c", requirements], log, "pip install of torch's CUDA libraries")
    say("trial: importing the server", began)
    trial = [python, HERE / "serve_cpu.py", "--trial", *TRIAL_MODULES]
    versions = json.loads(run(trial, log, "importing SGLang").splitlines()[-1])
    packages = json.loads(run([python, "-m", "pip", "list", "--format=json"], log, "pip list"))
    stamp = {
        **wanted(target, requirements),
        **versions,
        "built_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - began, 1),
        "packages": {p["name"]: p["version"] for p in packages},
    }
    written = target / f".{STAMP}.partial"
    written.write_text(json.dumps(stamp, indent=1) + "\n")
    written.replace(target / STAMP)
    say(f"done: SGLang {versions['sglang']}, torch {versions['torch']}", began)
    return stamp


def main(argv: list[str] | None = None) -> int:
    """Command line; exit status 0 built or already there, 1 the build failed, 2 wrong arguments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", type=Path, help="folder of the environment")
    parser.add_argument("--requirements", type=Path, required=True, help="pinned requirements")
    parser.add_argument(
        "--torch-index",
        metavar="URL",
        help="package index for torch alone; https://download.pytorch.org/whl/cpu saves the CUDA libraries",
    )
    parser.add_argument("--force", action="store_true", help="build again even if it is there")
    args = parser.parse_args(argv)
    if not args.requirements.is_file():
        print(f"build_env.py: no such requirements file: {args.requirements}", file=sys.stderr)
        return 2
    target = args.target.absolute()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with alone(target):
            if is_built(target, args.requirements) and not args.force:
                print(f"{target} is built already")
                return 0
            build(target, args.requirements.absolute(), args.torch_index)
    except (BuildError, OSError) as error:
        print(f"build_env.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
