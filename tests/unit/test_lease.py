"""The lease: one holder at a time, and the state that it hands over."""

import time
from typing import Any

import pytest

from harness.until import until
from sensorpool.leases.background_notes import InBackground, Isolated
from sensorpool.leases.lease import Acquired, Lease, Leases
from sensorpool.leases.range_state import RangeState, read_state
from sensorpool.leases.redis_store import RedisStore, connect
from sensorpool.leases.redis_store import range_key as key
from sensorpool.model.values import ShardRange

RANGE = ShardRange(0, 1_250)
OTHER_RANGE = ShardRange(1_250, 2_500)
NOW = 1_700_000_000_000


@pytest.fixture
def leases(client: Any) -> Leases:
    """Leases on a Redis in this process."""
    return Leases(RedisStore(client), lease_ttl=60)


def _take(leases: Leases, token: str = "one") -> Acquired:
    held = leases.acquire(RANGE, token)
    assert isinstance(held, Acquired), f"held by {held}"
    return held


def test_a_lease_has_one_holder_and_each_range_its_own(leases: Leases) -> None:
    held = _take(leases)
    assert held.lease.is_ours()
    assert leases.acquire(RANGE, "two") == "one"
    assert isinstance(leases.acquire(OTHER_RANGE, "two"), Acquired)
    held.lease.release()
    assert isinstance(leases.acquire(RANGE, "two"), Acquired)


def test_a_lease_that_nobody_renews_ends(client: Any) -> None:
    short = Leases(RedisStore(client), lease_ttl=0.1)
    held = _take(short)
    until("the holder stops trusting itself", lambda: not held.lease.is_ours())
    until("another takes the lease", lambda: isinstance(short.acquire(RANGE, "two"), Acquired))
    assert not held.lease.extend()
    assert not held.lease.is_ours()


def test_a_lease_without_an_end_is_taken(leases: Leases, client: Any) -> None:
    client.set(key(RANGE, "lease"), "another program")
    assert _take(leases).lease.is_ours()
    assert client.pttl(key(RANGE, "lease")) > 0


def test_a_renewed_lease_lives_on(client: Any) -> None:
    lease = _take(Leases(RedisStore(client), lease_ttl=10)).lease
    client.pexpire(key(RANGE, "lease"), 1_000)
    assert lease.extend()
    assert client.pttl(key(RANGE, "lease")) > 5_000


def test_another_token_can_neither_renew_nor_end_a_lease(leases: Leases, client: Any) -> None:
    held = _take(leases)
    stranger = Lease(leases, RANGE, "two", time.monotonic() + 60)
    assert not stranger.extend()
    assert not stranger.is_ours()
    assert not stranger.finish(RangeState(last=666))
    stranger.release()
    assert not leases.free(RANGE, "two")
    assert client.get(key(RANGE, "lease")) == "one"
    assert held.lease.extend()
    held.lease.finish(RangeState(last=1))
    assert _take(leases, "three").state.last == 1


def test_a_holder_that_lost_its_lease_leaves_the_note_of_the_next_one(leases: Leases, client: Any) -> None:
    late = _take(leases)
    client.delete(key(RANGE, "lease"))
    _take(leases, "two").lease.put_in_flight([7])
    late.lease.release()
    assert leases.free(RANGE, "two")
    assert _take(leases, "three").struck == [7]


def test_the_state_is_handed_over_whole(leases: Leases) -> None:
    state = RangeState(1_700_000_000_000, [1, 2], {3: 5}, "one@host", 6, 7, 8, 0.5)
    assert not _take(leases).lease.finish(state)
    assert _take(leases, "two").state == state
    assert leases.look([OTHER_RANGE, RANGE]) == [(None, RangeState()), ("two", state)]


def test_the_state_says_since_when_groups_have_been_left_over() -> None:
    state, intervals = RangeState(), {1: 10_000, 2: 10_000, 3: 10_000, 4: 60_000}
    state.leave_over([3, 1, 4], intervals, NOW)
    assert (list(state.left), state.overdue) == ([3, 1, 4], 0)
    state = read_state(state.text())
    state.leave_over([2, 1, 4], intervals, NOW + 31_000)
    assert (state.overdue, state.overdue_ms) == (1, 31_000)
    assert list(state.left.items()) == [(1, NOW), (4, NOW), (2, NOW + 31_000)]
    state.left[7] = 0  # since when is not known
    assert list(read_state(state.text()).left) == [1, 4, 2, 7]
    assert read_state(state.text()) == state
    state.leave_over([], {}, NOW + 40_000)
    assert (state.overdue, state.overdue_ms, state.left) == (0, 0, {})


def test_a_note_is_found_after_a_death_and_gone_after_a_job(leases: Leases) -> None:
    held = _take(leases)
    held.lease.put_in_flight([3, 4, 5])
    assert leases.free(RANGE, "one")  # as for a holder that is known to be dead
    found = _take(leases, "two")
    assert found.struck == [3, 4, 5]
    found.lease.put_in_flight([6])
    found.lease.finish(RangeState())
    assert _take(leases, "three").struck == []


