import os
from pathlib import Path

import pytest

import quietgate
from quietgate.serve import lease
from serve_lease.house import TAG, House


@pytest.fixture
def house(tmp_path, monkeypatch):
    """A house owned by this process; afterwards nothing of it may be alive."""
    home = House(tmp_path)
    library = str(Path(quietgate.__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", library)
    monkeypatch.setenv("QUIETGATE_SLOT_DIR", str(home.slot_dir))
    monkeypatch.setenv("QUIETGATE_OWNER", "")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setenv(TAG, home.tag)
    assert lease.claim_owner()
    assert os.environ["QUIETGATE_OWNER"]
    yield home
    home.close()
