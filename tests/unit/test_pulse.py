"""The pulse: a process knows when it stood still. A clock of the test's own stands in for the monotonic one."""

from collections.abc import Iterator

import pytest

from sensorpool.poke import pulse as module
from sensorpool.poke.pulse import Pulse


class Clock:
    """A monotonic clock."""

    now = 1_000.0

    def monotonic(self) -> float:
        """The time."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "time", made)
    return made


@pytest.fixture
def pulse() -> Iterator[Pulse]:
    made = Pulse(1.0)
    yield made
    made.close()


def test_a_gap_counts_for_what_goes_on_in_it(pulse: Pulse, clock: Clock) -> None:
    pulse.begin()
    clock.now += 0.9
    assert pulse.stood_still(999.0, 1_000.1)
    assert pulse.stood_still(1_000.5, 1_001.5)
    assert not pulse.stood_still(990.0, 1_000.0)
    assert not pulse.stood_still(1_000.9, 1_002.0)
    pulse.end()
    assert pulse.stood_still(1_000.5, 1_001.5), "it is remembered"


@pytest.mark.parametrize(
    ("limit", "gap", "stood"), [(1, 0.24, False), (1, 0.26, True), (10, 0.4, False), (10, 0.6, True)]
)
def test_a_short_gap_is_a_busy_machine(clock: Clock, limit: float, gap: float, stood: bool) -> None:
    pulse = Pulse(limit)
    pulse.begin()
    clock.now += gap
    assert pulse.stood_still(1_000.0, 1_010.0) is stood
    pulse.end()
    pulse.close()


def test_a_process_in_which_nothing_goes_on_does_not_stand_still(pulse: Pulse, clock: Clock) -> None:
    pulse.begin()
    pulse.begin()
    pulse.end()
    pulse.end()
    clock.now += 60
    assert not pulse.stood_still(1_000.0, 1_060.0)
    pulse.begin()
    assert not pulse.stood_still(1_000.0, 1_060.0)
    pulse.end()


def test_the_end_of_the_last_poke_sees_the_gap_before_it(pulse: Pulse, clock: Clock) -> None:
    pulse.begin()
    clock.now += 0.9
    pulse.end()
    assert pulse.stood_still(1_000.5, 1_001.5)


def test_a_process_without_room_for_a_thread_has_no_pulse(
    pulse: Pulse, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(pulse._thread, "start", refuse)
    pulse.begin()
    clock.now += 60
    assert not pulse.stood_still(1_000.0, 1_060.0)
