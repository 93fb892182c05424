"""A study folder per test; whatever a test leaves alive is ended and fails it."""

import pytest

from chain.runs import Run


@pytest.fixture
def run(tmp_path):
    made = Run(tmp_path / "study")
    yield made
    made.nothing_left()
