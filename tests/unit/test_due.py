"""When a group is due: the pure rule, and the agreement of the load's query with it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from sensorpool.model.due import SPREAD, is_due, next_period_at, step_at, whole_ticks
from sensorpool.store.database import Database
from sensorpool.store.schema import metadata
from tests.support import due_agreement
from tests.support.builders import START

OVERLAP = 10_000
LONGEST = 10 * 365 * 86_400_000  # the longest interval that registration allows

_intervals = st.integers(1, LONGEST) | st.integers(1, 200_000)
_phases = st.integers(0, SPREAD - 1)
_times = st.integers(START, START + 10**9)


def _due(
    last: int, now: int, interval: int, phase: int, *, registered_at: int = 0, deadline: int | None = None
) -> bool:
    return is_due(
        poke_interval=interval,
        phase=phase,
        registered_at=registered_at,
        next_deadline=deadline,
        last=last,
        now=now,
        commit_overlap=OVERLAP,
    )


@given(st.integers(1_000, 200_000), _phases, st.lists(st.integers(0, 60_000), min_size=1, max_size=60))
def test_a_group_is_due_exactly_once_in_each_slot_that_sees_a_load(interval: int, phase: int, gaps: list[int]) -> None:
    """Loads come early, late, at once or not for a while; the test counts the boundaries in another way."""
    first_boundary = next_period_at(START, interval, phase)
    last, now = START, START
    poked: list[int] = []
    seen: set[int] = set()
    for gap in gaps:
        last, now = now, now + gap
        boundaries_passed = 0 if now < first_boundary else (now - first_boundary) // interval + 1
        if boundaries_passed:
            seen.add(boundaries_passed)
        if _due(last, now, interval, phase):
            poked.append(boundaries_passed)
    assert poked == sorted(seen)


@given(_intervals, _phases, _times)
def test_a_lost_last_load_makes_every_group_due(interval: int, phase: int, now: int) -> None:
    assert _due(0, now, interval, phase)


@given(_intervals, _phases, _times)
@example(interval=1, phase=0, at=START)
@example(interval=60_000, phase=SPREAD - 1, at=START)
def test_a_slot_begins_on_the_millisecond(interval: int, phase: int, at: int) -> None:
    begins = next_period_at(at, interval, phase)
    assert at < begins <= at + interval
    assert _due(at, begins, interval, phase)
    assert not _due(begins, begins, interval, phase)
    assume(begins - 1 > at)
    assert not _due(at, begins - 1, interval, phase)


@given(_times, st.integers(-2, 2))
def test_a_new_group_is_due_until_no_commit_can_come_late(last: int, shift: int) -> None:
    registered_at = last - OVERLAP + shift
    assert _due(last, last, LONGEST, 0, registered_at=registered_at) is (shift > 0)


@given(_times, st.integers(1, 10_000), st.integers(-2, 2), st.booleans())
def test_a_deadline_makes_its_group_due_once(last: int, passed: int, shift: int, near_last: bool) -> None:
    now = last + passed
    assume(not _due(last, now, LONGEST, 0))
    deadline = shift + (last if near_last else now)
    assert _due(last, now, LONGEST, 0, deadline=deadline) is (last < deadline <= now)


@given(st.floats(0, 1e6), st.integers(1, 60_000))
def test_an_interval_is_rounded_up_to_whole_ticks(seconds: float, tick: int) -> None:
    span = whole_ticks(seconds, tick)
    assert span % tick == 0
    assert span >= tick
    assert round(seconds * 1000) <= span < max(round(seconds * 1000), 1) + tick


_waits = st.integers(0, 10**8)
_caps = st.none() | st.integers(1, 10**7)


@given(_waits, st.integers(1, 10**6), _caps)
def test_backoff_doubles_with_each_poke_up_to_its_cap(waited: int, base: int, cap: int | None) -> None:
    """Walk from poke to poke, as a sensor does."""
    step, ends, growing = base, base, cap is None or base < cap
    while growing and ends <= waited:
        step *= 2
        if cap is not None and step >= cap:
            step, growing = cap, False
        ends += step
    assert step_at(waited, base, cap) == (step, ends if growing else None)


@given(_waits, _waits, st.integers(1, 10**6), _caps)
def test_backoff_never_shrinks(one: int, other: int, base: int, cap: int | None) -> None:
    sooner, later = step_at(min(one, other), base, cap), step_at(max(one, other), base, cap)
    assert base <= sooner[0] <= later[0]
    assert later[0] <= max(cap or later[0], base)


@given(_waits, st.integers(1, 10**6), _caps)
def test_a_step_ends_after_the_time_that_was_waited(waited: int, base: int, cap: int | None) -> None:
    ends = step_at(waited, base, cap)[1]
    assert ends is None or ends > waited


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """An SQLite database with the tables in it."""
    path: Path = tmp_path_factory.mktemp("due") / "due.db"
    made = Database(f"sqlite:///{path}")
    metadata.create_all(made.engine)
    yield made
    made.dispose()


@hypothesis_settings(max_examples=200)
@given(look=due_agreement.looks())
def test_the_query_returns_exactly_the_groups_that_the_rule_calls_due(
    database: Database, look: due_agreement.Look
) -> None:
    due_agreement.assert_agreement(database, look)
