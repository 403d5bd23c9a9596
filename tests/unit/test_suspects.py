"""Suspects of one process: offered, claimed, poked apart and cleared. Tests hand in the reports of the lanes."""

import time
from collections.abc import Collection, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from sensorpool.errors import Unreachable
from sensorpool.model.states import Outcome
from sensorpool.model.suspicion import Suspicion
from sensorpool.model.values import DueGroup
from sensorpool.store import loading
from sensorpool.store.database import Database
from sensorpool.worker import clock_watch, outside_results
from sensorpool.worker.clock_watch import ClockWatch
from sensorpool.worker.suspects import Suspects
from tests.support.scripted_worker import Place, report


class Apart(Place):
    """A place with one process, which pokes suspects."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.process = self.worker()
        self.suspects: Suspects = self.process.suspects
        [self.hanging] = [lane for lane in self.lanes if lane.hangs]
        [self.crashing] = [lane for lane in self.lanes if not lane.hangs]

    def offer(self, why: Suspicion | None, *group_ids: int, stranded: Collection[int] = ()) -> list[int]:
        """Offer groups, as a job that has loaded them."""
        if why is not None:
            self.leases.suspects.mark(self.shard_range, group_ids, why)
        return self.suspects.offer(
            self.shard_range, dict.fromkeys(self.groups(*group_ids), why), stranded, due=self.clock.ms
        )

    def groups(self, *group_ids: int) -> list[DueGroup]:
        """The groups as they are now."""
        return [group for group, *_ in self.process.database.read(loading.groups, group_ids)]

    def marks(self) -> dict[int, Suspicion | None]:
        """The suspects of the range, as Redis has them."""
        marks = self.leases.suspects
        return {each: marks.why(self.shard_range, each) for each in marks.of(self.shard_range)}

    def claimed(self, *group_ids: int) -> set[int]:
        """Those of the groups that a process has claimed."""
        return {
            each for each in group_ids if self.client.exists(self.leases.store.key(self.shard_range, f"alone:{each}"))
        }


@pytest.fixture
def place(database: Database, client: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Apart]:
    made = Apart(database, client, monkeypatch)
    yield made
    made.close()


@pytest.mark.parametrize("why", list(Suspicion))
def test_what_hangs_and_what_may_crash_have_lanes_of_their_own(place: Apart, why: Suspicion) -> None:
    [group] = place.register("a")
    assert place.offer(why, group) == []
    lane, other = (place.hanging, place.crashing) if why.hangs else (place.crashing, place.hanging)
    assert list(lane.in_lane) == [group]
    assert len(other) == 0
    assert place.claimed(group) == {group}
    assert place.suspects.in_hand == 1


@pytest.mark.parametrize("why", [Suspicion.DEAD_HOLDER, Suspicion.OVERRAN])
def test_a_group_that_died_in_a_child_with_others_is_poked_alone_until_a_poke_comes_back(
    place: Apart, why: Suspicion
) -> None:
    [group] = place.register("a")
    place.offer(why, group)
    first = place.hanging if why.hangs else place.crashing
    assert not first.in_lane[group].alone
    first.hand_in(group, Outcome.CRASHED)
    assert place.marks() == {group: Suspicion.CRASHED}
    place.offer(Suspicion.CRASHED, group)
    assert place.crashing.in_lane[group].alone
    place.crashing.hand_in(group, Outcome.NOT_LANDED)
    assert place.marks() == {}
    assert place.states() == ["sensing"]


def test_a_group_that_crashed_is_alone_and_marked_though_redis_forgot_until_a_poke_comes_back(place: Apart) -> None:
    place.settings = place.settle_on(crash_limit=9)
    place.process = place.worker()
    place.suspects, (place.crashing, place.hanging) = place.process.suspects, place.lanes[-2:]
    [group] = place.register("a")
    place.offer(Suspicion.CRASHED, group)
    place.crashing.hand_in(group, Outcome.CRASHED, own_doing=True)
    assert place.groups(group)[0].crashes == 3
    place.client.flushall()
    place.offer(None, group)
    assert place.crashing.in_lane[group].alone
    assert place.marks() == {group: Suspicion.CRASHED}
    place.crashing.hand_in(group, Outcome.NOT_LANDED)
    assert place.groups(group)[0].crashes == 0


def test_what_is_poked_already_here_or_elsewhere_misses_its_turn(place: Apart) -> None:
    here, elsewhere, free = place.register("a", "b", "c")
    place.offer(Suspicion.OVERRAN, here)
    place.leases.claims.take(place.shard_range, [elsewhere], 60, place.clock.ms)
    assert set(place.offer(Suspicion.OVERRAN, here, elsewhere, free)) == {here, elsewhere}
    assert set(place.hanging.in_lane) == {here, free}


def test_a_group_whose_mark_was_cleared_since_its_job_began_is_marked_again(place: Apart) -> None:
    """Or the next job would poke it as well."""
    [group] = place.register("a")
    place.suspects.offer(place.shard_range, dict.fromkeys(place.groups(group), Suspicion.SLOW), due=place.clock.ms)
    assert place.marks() == {group: Suspicion.SLOW}


def test_a_turn_that_was_lost_stays_lost_where_the_database_is_away(
    place: Apart, monkeypatch: pytest.MonkeyPatch
) -> None:
    [group] = place.register("a")
    place.leases.suspects.mark_each(place.shard_range, {group: Suspicion.OVERRAN}, lost_turn=True)
    groups = dict.fromkeys(place.groups(group), Suspicion.OVERRAN)

    def away(*_: Any) -> Any:
        raise Unreachable("the database does not answer")

    monkeypatch.setattr(place.process.database, "read", away)
    with pytest.raises(Unreachable):
        place.suspects.offer(place.shard_range, groups, due=place.clock.ms)
    held = place.leases.acquire(place.shard_range, "next@here/1")
    assert not isinstance(held, str)
    assert held.lost_turn == [group]


def test_a_group_that_is_gone_is_not_poked(place: Apart) -> None:
    [group] = place.register("a")
    due = place.groups(group)
    place.pool.cancel(1)
    place.suspects.offer(place.shard_range, dict.fromkeys(due, Suspicion.OVERRAN), due=place.clock.ms)
    assert place.suspects.in_hand == 0


def test_where_the_database_is_away_the_claims_are_dropped(place: Apart, monkeypatch: pytest.MonkeyPatch) -> None:
    [group] = place.register("a")
    due = place.groups(group)

    def away(*_: object, **__: object) -> None:
        raise Unreachable("the database is away")

    with monkeypatch.context() as patched:
        patched.setattr(place.process.database, "read", away)
        with pytest.raises(Unreachable):
            place.suspects.offer(place.shard_range, dict.fromkeys(due, Suspicion.OVERRAN), due=place.clock.ms)
    assert place.claimed(group) == set()
    assert place.offer(Suspicion.OVERRAN, group) == []


def test_what_redis_forgot_is_claimed_and_marked_again_with_the_next_renewal(place: Apart) -> None:
    lost, kept = place.register("a", "b")
    place.offer(Suspicion.OVERRAN, lost, kept)
    place.leases.suspects.mark(place.shard_range, [kept], Suspicion.CLASS_HANGS)
    name = place.leases.store.key(place.shard_range, f"alone:{kept}")
    assert place.client.get(name).startswith(str(place.clock.ms))
    place.leases.suspects.clear(place.shard_range, [lost])
    place.leases.claims.drop(place.shard_range, [lost, kept])
    place.hanging.renew([lost, kept])
    assert place.claimed(lost, kept) == {lost, kept}
    assert place.marks() == {lost: Suspicion.OVERRAN, kept: Suspicion.CLASS_HANGS}
    place.hanging.hand_in(lost, Outcome.NOT_LANDED)
    assert place.claimed(lost, kept) == {kept}
    place.hanging.renew([lost])
    assert place.claimed(lost) == set(), "it is not poked any more"


def test_a_poke_that_ends_in_good_time_clears_its_group(place: Apart) -> None:
    waiting, landing = place.register("a", "b")
    place.offer(Suspicion.OVERRAN, waiting, landing)
    place.hanging.hand_in(waiting, Outcome.NOT_LANDED)
    place.hanging.hand_in(landing, Outcome.LANDED)
    assert place.states() == ["sensing", "success"]
    assert place.marks() == {}
    assert place.claimed(waiting, landing) == set()
    assert len(place.leases.poke_log.records(place.shard_range)) == 2


@pytest.mark.parametrize("outcome", [Outcome.POKE_TIMEOUT, Outcome.CRASHED, Outcome.CANNOT_POKE])
def test_any_other_poke_leaves_it_suspect_and_free_to_be_claimed(place: Apart, outcome: Outcome) -> None:
    [group] = place.register("a")
    place.offer(Suspicion.OVERRAN, group)
    place.hanging.hand_in(group, outcome, "why")
    assert place.states() == ["sensing"]
    assert place.marks() == {group: Suspicion.CRASHED if outcome is Outcome.CRASHED else Suspicion.OVERRAN}
    assert place.claimed(group) == set()
    assert (place.process.outside.not_here == {group: "why"}) is (outcome is Outcome.CANNOT_POKE)


@pytest.mark.parametrize("of_many", [True, False])
def test_an_overrun_of_a_call_for_many_leaves_its_groups_suspect_and_ends_none(place: Apart, of_many: bool) -> None:
    [group] = place.register("a", timeout=5)
    place.clock.ms += 60_000
    place.leases.suspects.mark(place.shard_range, [group], Suspicion.SLOW)
    overran = report(place.groups(group)[0], Outcome.POKE_TIMEOUT)._replace(of_many=of_many)
    place.process.outside.settle([overran], {place.shard_range: [overran]})
    assert place.states() == ["sensing" if of_many else "failed"]
    assert place.marks() == {group: Suspicion.SLOW}
    assert place.leases.suspects.overruns(place.shard_range, group) == (0 if of_many else 1)


def test_a_group_beside_a_class_that_hangs_is_known_to_hang_once_it_does(place: Apart) -> None:
    hangs, waits = place.register("a", "b")
    place.offer(Suspicion.CLASS_HANGS, hangs, waits)
    place.hanging.hand_in(hangs, Outcome.POKE_TIMEOUT)
    place.hanging.hand_in(waits, Outcome.NOT_LANDED)
    assert place.marks() == {hangs: Suspicion.OVERRAN}


def test_the_third_strike_is_that_of_a_child_that_had_the_group_alone(place: Apart) -> None:
    [group] = place.register("a")
    place.offer(Suspicion.DEAD_HOLDER, group)
    for outcome in [Outcome.CRASHED, Outcome.POKE_TIMEOUT, Outcome.POKE_TIMEOUT]:
        place.crashing.hand_in(group, outcome, "killed")
        assert place.groups(group)[0].crashes == 0
        place.offer(Suspicion.CRASHED, group)
    assert place.states() == ["sensing"]
    place.crashing.hand_in(group, Outcome.CRASHED, "signal 11", own_doing=True)
    assert place.states() == ["failed"]
    assert place.reasons() == ["quarantined: its poke took its process down 3 times, the last time: signal 11"]


def test_a_poke_of_a_group_that_was_left_to_others_is_told_to_the_next_job(place: Apart) -> None:
    stranded, other, refused = place.register("a", "b", "c")
    place.offer(Suspicion.OVERRAN, stranded, other, refused, stranded=[stranded, refused])
    for group in (stranded, other):
        place.hanging.hand_in(group, Outcome.NOT_LANDED)
    place.hanging.hand_in(refused, Outcome.CANNOT_POKE)
    assert list(place.leases.poked_apart.take(place.shard_range)) == [stranded]


@pytest.mark.parametrize("end", ["retire", "close"])
def test_what_has_not_begun_when_a_process_ends_is_due_at_once_elsewhere(place: Apart, end: str) -> None:
    [group] = place.register("a")
    place.offer(Suspicion.OVERRAN, group)
    getattr(place.suspects, end)()
    held: Any = place.leases.acquire(place.shard_range, "one")
    assert (held.suspects, held.lost_turn) == ({group: Suspicion.OVERRAN}, [group])
    assert place.claimed(group) == set()
    assert place.suspects.in_hand == 0


def test_a_process_that_has_retired_begins_nothing_and_says_so(place: Apart) -> None:
    groups = place.register("a", "b")
    place.suspects.retire()
    assert len(place.offer(Suspicion.OVERRAN, *groups)) == 2
    assert place.suspects.in_hand == 0
    held: Any = place.leases.acquire(place.shard_range, "one")
    assert sorted(held.lost_turn) == sorted(groups)
    assert place.claimed(*groups) == set()


def test_a_wait_for_redis_is_no_jump_of_the_clock(place: Apart, monkeypatch: pytest.MonkeyPatch) -> None:
    passed: list[float] = [time.monotonic()]
    here = SimpleNamespace(monotonic=lambda: passed[-1])
    watch, outside = ClockWatch(), place.process.outside
    for module in (outside_results, clock_watch):
        monkeypatch.setattr(module, "time", here)
    monkeypatch.setattr(outside, "_clock", watch)
    monkeypatch.setattr(outside._away, "take", lambda _: passed.append(passed[-1] + 20))
    [group] = place.register("a")
    assert watch.trusts(place.clock.ms)
    place.offer(Suspicion.OVERRAN, group)
    place.hanging.hand_in(group, Outcome.NOT_LANDED)
    assert len(passed) == 2
    assert watch.trusts(place.clock.ms + 20_000)
