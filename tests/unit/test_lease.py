"""The lease: one holder at a time, and the state that it hands over."""

import time
from typing import Any

import pytest

from harness.until import until
from sensorpool.leases.connection import connect
from sensorpool.leases.lease import Acquired, Lease, Leases
from sensorpool.leases.range_state import RangeState, read_state
from sensorpool.leases.redis_store import RedisStore
from sensorpool.leases.redis_store import range_key as key
from sensorpool.model.suspicion import Suspicion
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
    assert _take(leases, "three").in_flight == [7]


def test_the_state_is_handed_over_whole(leases: Leases) -> None:
    state = RangeState(1_700_000_000_000, [1, 2], [3], {4: 5}, "one@host", 6, 7, 8, 0.5)
    assert not _take(leases).lease.finish(state)
    assert _take(leases, "two").state == state
    assert leases.look([OTHER_RANGE, RANGE]) == [(None, RangeState(), 0), ("two", state, 0)]


def test_the_state_says_since_when_groups_have_been_left_over() -> None:
    state, intervals = RangeState(), {1: 10_000, 2: 10_000, 3: 10_000, 4: 60_000}
    state.left = state.in_turn([3, 1, 4], intervals, NOW)
    assert (state.left, state.overdue) == ([3, 1, 4], 0)
    state = read_state(state.text())
    state.left = state.in_turn([2, 1, 4], intervals, NOW + 31_000)
    assert (state.left, state.overdue, state.overdue_ms) == ([1, 4, 2], 1, 31_000)
    assert state.left_since == {1: NOW, 4: NOW, 2: NOW + 31_000}
    state.left.append(7)  # since when is not known
    assert '"left":[1,4,2,7],' in state.text()
    assert f'"left_since":[[{NOW},2],[{NOW + 31_000},1],[0,1]]' in state.text()
    assert read_state(state.text()) == state
    assert read_state('{"left": [1, 2], "left_since": [[5, 1]]}') == RangeState(left=[1, 2]), "of other groups"
    assert state.in_turn([], {}, NOW + 40_000) == []
    assert (state.overdue, state.overdue_ms, state.left_since) == (0, 0, {})


def test_a_note_is_found_after_a_death_and_gone_after_a_job(leases: Leases) -> None:
    held = _take(leases)
    held.lease.put_in_flight([3, 4, 5])
    assert leases.free(RANGE, "one")  # as for a holder that is known to be dead
    found = _take(leases, "two")
    assert found.in_flight == [3, 4, 5]
    found.lease.put_in_flight([6])
    found.lease.finish(RangeState())
    assert _take(leases, "three").in_flight == []


def test_a_job_that_ended_badly_leaves_neither_note_nor_state(leases: Leases) -> None:
    _take(leases).lease.finish(RangeState(last=1))
    held = _take(leases, "two")
    held.lease.put_in_flight([3])
    held.lease.release()
    found = _take(leases, "three")
    assert (found.in_flight, found.state.last) == ([], 1)


def test_a_dirty_range_is_worked_on_once_more(leases: Leases, client: Any) -> None:
    assert leases.dirty_flags.put_up(RANGE)
    assert not leases.dirty_flags.put_up(RANGE), "a job has been sent already"
    held = _take(leases)
    assert held.dirty
    assert leases.dirty_flags.put_up(RANGE), "the flag was taken down with the lease"
    client.pexpire(key(RANGE, "lease"), 1_000)
    assert held.lease.finish(RangeState(last=1), again=True)
    assert held.lease.is_ours()
    assert client.pttl(key(RANGE, "lease")) > 5_000
    assert leases.acquire(RANGE, "two") == "one"
    assert not held.lease.finish(RangeState(last=2), again=True)
    found = _take(leases, "two")
    assert (found.state.last, found.dirty) == (2, False)


def test_a_holder_that_cannot_go_round_again_leaves_the_flag_up(leases: Leases) -> None:
    held = _take(leases)
    leases.dirty_flags.put_up(RANGE)
    assert not held.lease.finish(RangeState(), again=False)
    assert _take(leases, "two").dirty


