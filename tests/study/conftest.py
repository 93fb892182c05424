"""A small valid config to vary."""

import copy

import pytest

BASE = {
    "study": "small",
    "server": {
        "python": "/opt/ml/bin/python3",
        "args": {"model-path": "/models/target", "tp-size": 2},
        "speculative": {"draft_model_path": "/models/draft"},
    },
    "grid": {"steps": [0, 2], "nccl": ["default", "ll-ring"]},
    "timer_cost": {"enabled": False},
    "nccl_profiles": {"default": {}, "ll-ring": {"set": {"NCCL_PROTO": "LL", "NCCL_ALGO": "Ring"}}},
}


@pytest.fixture
def base():
    return copy.deepcopy(BASE)
