"""Pack SGLang and the workflow for a GPU machine without a package index: `pack.py OUT`, some minutes.

Writes OUT/sglang.tar.xz (the folder `site`: SGLang and what it imports besides PyTorch) and
OUT/workflow.tar.xz (the folders `quietgate`, this repository as it lies here, and `site`, what Snakemake and
the workflow import). Both `site` are made by pip for the other machine's Python and glibc.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Kernels and data that no server of config/h200-*.yaml reads: 1.4 GB less to carry.
SGLANG_WITHOUT = (
    "sgl_kernel/sm100",  # kernels of another GPU generation
    "sgl_kernel/flash_ops*",  # FlashAttention; these servers attend with Triton
    "sgl_kernel/flashmla_ops*",
    "sgl_kernel/infllm_ops*",
    "sglang/multimodal_gen",  # image and video models
    "pycountry/locales",
    "mistral_common/data",
    "bin",
)
# Solvers of other systems; programs whose first line names the Python that ran pip here.
WORKFLOW_WITHOUT = ("pulp/solverdir/cbc/osx", "pulp/solverdir/cbc/win", "bin")

OLDER_NAMES = ("manylinux2014", "manylinux2010", "manylinux1")  # of manylinux_2_17, _2_12 and _2_5


class PackError(Exception):
    """Something cannot be packed; one line says what and why."""


def pins(requirements: Path) -> list[str]:
    """The pins of a requirements file, `name==version` each, without comments."""
    try:
        lines = [line.split("#")[0].strip() for line in requirements.read_text().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise PackError(f"{requirements}: cannot be read as requirements ({error})") from None
    found = [line for line in lines if line]
    for line in found:
        if not re.fullmatch(r"[A-Za-z0-9._-]+==[^\s=]+", line):
            raise PackError(f"{requirements}: {line!r} is no pin; `name==version` is needed")
    return found


def name_of(pin: str) -> str:
    """The package's name as packaging compares it: https://packaging.python.org/specifications/name-normalization."""
    return re.sub(r"[-_.]+", "-", pin.split("==")[0].strip()).lower()


def lacking(wanted: list[str], has: Path | None) -> list[str]:
    """The pins whose packages `has`, a file of names or pins (`pip freeze` there), does not name."""
    if has is None:
        return wanted
    try:
        there = {name_of(re.split(r"[ =@<>!~;\[]", line.strip())[0]) for line in has.read_text().splitlines()}
    except (OSError, UnicodeDecodeError) as error:
        raise PackError(f"{has}: cannot be read as a list of packages ({error})") from None
    return [pin for pin in wanted if name_of(pin) not in there]


def platform_options(python: str, glibc: str, machine: str) -> list[str]:
    """pip's options for wheels that run there: it matches platforms by name, so each one is named."""
    options = ["--only-binary=:all:", "--implementation", "cp", "--python-version", python]
    for abi in (f"cp{python.replace('.', '')}", "abi3", "none"):
        options += ["--abi", abi]
    major, newest = (int(part) for part in glibc.split("."))
    names = [f"manylinux_{major}_{minor}" for minor in range(newest, 4, -1)]
    for name in (*names, *OLDER_NAMES):
        options += ["--platform", f"{name}_{machine}"]
    return [*options, "--platform", "any"]


def install(wanted: list[str], site: Path, platform: list[str], scratch: Path) -> None:
    """Install the pins for the other machine into the folder `site`."""
    wheels = scratch / f"{site.parent.name}-wheels"
    wheels.mkdir()
    fetch(wanted, wheels, platform)
    # Fetching held the pins against the Python there; installing would hold them against the one here.
    options = ["--no-deps", "--no-compile", "--ignore-requires-python", *platform]
    source = ["--no-index", "--find-links", str(wheels)]
    done = pip(["install", "--target", str(site), *options, *source, *wanted])
    if done.returncode:
        raise PackError(f"pip install: {telling_line(done.stdout)}")


