"""The watch over the database's clock: a jump suspends timeouts for its own length; drift does not."""

from collections.abc import Iterable

import pytest

from sensorpool.worker.clock_watch import ClockWatch
from tests.support.builders import START

HOUR = 3_600.0


class _Looks:
    """Two clocks that go on together until one of them jumps."""

    def __init__(self) -> None:
        self.watch = ClockWatch()
        self.database = float(START)
        self.monotonic = 1_000.0

    def pass_by(self, seconds: float, rate: float = 1.0) -> bool:
        self.monotonic += seconds
        self.database += seconds * rate * 1000
        return self.watch.trusts(round(self.database), self.monotonic)

    def jump(self, seconds: float) -> None:
        self.database += seconds * 1000

    def look_for(self, total: float, step: float, rate: float = 1.0) -> Iterable[bool]:
        return [self.pass_by(step, rate) for _ in range(int(total / step))]


def test_a_clock_that_is_seen_for_the_first_time_is_trusted() -> None:
    assert ClockWatch().trusts(START, 0.0)
    assert ClockWatch().trusts(START)


@pytest.mark.parametrize("jump", [HOUR, -HOUR, 600.0, -600.0])
def test_a_jump_suspends_timeouts_for_as_long_as_it_was_wide(jump: float) -> None:
    looks = _Looks()
    assert all(looks.look_for(100, 5))
    looks.jump(jump)
    assert not looks.pass_by(5)
    assert not any(looks.look_for(abs(jump) - 10, 5))
    assert looks.pass_by(20)
    assert all(looks.look_for(100, 5))


def test_a_jump_of_a_day_suspends_timeouts_for_an_hour() -> None:
    looks = _Looks()
    looks.pass_by(5)
    looks.jump(24 * HOUR)
    assert not looks.pass_by(5)
    assert not any(looks.look_for(HOUR - 10, 5))
    assert looks.pass_by(20)


def test_a_jump_and_back_suspends_timeouts_twice() -> None:
    looks = _Looks()
    looks.pass_by(5)
    looks.jump(600)
    assert not looks.pass_by(5)
    assert not any(looks.look_for(300, 5))
    looks.jump(-600)
    assert not looks.pass_by(5)
    assert not any(looks.look_for(590, 5))
    assert looks.pass_by(20)


@pytest.mark.parametrize("rate", [0.95, 1.05])
@pytest.mark.parametrize("step", [0.1, 5.0, 60.0])
def test_a_clock_that_drifts_by_a_twentieth_is_trusted(rate: float, step: float) -> None:
    assert all(_Looks().look_for(HOUR, step, rate))


@pytest.mark.parametrize("rate", [0.5, 2.0])
def test_a_clock_that_runs_wild_is_not_trusted(rate: float) -> None:
    looks = _Looks()
    looks.pass_by(1)
    assert not any(looks.look_for(HOUR, 60, rate))


def test_a_jump_of_a_second_is_tolerated() -> None:
    looks = _Looks()
    looks.pass_by(5)
    looks.jump(1.5)
    assert looks.pass_by(1)
    looks.jump(2.5)
    assert not looks.pass_by(1)
