"""The embedded environment's builder: what it decides, without a network."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("build_env", ROOT / "workflow" / "embedded" / "build_env.py")
assert spec is not None
assert spec.loader is not None
build_env = importlib.util.module_from_spec(spec)
spec.loader.exec_module(build_env)


@pytest.fixture
def requirements(tmp_path):
    path = tmp_path / "pins.txt"
    path.write_text("# two\nb==2\na==1  # why\n")
    return path


def finished(target, requirements):
    """A folder that looks like a finished build."""
    target.joinpath("bin").mkdir(parents=True)
    target.joinpath("bin", "python").write_text("")
    stamp = build_env.wanted(target, requirements)
    target.joinpath(build_env.STAMP).write_text(json.dumps(stamp))


def test_the_digest_is_of_the_pins_alone(tmp_path, requirements):
    digest = build_env.requirements_digest(requirements)
    other = tmp_path / "other.txt"
    other.write_text("a==1\n\nb==2\n# a comment\n")
    assert build_env.requirements_digest(other) == digest
    other.write_text("a==1\nb==3\n")
    assert build_env.requirements_digest(other) != digest


def test_a_finished_build_is_recognised(tmp_path, requirements):
    finished(tmp_path / "env", requirements)
    assert build_env.is_built(tmp_path / "env", requirements)


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda env, pins: env.joinpath(build_env.STAMP).unlink(), id="no stamp: cut"),
        pytest.param(lambda env, pins: env.joinpath(build_env.STAMP).write_text("{"), id="half a stamp"),
        pytest.param(lambda env, pins: env.joinpath("bin", "python").unlink(), id="no interpreter"),
        pytest.param(lambda env, pins: pins.write_text("a==1\n"), id="other requirements"),
    ],
)
def test_anything_else_is_built_again(tmp_path, requirements, spoil):
    env = tmp_path / "env"
    finished(env, requirements)
    spoil(env, requirements)
    assert not build_env.is_built(env, requirements)


def test_a_moved_environment_is_built_again(tmp_path, requirements):
    finished(tmp_path / "env", requirements)
    moved = (tmp_path / "env").rename(tmp_path / "elsewhere")
    assert not build_env.is_built(moved, requirements)


def test_another_python_builds_again(tmp_path, requirements, monkeypatch):
    finished(tmp_path / "env", requirements)
    monkeypatch.setattr(build_env.platform, "python_version", lambda: "3.99.0")
    assert not build_env.is_built(tmp_path / "env", requirements)


CUDA_BUILD = """\
Metadata-Version: 2.4
Name: torch
Requires-Dist: filelock
Requires-Dist: setuptools>=77.0.3
Requires-Dist: cuda-toolkit[cublas,cudart]==13.0.3; platform_system == "Linux"
Requires-Dist: nvidia-nccl-cu13==2.29.7; platform_system == "Linux"
Requires-Dist: triton==3.7.1; platform_system == "Linux"
Requires-Dist: nvidia-extra==1; extra == "more"

