"""Packing for a machine without a package index, from an index of three small packages made here."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from quietgate import provenance

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="only a git clone can be packed")
PACK = ROOT / "workflow/packing/pack.py"
_spec = importlib.util.spec_from_file_location("pack", PACK)
assert _spec
assert _spec.loader
pack = importlib.util.module_from_spec(_spec)
sys.modules["pack"] = pack  # dataclasses look their module up
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


def commit_in(tmp_path: Path) -> object:
    with tarfile.open(tmp_path / "out/workflow.tar.xz") as archive:
        entry = archive.extractfile("quietgate/.packed.json")
        assert entry
        return json.load(entry)


def test_wheels_for_the_machine_and_the_repository_are_in_one_archive(tmp_path: Path, index: Path) -> None:
    source(index, "py3-none-any")
    done = packed(tmp_path, "compiled==1.0  # why\n\nplain==3.1\nfrom.source==2.0\n")
    assert done.returncode == 0, done.stderr
    found = names(tmp_path)
    assert {"site/compiled.py", "site/plain.py", "site/from_source.py"} <= found
    assert {"quietgate/Snakefile", "quietgate/workflow/packing/pack.py"} <= found
    assert provenance.git(str(ROOT)) == commit_in(tmp_path)
    assert not any(
        name.startswith(("quietgate/results", "site/bin", "site/pulp/solverdir/cbc/osx")) for name in found
    )
    assert not any(name.endswith("direct_url.json") for name in found), "it would name a path of this machine"
    assert "nothing to leave out as pulp/solverdir/cbc/win" in done.stdout
    assert "sgl_kernel" not in done.stdout


def test_what_the_machine_has_is_left_out(tmp_path: Path, index: Path) -> None:
    has = tmp_path / "has.txt"
    has.write_text(
        "\ufeff# bare names, and `pip freeze`\nFrom_Source\nPlain==9\ncompiled==1.0\n-e git+https://x/y#egg=z\n"
    )
    done = packed(tmp_path, "compiled==1.0\nplain==3.1\nfrom.source==2.0\n", "--has", str(has))
    assert done.returncode == 0, done.stderr
    assert "site/plain.py" in names(tmp_path), "another version is there"
    assert not {"site/compiled.py", "site/from_source.py"} & names(tmp_path)


def test_nothing_may_be_lacking(tmp_path: Path, index: Path) -> None:
    has = tmp_path / "has.txt"
    has.write_text("plain\n")
    done = packed(tmp_path, "plain==3.1\n", "--has", str(has))
    assert done.returncode == 0, done.stderr
    assert "site" in names(tmp_path)


def test_sources_alone_can_be_packed(tmp_path: Path, index: Path) -> None:
    source(index, "py3-none-any")
    done = packed(tmp_path, "from.source==2.0\n")
    assert done.returncode == 0, done.stderr
    assert "site/from_source.py" in names(tmp_path)


def test_the_server_s_archive_holds_a_site_without_what_is_never_read(tmp_path: Path, index: Path) -> None:
    files = {"sgl_kernel/flash_ops.so": "", "sgl_kernel/kept.so": "", "test/test_os.py": ""}
    wheel(index, "kernels", "1.0", "py3-none-any", files)
    (tmp_path / "pins.txt").write_text("kernels==1.0\n")
    command = [sys.executable, str(PACK), str(tmp_path / "out"), "--only", "sglang"]
    done = subprocess.run([*command, "--sglang", str(tmp_path / "pins.txt")], text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["sglang.tar.xz"]
    with tarfile.open(tmp_path / "out/sglang.tar.xz") as archive:
        found = set(archive.getnames())
    assert "site/sgl_kernel/kept.so" in found
    assert not {"site/sgl_kernel/flash_ops.so", "site/test"} & found
    assert "nothing to leave out as sgl_kernel/sm100: has it moved?" in done.stdout


def test_what_was_packed_before_is_not_packed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "ROOT", tmp_path)
    subprocess.run(["git", "-C", str(tmp_path), "init", "-q"], check=True)
    made = ("sglang.tar.xz", "a/workflow.tar.xz", "b/.workflow.tar.xz.abc", "results/examples/a.zip")
    for path in (*made, "a/notes.txt", "a/other.tar.xz"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    assert pack.repository() == ["a/notes.txt", "a/other.tar.xz"]
    with pytest.raises(pack.PackError, match="only a git clone can be packed"):
        pack.commit()  # there is none yet


def test_a_folder_that_is_no_clone_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "ROOT", tmp_path)
    with pytest.raises(pack.PackError, match="only a git clone can be packed"):
        pack.repository()


@pytest.mark.parametrize(
    ("pins", "options", "says"),
    [
        ("absent==1.0\n", (), "absent==1.0: the index has no wheel for Python 3.12, glibc 2.39, x86_64"),
        ("plain==3.1\n", ("--python", "3.11"), "plain"),  # pip names the pin that this Python rules out
        ("compiled==1.0\n", ("--glibc", "2.28"), "compiled==1.0"),
        ("compiled==1.0\n", ("--machine", "aarch64"), "compiled==1.0"),
        ("plain>=3\n", (), "'plain>=3' is no pin"),
        ("plain==3.*\n", (), "'plain==3.*' is no pin"),
        ("plain==3..\n", (), "'plain==3..' is no pin"),
        ('plain==3.1;python_version<"3"\n', (), "is no pin"),
        ("--no-index==1\n", (), "'--no-index==1' is no pin"),
        ("plain==3.1\nPlain==3.1\n", (), "plain is pinned twice"),
        ("# none\n", (), "no pin is in it"),
        ("plain==3.1\n", ("--has", "/nowhere"), "/nowhere"),
    ],
    ids=[
        "absent",
        "python",
        "glibc",
        "machine",
        "range",
        "wildcard",
        "dots",
        "marker",
        "option",
        "twice",
        "none",
        "has",
    ],
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
    assert not list((tmp_path / "out").glob("*"))


@pytest.mark.parametrize(
    ("option", "value"), [("--python", "3"), ("--glibc", "2.5"), ("--glibc", "2.400"), ("--machine", "AMD64")]
)
def test_wrong_arguments_are_said_by_name(tmp_path: Path, option: str, value: str) -> None:
    done = packed(tmp_path, "plain==3.1\n", option, value)
    assert done.returncode == 2
    assert option in done.stderr.splitlines()[-1]


def test_a_compiled_package_is_not_taken_from_this_machine(tmp_path: Path, index: Path) -> None:
    source(index, f"cp3{sys.version_info[1]}-none-linux_x86_64")
    done = packed(tmp_path, "from.source==2.0\n")
    assert done.returncode == 2
    assert "what is built of its source here runs here only" in done.stderr


@pytest.mark.parametrize("name", ["workflow.txt", "sglang-h200.txt"])
def test_the_requirements_of_both_archives_are_pins(name: str) -> None:
    found = pack.pins(ROOT / "envs" / name)
    assert len(found) > 50
    assert len({pack.name_of(pin) for pin in found}) == len(found)
