"""Packing for a machine without a package index, from an index of three small packages made here."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACK = ROOT / "workflow/offline/pack.py"
_spec = importlib.util.spec_from_file_location("pack", PACK)
assert _spec
assert _spec.loader
pack = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(pack)

# A build backend that needs nothing but the standard library; TAG is what its wheel claims to run on.
BACKEND = """
import zipfile
def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "from_source-2.0-TAG.whl"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        wheel.writestr("from_source.py", "built = True\\n")
        info = "from_source-2.0.dist-info"
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: from.source\\nVersion: 2.0\\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: TAG\\n")
        wheel.writestr(f"{info}/RECORD", "")
    return name
"""


def wheel(index: Path, name: str, version: str, tag: str, files: dict[str, str], requires: str = "") -> None:
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(index / f"{name}-{version}-{tag}.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}"
        )
        archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        archive.writestr(f"{info}/RECORD", "")


def source(index: Path, tag: str) -> None:
    files = {
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        "backend.py": BACKEND.replace("TAG", tag),
        "PKG-INFO": "Metadata-Version: 2.1\nName: from.source\nVersion: 2.0\n",
    }
    folder = index / "from_source-2.0"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    with tarfile.open(index / "from_source-2.0.tar.gz", "w:gz") as archive:
        archive.add(folder, folder.name)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "index"
    folder.mkdir()
    there = "cp312-cp312-manylinux_2_31_x86_64"  # no Python that the tests run under can import it
    wheel(
        folder,
        "compiled",
        "1.0",
        there,
        {"compiled.py": "", "bin/program": "", "pulp/solverdir/cbc/osx/x": ""},
    )
    wheel(folder, "plain", "3.1", "py3-none-any", {"plain.py": ""}, "Requires-Python: >=3.12\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return folder


def packed(tmp_path: Path, pins: str, *options: str) -> subprocess.CompletedProcess[str]:
    requirements = tmp_path / "pins.txt"
    requirements.write_text(pins)
    command = [sys.executable, str(PACK), str(tmp_path / "out"), "--only", "workflow", "--workflow"]
    return subprocess.run([*command, str(requirements), *options], text=True, capture_output=True)


def names(tmp_path: Path) -> set[str]:
    with tarfile.open(tmp_path / "out/workflow.tar.xz") as archive:
        return set(archive.getnames())


def test_wheels_for_the_machine_and_the_repository_are_in_one_archive(tmp_path: Path, index: Path) -> None:
    source(index, "py3-none-any")
    done = packed(tmp_path, "compiled==1.0  # why\n\nplain==3.1\nfrom.source==2.0\n")
    assert done.returncode == 0, done.stderr
    found = names(tmp_path)
    assert {"site/compiled.py", "site/plain.py", "site/from_source.py"} <= found
    assert {"quietgate/Snakefile", "quietgate/workflow/offline/pack.py"} <= found
    assert not any(
        name.startswith(("quietgate/results", "site/bin", "site/pulp/solverdir/cbc/osx")) for name in found
    )
    assert not any(name.endswith("direct_url.json") for name in found), "it would name a path of this machine"
    assert "nothing to leave out as pulp/solverdir/cbc/win" in done.stdout


def test_what_the_machine_has_is_left_out_by_its_normalised_name(tmp_path: Path, index: Path) -> None:
    has = tmp_path / "has.txt"
    has.write_text("From_Source @ file:///x\nPlain==9 ; python_version > '3'\n\n")
    done = packed(tmp_path, "compiled==1.0\nplain==3.1\nfrom.source==2.0\n", "--has", str(has))
    assert done.returncode == 0, done.stderr
    assert "site/compiled.py" in names(tmp_path)
    assert "site/plain.py" not in names(tmp_path)


@pytest.mark.parametrize(
    ("pins", "options", "says"),
    [
        ("absent==1.0\n", (), "absent==1.0"),
        ("plain==3.1\n", ("--python", "3.11"), "plain"),  # pip names the pin that this Python rules out
        ("compiled==1.0\n", ("--glibc", "2.28"), "compiled==1.0"),
        ("compiled==1.0\n", ("--machine", "aarch64"), "compiled==1.0"),
        ("plain>=3\n", (), "'plain>=3' is no pin"),
        ("plain==3.1\n", ("--has", "/nowhere"), "/nowhere"),
        ("plain==3.1\n", ("--python", "3"), "--python: a version like 3.12"),
    ],
    ids=["absent", "python", "glibc", "machine", "range", "has", "version"],
)
def test_what_cannot_be_packed_is_said_in_one_line(
    tmp_path: Path, index: Path, pins: str, options: tuple[str, ...], says: str
) -> None:
    done = packed(tmp_path, pins, *options)
    assert done.returncode == 2
    line = done.stderr.splitlines()[-1]
    assert line.startswith("pack.py: ")
    assert says in line
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out/workflow.tar.xz").exists()


def test_a_compiled_package_is_not_taken_from_this_machine(tmp_path: Path, index: Path) -> None:
    source(index, f"cp3{sys.version_info[1]}-none-linux_x86_64")
    done = packed(tmp_path, "from.source==2.0\n")
    assert done.returncode == 2
    assert "what is built of it here runs here only" in done.stderr


@pytest.mark.parametrize("name", ["workflow.txt", "sglang-h200.txt"])
def test_the_requirements_of_both_archives_are_pins(name: str) -> None:
    found = pack.pins(ROOT / "envs" / name)
    assert len(found) > 50
    assert len({pack.name_of(pin) for pin in found}) == len(found)