def test_a_job_that_ended_badly_leaves_neither_note_nor_state(leases: Leases) -> None:
    _take(leases).lease.finish(RangeState(last=1))
    held = _take(leases, "two")
    held.lease.put_in_flight([3])
    held.lease.release()
    found = _take(leases, "three")
    assert (found.struck, found.state.last) == ([], 1)


def test_a_dirty_range_is_worked_on_once_more(leases: Leases, client: Any) -> None:
    assert leases.waking.raise_flags({RANGE: []})
    assert not leases.waking.raise_flags({RANGE: []}), "a job has been sent already"
    held = _take(leases)
    assert held.dirty
    assert leases.waking.raise_flags({RANGE: []}), "the flag was taken down with the lease"
    client.pexpire(key(RANGE, "lease"), 1_000)
    assert held.lease.finish(RangeState(last=1), again=True) == []
    assert held.lease.is_ours()
    assert client.pttl(key(RANGE, "lease")) > 5_000
    assert leases.acquire(RANGE, "two") == "one"
    assert held.lease.finish(RangeState(last=2), again=True) is None
    found = _take(leases, "two")
    assert (found.state.last, found.dirty) == (2, False)


def test_a_holder_that_cannot_go_round_again_leaves_the_flag_up(leases: Leases) -> None:
    held = _take(leases)
    leases.waking.raise_flags({RANGE: []})
    assert held.lease.finish(RangeState(), again=False) is None
    assert _take(leases, "two").dirty


# what processes poke outside of jobs


@pytest.fixture
def other(client: Any) -> Leases:
    """The leases of another process."""
    return Leases(RedisStore(client), lease_ttl=60)


def test_what_a_living_process_pokes_outside_of_jobs_is_busy(leases: Leases, other: Leases) -> None:
    leases.note_background(RANGE, [1, 2], Isolated([3]), 60.0)
    other.note_background(RANGE, [], Isolated([4]), 60.0)
    other.note_background(OTHER_RANGE, [5], Isolated(), 60.0)
    found = _take(leases)
    assert (found.background, found.struck) == (InBackground(busy={1, 2, 3, 4}), [])
    found.lease.finish(RangeState())
    leases.note_background(RANGE, [2], Isolated(), 60.0)
    other.note_background(RANGE, [], Isolated(), 60.0)
    assert _take(leases).background == InBackground(busy={2})


def test_of_a_dead_process_what_it_poked_itself_is_struck_until_a_job_has_dealt_with_it(
    leases: Leases, other: Leases
) -> None:
    other.note_background(RANGE, [1], Isolated([2]), -1.0)
    leases.note_background(RANGE, [3], Isolated([4]), 60.0)
    held = _take(leases)
    held.lease.put_in_flight([5])
    held.lease.give_up()
    for token in ("two", "three"):
        held = _take(leases, token)
        assert held.struck == [5, 1]
        assert (held.background.again, held.background.busy) == ([2], {3, 4})
        held.lease.give_up()
    held = _take(leases, "four")
    held.lease.finish(RangeState(), dead=held.background.dead)
    held = _take(leases, "five")
    assert (held.struck, held.background) == ([], InBackground(busy={3, 4}))


def test_a_process_that_was_frozen_is_known_again_once_it_writes_its_note(leases: Leases, other: Leases) -> None:
    other.note_background(RANGE, [1], Isolated(), -1.0)
    held = _take(leases)
    assert held.struck == [1]
    held.lease.give_up()
    other.note_background(RANGE, [1], Isolated(), 60.0)
    held = _take(leases, "two")
    assert (held.struck, held.background) == ([], InBackground(busy={1}))


def test_the_notes_on_children_are_told_for_each_range(leases: Leases) -> None:
    leases.note_background(RANGE, [1], Isolated([2, 3], waiting=2, overdue=1, longest=70_000), 60.0)
    assert leases.isolated([OTHER_RANGE, RANGE]) == [[], [Isolated([2, 3], 2, 1, 70_000)]]


def test_all_that_names_groups_is_forgotten(leases: Leases, client: Any) -> None:
    _take(leases).lease.put_in_flight([1])
    assert leases.free(RANGE, "one")
    leases.note_background(RANGE, [2], Isolated([3]), 60.0)
    leases.waking.raise_flags({RANGE: [4]})
    leases.forget_groups(RANGE)
    held = _take(leases, "two")
    assert (held.struck, held.background, held.woken, held.state) == ([], InBackground(), [], RangeState())


def test_the_embedded_redis_is_one_for_the_whole_process() -> None:
    first, second = (
        Leases(RedisStore(connect("memory://")), lease_ttl=60),
        Leases(RedisStore(connect("memory://")), lease_ttl=60),
    )
    lease = _take(first).lease
    assert second.acquire(RANGE, "two") == "one"
    lease.release()
