"""A job that serves several ranges at once: what comes of one range does not change what comes of another."""

import time
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from harness.until import until
from sensorpool.errors import Unreachable
from sensorpool.leases.lease import Acquired, Lease
from sensorpool.leases.poke_log import latest_pokes
from sensorpool.leases.range_state import RangeState
from sensorpool.leases.redis_store import range_key
from sensorpool.leases.roster import Roster
from sensorpool.model.states import Outcome
from sensorpool.model.values import Fact, JobResult, Settlement, ShardRange, Unsettled
from sensorpool.store.database import Database
from sensorpool.worker import job, quiet
from tests.support.scripted_worker import TICK, Place, RecordingSlowPokes, RecordingSuspects, ScriptedPoker

NAMES = [f"n{number}" for number in range(12)]


class Jobs(Place):
    """A place with four ranges and one worker."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.settle_on(shards=4, redis_url="redis://127.0.0.1:1/0")
        self.pool._leases = self.leases
        self.pool._hints = Roster(self.leases)
        worker: Any = self.worker()
        self.process, self.slow = worker, RecordingSlowPokes()
        worker.suspects, worker.slow_pokes = RecordingSuspects(), self.slow
        self.ids = self.register(*NAMES)
        self.groups = {shard_range: self._inside(shard_range) for shard_range in self.pool.ranges}
        assert all(len(ids) >= 1 for ids in self.groups.values()), "the names fall into all ranges"

    def _inside(self, shard_range: ShardRange) -> list[int]:
        question = "SELECT id FROM poke_group WHERE shardcode >= ? AND shardcode < ? ORDER BY id"
        with self.pool.database.engine.connect() as connection:
            found = connection.exec_driver_sql(question, (shard_range.shard_min, shard_range.shard_max))
            return [group_id for (group_id,) in found]

    @property
    def ranges(self) -> tuple[ShardRange, ...]:
        """Its ranges."""
        return tuple(self.pool.ranges)

    @property
    def poker(self) -> ScriptedPoker:
        """The lanes of the process."""
        poker: ScriptedPoker = self.process.poker
        return poker

    def job(self, ticks: int = 1, token: str = "one@here/1") -> list[JobResult]:
        """Run the job of a later tick, for all ranges."""
        self.clock.ms += ticks * TICK
        return job.run_each(self.process, self.ranges, token)

    def state(self, place: int) -> RangeState:
        """The state that the last job left in a range."""
        return self.leases.look([self.ranges[place]])[0][1]

    def holders(self) -> list[str | None]:
        """Who holds each range."""
        return [holder for holder, _, _ in self.leases.look(self.ranges)]


@pytest.fixture
def place(database: Database, client: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    made = Jobs(database, client, monkeypatch)
    yield made
    made.close()


def test_each_range_has_its_own_groups_state_record_and_result(place: Jobs) -> None:
    results = place.job()
    assert sorted(place.poker.poked) == sorted(place.ids)
    for number, (shard_range, result) in enumerate(zip(place.ranges, results, strict=True)):
        ours = place.groups[shard_range]
        assert (result.groups, result.poked) == (len(ours), len(ours))
        state = place.state(number)
        assert (state.last, sorted(state.recent), state.groups) == (place.clock.ms, ours, len(ours))
        records = place.leases.poke_log.records(shard_range)
        assert sorted(latest_pokes(records, place.ids)) == ours
        assert place.client.get(range_key(shard_range, "note")) is None
    assert place.holders() == [None] * 4


def test_what_lands_in_several_ranges_is_settled_in_one_flush(place: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    flushes: list[int] = []
    real = place.process.settler.settle
    monkeypatch.setattr(
        place.process.settler, "settle", lambda facts, *rest: flushes.append(len(facts)) or real(facts, *rest)
    )
    landed = [place.groups[shard_range][0] for shard_range in place.ranges[:3]]
    place.poker.script = dict.fromkeys(landed, Outcome.LANDED)
    results = place.job()
    assert flushes == [3]
    assert [result.landed for result in results] == [1, 1, 1, 0]
    assert sum(result.settled for result in results) == 3
    assert place.states().count("success") == 3


def test_a_group_whose_result_cannot_be_written_is_noted_in_its_own_range(
    place: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    [bad, good] = [place.groups[shard_range][0] for shard_range in place.ranges[:2]]
    place.poker.script = {bad: Outcome.LANDED, good: Outcome.LANDED}
    stuck = Settlement(1, {bad: Unsettled(place.clock.ms, "disk full")})
    monkeypatch.setattr(place.process.settler, "settle", lambda *_: stuck)
    results = place.job()
    assert [result.extra.get("unsettled") for result in results] == [1, None, None, None]
    assert [place.client.hkeys(range_key(each, "unsettled")) for each in place.ranges] == [[str(bad)], [], [], []]
    held = place.leases.acquire(place.ranges[0], "next")
    assert isinstance(held, Acquired)
    assert list(held.unsettled) == [bad]


def test_what_was_unsettled_in_one_range_is_known_to_the_joint_settle(
    place: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, third = place.groups[place.ranges[0]][0], place.groups[place.ranges[2]][0]
    since = {
        group_id: Unsettled(place.clock.ms - number, "disk full") for number, group_id in enumerate((first, third))
    }
    for number, group_id in ((0, first), (2, third)):
        place.leases.unsettled.keep(place.ranges[number], {group_id: since[group_id]})
    known: list[dict[int, Unsettled]] = []

    def settle(facts: list[Fact], _: bool, asked: Any) -> Settlement:
        known.append(dict(asked([])))
        return Settlement(len(facts), {})

    monkeypatch.setattr(place.process.settler, "settle", settle)
    place.poker.script = {first: Outcome.LANDED, third: Outcome.LANDED}
    place.job()
    assert known[0].keys() == {first, third}
    assert [place.client.exists(range_key(each, "unsettled")) for each in place.ranges] == [0] * 4


def test_a_range_that_another_job_holds_is_left_to_it(place: Jobs) -> None:
    assert isinstance(place.leases.acquire(place.ranges[1], "another"), Acquired)
    results = place.job()
    assert [result.skipped for result in results] == [None, "held by another", None, None]
    assert set(place.poker.poked).isdisjoint(place.groups[place.ranges[1]])
    assert place.holders() == [None, "another", None, None]


def test_a_job_that_gets_no_lease_does_nothing(place: Jobs) -> None:
    place.leases.acquire_each(place.ranges, "another")
    assert [result.skipped for result in place.job()] == ["held by another"] * 4
    assert not place.poker.poked


def test_only_the_range_that_was_woken_has_another_round(place: Jobs) -> None:
    """Its registration came while the job poked."""
    woken: list[int] = []

    def register() -> None:
        if not woken:
            woken.extend(place.register("once more"))

    place.poker.at_step = register
    place.job()
    [group_id] = woken
    assert place.poker.poked.count(group_id) == 1
    assert len(place.poker.poked) == len(NAMES) + 1
    assert place.holders() == [None] * 4


def test_a_lease_that_is_lost_leaves_the_other_ranges_their_state(place: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    place.job()
    lost = place.ranges[2]
    before = place.state(2).last

    held: list[Lease] = []
    acquire = place.leases.acquire_each

    def acquired(ranges: Sequence[ShardRange], token: str) -> Any:
        found = acquire(ranges, token)
        held.extend(each.lease for each in found if isinstance(each, Acquired))
        return found

    def lose() -> None:
        place.client.set(range_key(lost, "lease"), "another", px=60_000)
        assert not held[2].extend()

    monkeypatch.setattr(place.leases, "acquire_each", acquired)
    place.poker.at_step = lose
    results = place.job()
    assert [result.extra.get("lost_lease", False) for result in results] == [False, False, True, False]
    assert [place.state(number).last == place.clock.ms for number in range(4)] == [True, True, False, True]
    assert place.state(2).last == before
    assert place.holders() == [None, None, "another", None]


@pytest.mark.parametrize("error", [Unreachable("the database is away"), ZeroDivisionError("a fault")], ids=repr)
def test_an_error_gives_all_leases_back_and_all_groups_are_due_again(place: Jobs, error: Exception) -> None:
    def fail() -> None:
        raise error

    place.poker.at_step = fail
    with pytest.raises(type(error)):
        place.job()
    assert place.holders() == [None] * 4
    assert place.poker.withdrawn
    place.poker.at_step = lambda: None
    place.job()
    assert sorted(place.poker.poked) == sorted(place.ids)


def test_a_signal_leaves_what_each_range_had_in_flight(place: Jobs) -> None:
    place.process.is_struck = lambda _: True
    seen: list[list[int]] = []

    def struck() -> None:
        seen.extend(
            sorted(map(int, place.client.get(range_key(each, "note"))[1:-1].split(","))) for each in place.ranges
        )
        raise SystemExit(1)

    place.poker.at_step = struck
    with pytest.raises(SystemExit):
        place.job()
    ours = [place.groups[each] for each in place.ranges]
    assert seen == ours
    for shard_range in place.ranges:
        held = place.leases.acquire(shard_range, "next")
        assert isinstance(held, Acquired)
        assert sorted(held.in_flight) == place.groups[shard_range]


def test_slow_pokes_go_on_each_for_its_own_range(place: Jobs) -> None:
    slow = [place.groups[place.ranges[number]][0] for number in (1, 3)]
    place.poker.script = dict.fromkeys(slow)
    place.poker.held_up = True
    results = place.job()
    assert place.slow.by_range == {place.ranges[1]: [slow[0]], place.ranges[3]: [slow[1]]}
    assert [result.extra.get("slow") for result in results] == [None, 1, None, 1]
    marks = place.leases.marks.look(place.ranges)
    assert [mark.took is None for mark in marks] == [False, True, False, True]


def test_what_there_is_no_time_for_is_left_over_in_its_range(place: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    place.poker.room = 0
    here = time.monotonic()
    began = iter([here])  # of the dispatch, whose later looks at the clock find that its time is up
    late = SimpleNamespace(monotonic=lambda: next(began, here + 10), sleep=lambda _: None)
    monkeypatch.setattr(job.dispatch, "time", late)
    results = place.job()
    assert [result.left for result in results] == [len(place.groups[each]) for each in place.ranges]
    assert [sorted(place.state(number).left) for number in range(4)] == [place.groups[each] for each in place.ranges]


def test_where_very_much_is_due_the_other_ranges_have_jobs_of_their_own(
    place: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quiet, "MOST_TOGETHER", len(place.groups[place.ranges[0]]))
    place.leases.dirty_flags.put_up(place.ranges[3], late=[place.groups[place.ranges[3]][0]])
    place.process.publisher.nudged.clear()
    results = place.job()
    assert [result.extra.get("sent_on") for result in results] == [None, 1, 1, 1]
    assert sorted(place.poker.poked) == place.groups[place.ranges[0]]
    nudged = place.process.publisher.nudged  # a thread of the outbox fills it
    until("the nudges of the other ranges", lambda: len(nudged) >= 3, 10)
    assert nudged == list(place.ranges[1:])
    assert place.holders() == [None] * 4
    held = place.leases.acquire(place.ranges[3], "next")
    assert isinstance(held, Acquired)
    assert (held.dirty, held.late) == (True, [place.groups[place.ranges[3]][0]])


def test_a_redis_that_was_started_anew_learns_the_scripts_again(place: Jobs) -> None:
    place.client.script_flush()
    place.job()
    assert sorted(place.poker.poked) == sorted(place.ids)
    place.client.script_flush()
    place.job()
    assert place.holders() == [None] * 4
    assert [place.state(number).last for number in range(4)] == [place.clock.ms] * 4


@pytest.mark.parametrize("name", ["note", "state", "suspects", "unsettled", "late", "lease"])
def test_a_key_of_another_kind_counts_as_lost(place: Jobs, name: str) -> None:
    place.client.zadd(range_key(place.ranges[1], name), {"not ours": 1})
    place.job()
    assert sorted(place.poker.poked) == sorted(place.ids)
    assert place.holders() == [None] * 4


def test_ranges_without_groups_are_quiet_together(place: Jobs) -> None:
    place.poker.script = dict.fromkeys(place.ids, Outcome.LANDED)
    place.job()
    place.job()
    assert [mark.quiet for mark in place.leases.marks.look(place.ranges)] == [60.0] * 4


def test_a_repeated_message_leaves_the_ranges_as_they_are(place: Jobs) -> None:
    place.job()
    poked = len(place.poker.poked)
    before = [place.state(number) for number in range(4)]
    place.job(ticks=0)
    assert len(place.poker.poked) == poked
    assert [place.state(number) for number in range(4)] == before
