"""Pack SGLang and the workflow for a GPU machine without a package index: `pack.py OUT`, some minutes.

Writes OUT/sglang.tar.xz (the folder `site`: SGLang and what it imports besides PyTorch) and
OUT/workflow.tar.xz (the folders `quietgate`, this repository as it lies here, and `site`, what Snakemake and
the workflow import). Both `site` are made by pip for the other machine's Python and glibc.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMIT = ".packed.json"  # as quietgate.provenance reads it

# Kernels and data that no server of config/h200-*.yaml reads: 1.4 GB less to carry.
SGLANG_WITHOUT = (
    "sgl_kernel/sm100",  # kernels of another GPU generation
    "sgl_kernel/flash_ops*",  # FlashAttention; these servers attend with Triton
    "sgl_kernel/flashmla_ops*",
    "sgl_kernel/infllm_ops*",
    "sglang/multimodal_gen",  # image and video models
    "pycountry/locales",
    "mistral_common/data",
)
WORKFLOW_WITHOUT = ("pulp/solverdir/cbc/osx", "pulp/solverdir/cbc/win")
# Programs, whose first line names the Python here; tests, which would hide the standard library's.
BOTH_WITHOUT = ("bin", "test", "tests")

# Settings of pip that contradict what is asked of it below, whoever made them.
PIP_SETTINGS = {"PIP_USER": "0", "PIP_REQUIRE_HASHES": "0", "PIP_REQUIRE_VIRTUALENV": "0"}


class PackError(Exception):
    """Something cannot be packed; one line says what and why."""


@dataclass(frozen=True)
class Machine:
    """What decides which wheels run there."""

    python: str
    glibc: str
    processor: str

    def __str__(self) -> str:
        return f"Python {self.python}, glibc {self.glibc}, {self.processor}"

    @property
    def options(self) -> list[str]:
        """pip's options: it matches platforms by name, so each older glibc is named too."""
        options = ["--only-binary=:all:", "--implementation", "cp", "--python-version", self.python]
        for abi in (f"cp{self.python.replace('.', '')}", "abi3", "none"):
            options += ["--abi", abi]
        newest = int(self.glibc.split(".")[1])
        names = [f"manylinux_2_{minor}" for minor in range(newest, 4, -1)]
        for name in (*names, "manylinux2014", "manylinux2010", "manylinux1"):
            options += ["--platform", f"{name}_{self.processor}"]
        return [*options, "--platform", "any"]


def lines_of(path: Path) -> list[str]:
    """The lines of a text file without comments and blank ones."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise PackError(f"{path}: cannot be read as a list of packages ({error})") from None
    return [line for line in (re.sub(r"(^|\s)#.*", "", line).strip() for line in lines) if line]


def name_of(text: str) -> str:
    """A package's name at the start of `text`, as packaging compares names (PEP 503)."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", text, maxsplit=1)[0]).lower()