def test_suspects_are_handed_over_until_they_are_cleared(leases: Leases) -> None:
    leases.suspects.mark(RANGE, [1, 2, 3], Suspicion.OVERRAN)
    leases.suspects.clear(RANGE, [2])
    leases.suspects.mark(RANGE, [], Suspicion.OVERRAN)
    leases.suspects.clear(RANGE, [])
    assert _take(leases).suspects == {1: Suspicion.OVERRAN, 3: Suspicion.OVERRAN}
    assert leases.suspects.why(RANGE, 1) is Suspicion.OVERRAN
    assert leases.suspects.why(RANGE, 2) is None


def test_one_process_at_a_time_claims_a_group(leases: Leases, client: Any) -> None:
    assert leases.claims.take(RANGE, [1, 2], 60, NOW) == [1, 2]
    assert leases.claims.take(RANGE, [1, 2, 3], 60, NOW) == [3]
    assert leases.claims.take(RANGE, [], 60, NOW) == []
    client.pexpire(key(RANGE, "alone:1"), 1_000)
    assert leases.claims.renew({RANGE: {1: NOW}}, 60) == {}
    assert client.pttl(key(RANGE, "alone:1")) > 5_000
    leases.claims.drop(RANGE, [1, 2])
    assert leases.claims.take(RANGE, [1, 2, 3], 60, NOW) == [1, 2]


def test_a_claim_that_ended_is_made_again_unless_another_process_has_it(leases: Leases, client: Any) -> None:
    other = Leases(RedisStore(client), lease_ttl=60)
    assert leases.claims.take(RANGE, [1, 2, 3], 60, NOW) == [1, 2, 3]
    assert leases.claims.take(OTHER_RANGE, [4], 60, NOW) == [4]
    client.delete(*(key(RANGE, f"alone:{group_id}") for group_id in (1, 2)))
    assert other.claims.take(RANGE, [1, 2, 3], 5, NOW) == [1, 2]
    client.delete(key(RANGE, "alone:1"), key(OTHER_RANGE, "alone:4"))
    ours = {RANGE: dict.fromkeys((1, 2, 3), NOW - 1), OTHER_RANGE: {4: NOW - 1}}
    assert leases.claims.renew(ours, 60) == {RANGE: [1], OTHER_RANGE: [4]}
    assert client.pttl(key(RANGE, "alone:2")) <= 5_000, "the other's is not renewed"
    leases.claims.drop(RANGE, [1, 2, 3])
    leases.suspects.mark(RANGE, [1, 2, 3], Suspicion.SLOW)
    leases.suspects.mark(OTHER_RANGE, [4], Suspicion.SLOW)
    assert leases.claims.since([RANGE, OTHER_RANGE]) == {2: NOW, 4: NOW - 1}


def test_a_claim_of_the_version_before_lives_until_it_ends(leases: Leases, client: Any) -> None:
    client.set(key(RANGE, "alone:1"), str(NOW), px=5_000)
    assert leases.claims.take(RANGE, [1], 60, NOW) == []
    assert leases.claims.renew({RANGE: {1: NOW}}, 60) == {}
    leases.claims.drop(RANGE, [1])
    assert 0 < client.pttl(key(RANGE, "alone:1")) <= 5_000


def test_many_claims_are_renewed_and_dropped(leases: Leases, client: Any) -> None:
    many = range(1, 2_502)
    leases.claims.take(RANGE, many, 60, NOW)
    client.delete(*(key(RANGE, f"alone:{group_id}") for group_id in many[::100]))
    assert leases.claims.renew({RANGE: dict.fromkeys(many, NOW)}, 60) == {RANGE: list(many[::100])}
    leases.claims.drop(RANGE, many)
    assert client.keys("*alone*") == []


def test_records_are_kept_until_they_expire(leases: Leases) -> None:
    now = round(time.time() * 1000)
    leases.poke_log.keep(RANGE, [("old", now + 10), ("older", now + 9)], now)
    leases.poke_log.keep(RANGE, [("new", now + 60_000)], now + 10)
    assert leases.poke_log.records(RANGE) == ["new"]
    assert leases.poke_log.records(OTHER_RANGE) == []


def test_the_embedded_redis_is_one_for_the_whole_process() -> None:
    first, second = (
        Leases(RedisStore(connect("memory://")), lease_ttl=60),
        Leases(RedisStore(connect("memory://")), lease_ttl=60),
    )
    lease = _take(first).lease
    assert second.acquire(RANGE, "two") == "one"
    lease.release()