Requires-Dist: nvidia-in-the-description==1
"""


def test_a_cuda_build_of_torch_names_its_libraries():
    assert build_env.cuda_requirements(CUDA_BUILD) == [
        'cuda-toolkit[cublas,cudart]==13.0.3; platform_system == "Linux"',
        'nvidia-nccl-cu13==2.29.7; platform_system == "Linux"',
    ]


def test_a_cpu_build_of_torch_needs_none():
    assert build_env.cuda_requirements("Name: torch\nRequires-Dist: filelock\nRequires-Dist: sympy\n") == []


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (
            "Collecting x\nERROR: No matching distribution for x==9\nnote: y\n",
            "ERROR: No matching distribution for x==9",
        ),
        (
            "Traceback\n  File\nModuleNotFoundError: No module named 'x'\n\n",
            "ModuleNotFoundError: No module named 'x'",
        ),
        ("", "no output"),
    ],
)
def test_the_telling_line(output, line):
    assert build_env.telling_line(output) == line


class Steps:
    """Stands in for the commands of a build: notes them, makes what `venv` would, fails where asked."""

    def __init__(self, target, metadata="Name: torch\n", fail=None):
        self.target, self.metadata, self.fail = target, metadata, fail
        self.commands = []

    def __call__(self, command, log, what):
        words = [str(c) for c in command]
        self.commands.append(words)
        if self.fail and self.fail in words:
            raise build_env.BuildError(f"{what} failed: because (whole output: {log})")
        if "venv" in words:
            site = self.target / "lib" / "python3.11" / "site-packages" / "torch-2.dist-info"
            site.mkdir(parents=True)
            site.joinpath("METADATA").write_text(self.metadata)
            self.target.joinpath("bin").mkdir()
            self.target.joinpath("bin", "python").write_text("")
        if "--trial" in words:
            return 'a warning\n{"sglang": "0.5", "torch": "2.0+cpu", "transformers": "5"}\n'
        return '[{"name": "torch", "version": "2.0+cpu"}]'


def run_main(monkeypatch, requirements, steps, *more):
    monkeypatch.setattr(build_env, "run", steps)
    return build_env.main([str(steps.target), "--requirements", str(requirements), *more])


def test_a_build_installs_tries_and_stamps(tmp_path, requirements, monkeypatch):
    steps = Steps(tmp_path / "env")
    assert run_main(monkeypatch, requirements, steps) == 0
    installs = [c for c in steps.commands if "install" in c]
    assert len(installs) == 1
    assert "--no-deps" in installs[0]
    stamp = json.loads((tmp_path / "env" / build_env.STAMP).read_text())
    assert stamp["torch"] == "2.0+cpu"
    assert stamp["packages"] == {"torch": "2.0+cpu"}
    assert build_env.is_built(tmp_path / "env", requirements)
    # Nothing to do the second time.
    steps.commands.clear()
    assert run_main(monkeypatch, requirements, steps) == 0
    assert steps.commands == []


def test_a_cuda_build_gets_its_libraries_too(tmp_path, requirements, monkeypatch):
    steps = Steps(tmp_path / "env", metadata=CUDA_BUILD)
    assert run_main(monkeypatch, requirements, steps) == 0
    libraries = [c for c in steps.commands if "install" in c][1]
    assert "--no-deps" not in libraries
    assert any(word.startswith("nvidia-nccl-cu13==") for word in libraries)
    assert libraries[libraries.index("-c") + 1] == str(requirements)


@pytest.mark.parametrize("fail", ["venv", "install", "--trial"])
def test_a_cut_build_is_one_line_and_is_repeated_from_nothing(
    tmp_path, requirements, monkeypatch, capsys, fail
):
    steps = Steps(tmp_path / "env", fail=fail)
    assert run_main(monkeypatch, requirements, steps) == 1
    error = capsys.readouterr().err
    assert error.startswith("build_env.py: ")
    assert error.count("\n") == 1
    assert not build_env.is_built(tmp_path / "env", requirements)
    left_over = tmp_path / "env" / "left-over"
    left_over.parent.mkdir(exist_ok=True)
    left_over.write_text("")
    steps.fail = None
    assert run_main(monkeypatch, requirements, steps) == 0
    assert not left_over.exists()


def test_torch_from_an_index_of_its_own(tmp_path, monkeypatch):
    pins = tmp_path / "pins.txt"
    pins.write_text("a==1\ntorch==2.0\ntorchvision==1\n")
    steps = Steps(tmp_path / "env")
    assert run_main(monkeypatch, pins, steps, "--torch-index", "https://example.org/cpu") == 0
    first = next(c for c in steps.commands if "install" in c)
    assert first[-4:] == ["--no-deps", "--index-url", "https://example.org/cpu", "torch==2.0"]


def test_a_missing_requirements_file_is_bad_input(tmp_path, capsys):
    assert build_env.main([str(tmp_path / "env"), "--requirements", str(tmp_path / "no.txt")]) == 2
    assert "no such requirements file" in capsys.readouterr().err


def test_a_failing_command_is_told_in_one_line_with_its_log(tmp_path):
    log = tmp_path / "log"
    command = [sys.executable, "-c", "print('before'); print('ERROR: no such thing'); raise SystemExit(3)"]
    with pytest.raises(
        build_env.BuildError, match=r"step failed: ERROR: no such thing \(whole output: .*log\)"
    ):
        build_env.run(command, log, "step")
    assert "before" in log.read_text()


def test_the_shipped_requirements_are_pins():
    lines = (ROOT / "envs" / "sglang-cpu.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(pin.count("==") == 1 for pin in pins)
    assert {"sglang==0.5.23", "torch==2.13.0"} <= set(pins)


@pytest.mark.process
def test_two_builds_at_once_wait_for_each_other(tmp_path):
    script = (
        "import sys, time; sys.path.insert(0, sys.argv[1]); import build_env; from pathlib import Path\n"
        "with build_env.alone(Path(sys.argv[2])):\n"
        "    f = Path(sys.argv[3]); assert not f.exists(); f.touch(); time.sleep(0.3); f.unlink()\n"
    )
    arguments = [str(ROOT / "workflow" / "embedded"), str(tmp_path / "env"), str(tmp_path / "inside")]
    both = [subprocess.Popen([sys.executable, "-c", script, *arguments]) for _ in range(2)]
    assert [p.wait(60) for p in both] == [0, 0]


@pytest.mark.process
def test_a_step_that_outlives_a_killed_build_keeps_the_next_one_waiting(tmp_path):
    started, written = tmp_path / "started", tmp_path / "written"
    step = f"import time, pathlib; pathlib.Path({str(started)!r}).touch(); time.sleep(1); "
    step += f"pathlib.Path({str(written)!r}).touch()"
    killed = (
        "import os, sys, threading, time; sys.path.insert(0, sys.argv[1]); import build_env\n"
        "from pathlib import Path\n"
        "def die():\n"
        f"    while not Path({str(started)!r}).exists(): time.sleep(0.02)\n"
        "    os.kill(os.getpid(), 9)\n"
        "with build_env.alone(Path(sys.argv[2])):\n"
        "    threading.Thread(target=die).start()\n"
        f"    build_env.run([sys.executable, '-c', {step!r}], Path(sys.argv[2] + '.log'), 'step')\n"
    )
    arguments = [str(ROOT / "workflow" / "embedded"), str(tmp_path / "env")]
    assert subprocess.run([sys.executable, "-c", killed, *arguments], timeout=60).returncode == -9
    with build_env.alone(tmp_path / "env"):
        assert written.exists()
