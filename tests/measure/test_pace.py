"""The pace is the median time of fixed work; work and clock are given here."""

import inspect
from itertools import accumulate

from quietgate.measure import pace


def told(*times_s):
    """What `loop_ms` says when its work takes these times, one after the other."""
    at = 0.0
    waiting = list(times_s)

    def work():
        nonlocal at
        at += waiting.pop(0)

    found = pace.loop_ms(work, lambda: at)
    assert waiting == []
    return found


def test_an_interrupt_in_a_few_of_the_rounds_does_not_count():
    assert round(told(*[0.002] * 5), 9) == 2.0
    assert round(told(0.009, 0.002, 0.002, 0.5, 0.002), 9) == 2.0
    assert round(told(*[0.002] * 2, *[0.003] * 3), 9) == 3.0


def test_time_between_the_rounds_does_not_count():
    clock = accumulate([0.0, *[0.002, 1.0] * 5])
    assert round(pace.loop_ms(lambda: None, lambda: next(clock)), 9) == 2.0


def test_a_clock_too_coarse_for_the_work_tells_nothing():
    assert pace.loop_ms(lambda: None, lambda: 5.0) is None


def test_the_work_is_the_same_each_time():
    assert pace.loop_ms() > 0
    work = inspect.signature(pace.loop_ms).parameters["work"].default
    assert work() == work()