def fetch(wanted: list[str], wheels: Path, platform: list[str]) -> None:
    """Download a wheel of each pin into `wheels`.

    What its author published as source only is built here, which serves if it is pure Python.
    """
    rest = list(wanted)
    while True:
        done = pip(["download", "--no-deps", "--dest", str(wheels), *platform, *rest])
        if done.returncode == 0:
            return
        absent = re.search(r"No matching distribution found for ([^\s(]+)", done.stdout)
        if absent is None or absent[1] not in rest:
            raise PackError(f"pip download: {telling_line(done.stdout)}")
        pin = absent[1]
        rest.remove(pin)
        made = pip(["wheel", "--no-deps", "--no-binary", name_of(pin), "--wheel-dir", str(wheels), pin])
        if made.returncode:
            raise PackError(f"{pin}: no wheel for that machine, and not built: {telling_line(made.stdout)}")
        pure = {name_of(wheel.name.split("-")[0]) for wheel in wheels.glob("*-none-any.whl")}
        if name_of(pin) not in pure:
            raise PackError(f"{pin}: published as source, and what is built of it here runs here only")


def pip(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """Run pip; its output, both streams, is in `stdout`."""
    command = [sys.executable, "-m", "pip", *arguments, "--disable-pip-version-check", "--no-input"]
    return subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def telling_line(output: str) -> str:
    """pip's first ERROR, or its last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return next((line for line in lines if line.startswith("ERROR:")), (lines or ["no output"])[-1])


def leave_out(site: Path, patterns: tuple[str, ...]) -> None:
    """Remove what is never read; say so where nothing fits, since another version may have moved it."""
    for pattern in patterns:
        found = list(site.glob(pattern))
        if not found:
            print(f"  nothing to leave out as {pattern}")
        for path in found:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def repository(folder: Path) -> None:
    """Copy this repository into `folder`: every file that git does not ignore, the example archives apart."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, capture_output=True)
    except FileNotFoundError:
        raise PackError("git is needed: it knows which files are the repository's") from None
    if done.returncode:
        raise PackError(f"git ls-files: {telling_line(done.stderr.decode(errors='replace'))}")
    for name in filter(None, done.stdout.decode(errors="surrogateescape").split("\0")):
        source, copy = ROOT / name, folder / name
        if source.is_file() and not name.startswith("results/examples/"):  # a deleted file is listed too
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy)


def compress(folders: list[Path], archive: Path) -> None:
    """Write the folders as one .tar.xz; it has its name when it is whole."""
    partial = archive.with_name(f".{archive.name}.partial")
    with tarfile.open(partial, "w:xz", preset=6) as tar:
        for folder in folders:
            tar.add(folder, folder.name)
    partial.replace(archive)
    print(f"{archive}: {archive.stat().st_size / 1e6:.1f} MB", flush=True)


def main(argv: list[str] | None = None) -> int:
    """Command line; exit status 0 packed, 2 wrong arguments or something that cannot be packed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="folder for the archives")
    parser.add_argument("--only", choices=("sglang", "workflow"), help="one of the two archives")
    parser.add_argument("--python", default="3.12", help="Python there (%(default)s)")
    parser.add_argument("--glibc", default="2.39", help="glibc there, or older (%(default)s)")
    parser.add_argument("--machine", default="x86_64", help="processor there (%(default)s)")
    parser.add_argument("--has", type=Path, help="packages that the workflow finds there: `pip freeze` of it")
    parser.add_argument(
        "--sglang", type=Path, default=ROOT / "envs/sglang-h200.txt", help="pins (envs/sglang-h200.txt)"
    )
    parser.add_argument(
        "--workflow", type=Path, default=ROOT / "envs/workflow.txt", help="pins (envs/workflow.txt)"
    )
    args = parser.parse_args(argv)
    for option, value in (("--python", args.python), ("--glibc", args.glibc)):
        if not re.fullmatch(r"\d+\.\d+", value):
            parser.error(f"{option}: a version like {parser.get_default(option[2:])} is needed, not {value}")
    platform = platform_options(args.python, args.glibc, args.machine)
    try:
        args.out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            scratch = Path(folder)
            if args.only != "workflow":
                site = scratch / "sglang/site"
                install(pins(args.sglang), site, platform, scratch)
                leave_out(site, SGLANG_WITHOUT)
                compress([site], args.out / "sglang.tar.xz")
            if args.only != "sglang":
                site, code = scratch / "workflow/site", scratch / "workflow/quietgate"
                install(lacking(pins(args.workflow), args.has), site, platform, scratch)
                leave_out(site, WORKFLOW_WITHOUT)
                repository(code)
                compress([code, site], args.out / "workflow.tar.xz")
    except (PackError, OSError) as error:
        print(f"pack.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
