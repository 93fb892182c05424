"""A number and its noun."""

import pytest

from quietgate.wording import counted


@pytest.mark.parametrize(
    ("number", "noun", "told"),
    [
        (1, "launch", "1 launch"),
        (0, "launch", "0 launches"),
        (2, "timed pass", "2 timed passes"),
        (8, "stream", "8 streams"),
        (2, "scheduler process", "2 scheduler processes"),
    ],
)
def test_one_is_singular_and_nothing_else(number, noun, told):
    assert counted(number, noun) == told
