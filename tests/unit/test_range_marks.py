"""The marks of a range in Redis: who leaves them, who takes them away, and what beat reads."""

import json
from typing import Any

import pytest

from sensorpool.leases.lease import Acquired, Leases
from sensorpool.leases.range_marks import LONGEST_QUIET, NO_MARKS, Marks, Outlook
from sensorpool.leases.range_state import RangeState
from sensorpool.leases.redis_store import RedisStore
from sensorpool.leases.redis_store import range_key as key
from sensorpool.model.values import ShardRange

RANGE = ShardRange(0, 1_250)
LOADED = 1_700_000_000_000
OUTLOOK = Outlook(quiet_span=40_000, quiet_left=30_000, took=7, light_kept=45_000)
NEITHER = Marks(None, None)


@pytest.fixture
def leases(client: Any) -> Leases:
    """Leases on a Redis in this process."""
    return Leases(RedisStore(client), lease_ttl=60)


def leave(leases: Leases, outlook: Outlook = OUTLOOK, *, again: bool = False) -> Any:
    held = leases.acquire(RANGE, "one")
    assert isinstance(held, Acquired)
    return held.lease.finish(RangeState(last=LOADED), outlook=outlook, again=again)


def look(leases: Leases) -> Marks:
    return leases.marks.look([RANGE])[0]


def state_of(leases: Leases) -> RangeState:
    return leases.look([RANGE])[0][1]


def test_a_job_leaves_its_marks(leases: Leases) -> None:
    assert look(leases) == NEITHER
    leave(leases)
    assert look(leases) == Marks(40.0, 0.007)


def test_a_job_may_leave_none(leases: Leases) -> None:
    leave(leases, NO_MARKS)
    assert look(leases) == NEITHER


def test_a_look_moves_the_time_on_at_which_the_range_was_looked_at(leases: Leases, client: Any) -> None:
    leave(leases)
    client.pexpire(key(RANGE, "quiet"), 15_000)
    look(leases)
    state = state_of(leases)
    assert state.last == LOADED, "the next load goes by the last one"
    assert 24_000 < state.looked_at - LOADED < 26_000
    assert client.pttl(key(RANGE, "state")) > 80_000_000


def test_the_time_never_moves_back(leases: Leases, client: Any) -> None:
    leave(leases)
    client.pexpire(key(RANGE, "quiet"), 15_000)
    look(leases)
    before = state_of(leases).looked_at
    client.pexpire(key(RANGE, "quiet"), 30_000)  # the clock of Redis was put back
    assert look(leases).quiet == 40.0
    assert state_of(leases).looked_at == before


def test_the_next_holder_takes_them_away(leases: Leases) -> None:
    leave(leases)
    held = leases.acquire(RANGE, "two")
    assert isinstance(held, Acquired)
    assert look(leases) == NEITHER
    leases.free(RANGE, "two")
    assert look(leases) == NEITHER, "of a range whose holder died nothing is known"


def test_a_raised_flag_takes_the_quiet_mark_away(leases: Leases) -> None:
    leave(leases)
    assert leases.dirty_flags.put_up(RANGE)
    assert look(leases).quiet is None


def test_a_flag_that_was_raised_during_the_job_keeps_the_mark_from_being_left(leases: Leases) -> None:
    held = leases.acquire(RANGE, "one")
    assert isinstance(held, Acquired)
    leases.dirty_flags.put_up(RANGE)
    held.lease.finish(RangeState(last=LOADED), outlook=OUTLOOK)
    assert look(leases).quiet is None


def test_a_flag_that_went_down_during_the_job_keeps_the_mark_from_being_left_too(leases: Leases, client: Any) -> None:
    """The job takes longer than a flag stays up by itself."""
    held = leases.acquire(RANGE, "one")
    assert isinstance(held, Acquired)
    leases.dirty_flags.put_up(RANGE)
    client.delete(key(RANGE, "dirty"))
    assert not held.lease.finish(RangeState(last=LOADED), outlook=OUTLOOK, again=True)
    assert look(leases).quiet is None
    leave(leases)
    assert look(leases).quiet is not None, "the next job has seen what is new"


