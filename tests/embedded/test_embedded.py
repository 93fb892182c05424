"""The stand-in for sgl_kernel and the tiny models, under the embedded environment's own Python."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
PYTHON = ROOT / "resources" / "sglang-cpu" / "bin" / "python"
BUILT = PYTHON.parents[1] / "quietgate-env.json"

pytestmark = [
    pytest.mark.embedded,
    pytest.mark.skipif(
        not BUILT.exists(),
        reason="the embedded environment is not built: python workflow/embedded/build_env.py "
        "resources/sglang-cpu --requirements envs/sglang-cpu.txt",
    ),
]


@pytest.mark.parametrize("check", sorted(p.name for p in (HERE / "standin").glob("check_*.py")))
def test_standin(check):
    command = [PYTHON, "-m", "unittest", "discover", "-t", HERE, "-s", HERE / "standin", "-p", check]
    done = subprocess.run(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "\nOK" in done.stderr
    assert "Ran 0 tests" not in done.stderr