def pins(requirements: Path) -> list[str]:
    """The pins of a requirements file, `name==version` each."""
    found = lines_of(requirements)
    for line in found:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*==[0-9]+([.!+-]?[A-Za-z0-9]+)*", line):
            raise PackError(f"{requirements}: {line!r} is no pin; `name==version` is needed")
    names = [name_of(line) for line in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise PackError(f"{requirements}: {twice} is pinned twice")
    if not found:
        raise PackError(f"{requirements}: no pin is in it")
    return found


def lacking(wanted: list[str], has: list[str]) -> list[str]:
    """The pins that are not there already.

    `has` are lines of `pip freeze`, which leave out what is there in the pinned version, or bare names, which
    leave a package out whatever its version.
    """
    bare = {name_of(line) for line in has if re.fullmatch(r"[\w.-]+", line)}
    there = {(name_of(line), line.split("==")[1].strip()) for line in has if "==" in line}
    return [
        pin for pin in wanted if name_of(pin) not in bare and (name_of(pin), pin.split("==")[1]) not in there
    ]


def install(wanted: list[str], site: Path, machine: Machine, scratch: Path) -> None:
    """Install the pins for the other machine into the folder `site`."""
    site.mkdir(parents=True)
    if not wanted:
        return
    wheels = scratch / f"{site.parent.name}-wheels"
    wheels.mkdir()
    fetch(wanted, wheels, machine)
    # Fetching held the pins against the Python there; installing would hold them against the one here.
    options = ["--no-deps", "--no-compile", "--ignore-requires-python", *machine.options]
    source = ["--no-index", "--find-links", str(wheels)]
    done = pip(["install", "--target", str(site), *options, *source, *wanted])
    if done.returncode:
        raise PackError(f"pip install: {telling_line(done.stdout)}")


def fetch(wanted: list[str], wheels: Path, machine: Machine) -> None:
    """Download a wheel of each pin into `wheels`.

    What its author published as source only is built here, which serves if it is pure Python.
    """
    rest = list(wanted)
    while rest:
        done = pip(["download", "--no-deps", "--dest", str(wheels), *machine.options, *rest])
        if done.returncode == 0:
            return
        absent = re.search(r"No matching distribution found for ([^\s(]+)", done.stdout)
        if absent is None or absent[1] not in rest:
            raise PackError(f"pip download: {telling_line(done.stdout)}")
        pin = absent[1]
        rest.remove(pin)
        without = f"{pin}: the index has no wheel for {machine} (or cannot be reached)"
        made = pip(["wheel", "--no-deps", "--no-binary", name_of(pin), "--wheel-dir", str(wheels), pin])
        if made.returncode:
            raise PackError(f"{without}, and none was built: {telling_line(made.stdout)[:300]}")
        pure = {name_of(wheel.name.split("-")[0]) for wheel in wheels.glob("*-none-any.whl")}
        if name_of(pin) not in pure:
            raise PackError(f"{without}, and what is built of its source here runs here only")


def pip(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """Run pip; its output, both streams, is in `stdout`."""
    return subprocess.run(
        [sys.executable, "-m", "pip", *arguments, "--disable-pip-version-check", "--no-input"],
        env={**os.environ, **PIP_SETTINGS},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )


def telling_line(output: str) -> str:
    """pip's first ERROR, or its last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return next((line for line in lines if line.startswith("ERROR:")), (lines or ["no output"])[-1])


def leave_out(site: Path, patterns: tuple[str, ...]) -> None:
    """Remove what is never read; say so where a package has moved it."""
    for pattern in patterns:
        found = list(site.glob(pattern))
        if not found and (site / pattern.split("/")[0]).exists():
            print(f"nothing to leave out as {pattern}: has it moved?", flush=True)
        for path in found:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def git(*words: str) -> str:
    """What git says about this repository."""
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True)
    except FileNotFoundError:
        raise PackError("git is needed: it knows which files are the repository's") from None
    if done.returncode:
        said = (done.stderr.decode(errors="replace").strip().splitlines() or ["no word of git"])[0]
        raise PackError(f"{ROOT}: only a git clone can be packed ({said})")
    return done.stdout.decode(errors="surrogateescape")


def repository() -> list[str]:
    """The files of this repository: all that git does not ignore, but examples and what is made here."""
    if not (ROOT / ".git").exists():
        raise PackError(f"{ROOT}: only a git clone can be packed, and it has no .git")
    listed = git("ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    made = re.compile(r"(.*/)?(\.(sglang|workflow)\.tar\.xz\..*|(sglang|workflow)\.tar\.xz)", re.DOTALL)
    wanted = [n for n in sorted(set(listed)) if n and not n.startswith("results/examples/")]
    # git lists what was deleted as well
    return [n for n in wanted if not made.fullmatch(n) and os.path.lexists(ROOT / n)]


def commit() -> bytes:
    """What is checked out here, as `quietgate.provenance` reads it from a packed folder."""
    modified = bool(git("status", "--porcelain", "--untracked-files=no").strip())
    return json.dumps({"commit": git("rev-parse", "HEAD").strip(), "modified": modified}).encode()


@contextmanager
def archive(path: Path) -> Iterator[tarfile.TarFile]:
    """A .tar.xz that has its name when it is whole."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    unfinished = Path(name)
    try:
        with os.fdopen(handle, "wb") as file, tarfile.open(fileobj=file, mode="w:xz", preset=6) as tar:
            yield tar
        unfinished.chmod(0o644)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB", flush=True)


def pack_sglang(out: Path, wanted: list[str], machine: Machine, scratch: Path) -> None:
    """Write OUT/sglang.tar.xz."""
    site = scratch / "sglang/site"
    install(wanted, site, machine, scratch)
    leave_out(site, SGLANG_WITHOUT + BOTH_WITHOUT)
    with archive(out / "sglang.tar.xz") as tar:
        tar.add(site, "site")


def pack_workflow(
    out: Path, wanted: list[str], files: list[str], code: bytes, machine: Machine, scratch: Path
) -> None:
    """Write OUT/workflow.tar.xz: these files of the repository, and `code`, which says their commit."""
    site = scratch / "workflow/site"
    install(wanted, site, machine, scratch)
    leave_out(site, WORKFLOW_WITHOUT + BOTH_WITHOUT)
    with archive(out / "workflow.tar.xz") as tar:
        for name in files:
            tar.add(ROOT / name, f"quietgate/{name}", recursive=False)
        entry = tarfile.TarInfo(f"quietgate/{COMMIT}")
        entry.size = len(code)
        tar.addfile(entry, io.BytesIO(code))
        tar.add(site, "site")


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """The command line, checked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="folder for the archives")
    parser.add_argument("--only", choices=("sglang", "workflow"), help="one of the two archives")
    parser.add_argument("--python", default="3.12", help="Python there (%(default)s)")
    parser.add_argument("--glibc", default="2.39", help="glibc there, or an older one (%(default)s)")
    parser.add_argument(
        "--machine", default="x86_64", choices=("x86_64", "aarch64"), help="processor there (%(default)s)"
    )
    parser.add_argument(
        "--has", type=Path, help="what need not be packed: `pip freeze` of there, or bare names"
    )
    parser.add_argument(
        "--sglang", type=Path, default=ROOT / "envs/sglang-h200.txt", help="pins (envs/sglang-h200.txt)"
    )
    parser.add_argument(
        "--workflow", type=Path, default=ROOT / "envs/workflow.txt", help="pins (envs/workflow.txt)"
    )
    args = parser.parse_args(argv)
    if not re.fullmatch(r"3\.\d{1,2}", args.python):
        parser.error(f"--python: a version like 3.12 is needed, not {args.python}")
    if not re.fullmatch(r"2\.(1[7-9]|[2-9]\d)", args.glibc):
        parser.error(f"--glibc: a version from 2.17 on is needed, like 2.39, not {args.glibc}")
    return args


def main(argv: list[str] | None = None) -> int:
    """Command line; exit status 0 packed, 2 wrong arguments or something that cannot be packed."""
    args = arguments(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    machine = Machine(args.python, args.glibc, args.machine)
    out = args.out.resolve()
    try:
        has = lines_of(args.has) if args.has else []
        archives: list[Callable[[Machine, Path], None]] = []
        if args.only != "workflow":
            archives.append(partial(pack_sglang, out, lacking(pins(args.sglang), has)))
        if args.only != "sglang":
            wanted = lacking(pins(args.workflow), has)
            archives.append(partial(pack_workflow, out, wanted, repository(), commit()))
        out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out).close()  # minutes before anything is written there
        with tempfile.TemporaryDirectory(prefix="quietgate-pack-") as folder:
            os.environ["TMPDIR"] = folder  # pip's own, which it leaves behind when it is stopped
            for pack in archives:
                pack(machine, Path(folder))
    except (PackError, OSError) as error:
        print(f"pack.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("pack.py: interrupted; what was packed before is there", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