def test_the_round_that_follows_a_raised_flag_may_leave_the_mark(leases: Leases) -> None:
    held = leases.acquire(RANGE, "one")
    assert isinstance(held, Acquired)
    leases.dirty_flags.put_up(RANGE)
    assert held.lease.finish(RangeState(last=LOADED), outlook=OUTLOOK, again=True)
    assert not held.lease.finish(RangeState(last=LOADED), outlook=OUTLOOK, again=True)
    assert look(leases).quiet is not None


def test_a_job_that_goes_on_leaves_no_mark(leases: Leases) -> None:
    held = leases.acquire(RANGE, "one")
    assert isinstance(held, Acquired)
    leases.dirty_flags.put_up(RANGE)
    assert held.lease.finish(RangeState(last=LOADED), outlook=OUTLOOK, again=True)
    assert look(leases) == NEITHER


def test_a_range_is_woken(leases: Leases) -> None:
    leave(leases)
    leases.marks.wake([])
    assert look(leases).quiet is not None
    leases.marks.wake([RANGE])
    assert look(leases) == Marks(None, 0.007)


def test_a_range_that_is_woken_during_its_job_is_left_no_mark(leases: Leases, client: Any) -> None:
    held = leases.acquire(RANGE, "one")
    assert isinstance(held, Acquired)
    leases.marks.wake([RANGE])
    held.lease.finish(RangeState(last=LOADED), outlook=OUTLOOK)
    assert look(leases) == Marks(None, 0.007)
    leave(leases)
    assert look(leases).quiet is not None, "the next job knows what has changed"
    leases.marks.wake([RANGE])
    assert client.pttl(key(RANGE, "woken")) > 0


def test_a_range_that_has_groups_for_its_next_job_is_not_quiet(leases: Leases) -> None:
    leave(leases)
    leases.dirty_flags.keep(RANGE, [])
    assert look(leases).quiet is not None
    leases.dirty_flags.keep(RANGE, [7])
    assert look(leases).quiet is None
    held = leases.acquire(RANGE, "one")
    assert isinstance(held, Acquired)
    leases.dirty_flags.keep(RANGE, [7])
    held.lease.finish(RangeState(last=LOADED), outlook=OUTLOOK)
    assert look(leases).quiet is None


def test_a_state_that_another_program_wrote_is_left_as_it_is(leases: Leases, client: Any) -> None:
    leave(leases)
    other = json.dumps({"last": LOADED, "holder": 'x","quiet_until":7,"'}, separators=(",", ":"))
    client.set(key(RANGE, "state"), other)
    assert look(leases).quiet is None
    assert client.get(key(RANGE, "state")) == other


@pytest.mark.parametrize("forged", ["", "x", "-1", "1e9", "40000.5", "4" * 400, "nan"])
def test_a_forged_mark_is_none(leases: Leases, client: Any, forged: str) -> None:
    leave(leases)
    client.set(key(RANGE, "quiet"), forged)  # and it does not expire
    client.set(key(RANGE, "light"), forged)
    assert look(leases) == NEITHER


def test_a_forged_mark_counts_for_a_minute_at_most(leases: Leases, client: Any) -> None:
    leave(leases)
    client.set(key(RANGE, "quiet"), "99999999999", px=99_999_999_999)
    assert look(leases).quiet == LONGEST_QUIET / 1000


@pytest.mark.parametrize("name", ["quiet", "light", "state"])
def test_a_key_of_another_type_is_no_mark(leases: Leases, client: Any, name: str) -> None:
    leave(leases)
    client.delete(key(RANGE, name))
    client.hset(key(RANGE, name), "a", "b")
    assert look(leases) in {NEITHER, Marks(None, 0.007), Marks(40.0, None)}
    assert isinstance(leases.acquire(RANGE, "two"), Acquired)
