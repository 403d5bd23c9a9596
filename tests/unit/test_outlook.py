"""The marks that a job leaves: nothing is said to be quiet of which anything is to come before."""

from collections.abc import Iterator
from typing import Any

import pytest

from sensorpool.leases.range_marks import LONGEST_QUIET, Marks, most_together
from sensorpool.leases.roster import Roster
from sensorpool.model.states import Outcome
from sensorpool.model.suspicion import Suspicion
from sensorpool.model.terms import Terms
from sensorpool.model.values import shard_ranges
from sensorpool.store.database import Database
from sensorpool.worker import job, quiet
from tests.support.scripted_worker import TICK, Place, RecordingSlowPokes, RecordingSuspects


class Jobs(Place):
    """A place with one worker, on a Redis that other processes reach too."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.settle_on(redis_url="redis://127.0.0.1:1/0", commit_overlap=1.0)
        worker: Any = self.worker()
        worker.suspects, worker.slow_pokes = RecordingSuspects(), RecordingSlowPokes()
        self.process: Any = worker
        self.pool._leases = self.leases
        self.pool._hints = Roster(self.leases)

    def marks(self, ticks: int = 1) -> Marks:
        """Run the job of a later tick; return the marks that it left."""
        self.clock.ms += ticks * TICK
        job.run(self.process, self.shard_range, "one@here/1")
        return self.leases.marks.look([self.shard_range])[0]


@pytest.fixture
def place(database: Database, client: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    made = Jobs(database, client, monkeypatch)
    yield made
    made.close()


def test_an_empty_range_is_quiet_for_a_minute_and_its_job_is_light(place: Jobs) -> None:
    found = place.marks()
    assert found.quiet == LONGEST_QUIET / 1000
    assert found.took is not None


@pytest.mark.parametrize(("poke_interval", "quiet"), [(20.0, True), (3_600.0, True), (5.0, False)])
def test_a_range_is_quiet_until_its_next_group_is_due(place: Jobs, poke_interval: float, quiet: bool) -> None:
    place.register("a", "b", poke_interval=poke_interval)
    place.marks()
    for _ in range(20):
        found = place.marks().quiet
        if found is None:
            continue
        poked = len(place.process.poker.poked)
        place.clock.ms += round(found * 1000) - 1
        job.run(place.process, place.shard_range, "two@here/1")
        assert len(place.process.poker.poked) == poked, "nothing was due while the mark stood"
        place.clock.ms += TICK  # sooner it would be a repeated message
        job.run(place.process, place.shard_range, "three@here/1")
        assert found == LONGEST_QUIET / 1000 or len(place.process.poker.poked) > poked
        assert quiet
        return
    assert not quiet


def test_a_deadline_ends_the_quiet(place: Jobs) -> None:
    place.register("a", poke_interval=3_600.0, timeout=17.0)
    assert place.marks(1).quiet == 12.0


@pytest.mark.parametrize("outcome", [Outcome.INFRA_FAILURE, Outcome.CANNOT_POKE, Outcome.POKE_TIMEOUT, None])
def test_what_is_to_be_tried_again_keeps_a_range_from_being_quiet(place: Jobs, outcome: Outcome | None) -> None:
    [group] = place.register("a", poke_interval=3_600.0)
    place.process.poker.script = {group: outcome}
    place.process.poker.held_up = True
    assert place.marks().quiet is None


def test_suspects_keep_a_range_from_being_quiet_or_light(place: Jobs) -> None:
    [group] = place.register("a", poke_interval=3_600.0)
    place.leases.suspects.mark(place.shard_range, [group], Suspicion.SLOW)
    assert place.marks() == Marks(None, None)


def test_what_was_left_over_keeps_a_range_from_being_quiet(place: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    place.register("a", "b", poke_interval=3_600.0)
    place.process.poker.room = 1
    monkeypatch.setattr(type(place.settings), "job_span", -1.0)
    assert place.marks() == Marks(None, None)


def test_a_settle_may_bring_a_deadline_nearer_so_it_leaves_no_quiet_mark(place: Jobs) -> None:
    place.register("a", poke_interval=3_600.0, timeout=20.0)
    place.register("a", poke_interval=3_600.0, timeout=34.0)
    place.marks()
    assert place.marks(ticks=3).quiet is None, "the first deadline has come; the second is 14 seconds away"
    assert place.states() == ["failed", "sensing"]
    assert place.marks().quiet == 9.0


def test_a_group_that_goes_to_the_isolated_lane_keeps_its_range_from_being_quiet(place: Jobs) -> None:
    [group] = place.register("a", poke_interval=3_600.0)
    with place.pool.database.engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE poke_group SET crashes = 1, version = version + 1 WHERE id = {group}")
    assert place.marks() == Marks(None, None)
    assert place.process.suspects.offered


def test_a_waiter_that_joins_while_a_job_runs_keeps_it_from_leaving_a_mark(place: Jobs) -> None:
    place.register("a", poke_interval=3_600.0)
    place.process.poker.at_step = lambda: place.register("a", poke_interval=5.0)
    assert place.marks().quiet is None
    place.process.poker.at_step = lambda: None
    place.marks(ticks=2)
    assert len(place.process.poker.poked) >= 2


def test_a_waiter_wakes_the_ranges_of_the_workers(place: Jobs) -> None:
    """The client was started with other shards, and has not heard of the workers yet."""
    place.register("a", poke_interval=3_600.0)
    while place.marks().quiet is None:
        pass
    terms = Terms(place.pool.pool_id.get() or "", 1, place.settings.shard_code_upper_limit)
    Roster(place.leases).enroll("w", terms, tick=5.0, version="1", must_agree=False)
    place.pool.ranges = shard_ranges(4, place.settings.shard_code_upper_limit)
    [ours] = terms.ranges
    place.register("a", poke_interval=5.0)
    assert place.leases.marks.look([ours])[0].quiet is None


def test_an_instance_that_is_found_again_wakes_its_range(place: Jobs) -> None:
    """Its first registration may have had no answer, and sent no nudge."""
    named = {"dag_id": "d", "task_id": "t", "run_id": "r"}
    place.register("a", poke_interval=3_600.0, **named)
    while place.marks().quiet is None:
        pass
    place.register("a", poke_interval=3_600.0, **named)
    assert place.leases.marks.look([place.shard_range])[0].quiet is None


def test_a_clock_that_cannot_be_trusted_leaves_no_mark(place: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place.process.clock, "trusts", lambda _: False)
    assert place.marks() == Marks(None, None)


def test_a_condition_that_landed_leaves_its_range_quiet(place: Jobs) -> None:
    [group] = place.register("a", poke_interval=3_600.0)
    place.process.poker.script = {group: Outcome.LANDED}
    assert place.marks().quiet == LONGEST_QUIET / 1000
    assert place.states() == ["success"]


def test_between_two_moments_of_many_groups_their_range_is_quiet(place: Jobs) -> None:
    names = [f"s{number}" for number in range(300)]
    place.register(*names, poke_interval=180.0)
    moments: list[tuple[int, int]] = []
    poked = 0
    for _ in range(2 + 2 * 36):
        quiet = place.marks().quiet
        now, before, poked = place.clock.ms, poked, len(place.process.poker.poked)
        if poked > before and len(place.process.poker.poked) > 2 * len(names):
            moments.append((now, poked - before))
            assert quiet is not None
            assert (now + round(quiet * 1000)) % 30_000 == 0, "until the next moment"
    assert len(moments) >= 6
    assert all(now % 30_000 < TICK for now, _ in moments)
    assert all(20 < number < 100 for _, number in moments), "a sixth of the groups each time"


def test_groups_that_adaptive_intervals_passed_over_keep_no_range_from_being_quiet(place: Jobs) -> None:
    place.register("a", poke_interval=3_600.0)
    step = job._begin

    def passed_over(worker: Any, visit: Any, *arguments: Any) -> Any:
        visit.result.count("sparse", 1)
        return step(worker, visit, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "_begin", passed_over)
        place.marks()
        assert place.marks().quiet


def test_ranges_with_many_due_groups_count_for_more_than_their_time(
    place: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So no range of a shared job has to be sent on after its load."""
    monkeypatch.setattr(quiet, "MOST_TOGETHER", 1)  # so that they count for longer than a job takes on any machine
    monkeypatch.setattr(quiet, "_LIGHT", 60.0)
    place.register(*map(str, range(40)), poke_interval=5.0)
    took = place.marks().took
    assert took is not None
    assert took == pytest.approx(40 * most_together(TICK / 1000), abs=0.002)


def test_many_due_groups_are_not_asked_when_they_are_due_next(place: Jobs) -> None:
    place.register(*map(str, range(17)), poke_interval=55.0)
    found = place.marks()
    assert found.quiet is None
    assert found.took is not None


def test_with_the_one_process_service_no_range_is_quiet(place: Jobs) -> None:
    place.settle_on()
    assert place.settings.embedded
    place.process = place.worker()
    assert place.marks().quiet is None


def test_a_group_that_opens_wakes_its_range(place: Jobs) -> None:
    assert place.marks().quiet
    place.register("a", poke_interval=3_600.0)
    assert place.leases.marks.look([place.shard_range])[0].quiet is None


@pytest.mark.parametrize(
    ("poke_interval", "timeout", "wakes"), [(5.0, 3_600.0, True), (3_600.0, 30.0, True), (60.0, 3_600.0, False)]
)
def test_a_waiter_that_hurries_a_group_wakes_its_range(
    place: Jobs, poke_interval: float, timeout: float, wakes: bool
) -> None:
    place.register("a", poke_interval=3_600.0)
    while place.marks().quiet is None:
        pass
    place.register("a", poke_interval=poke_interval, timeout=timeout)
    assert (place.leases.marks.look([place.shard_range])[0].quiet is None) is wakes


def test_a_range_that_was_quiet_is_not_late(place: Jobs) -> None:
    assert place.marks().quiet
    place.client.pexpire(place.leases.store.key(place.shard_range, "quiet"), 10_000)  # fifty of sixty seconds passed
    place.leases.marks.look([place.shard_range])
    place.marks(ticks=11)
    assert place.leases.look([place.shard_range])[0][1].lag_ms == 0
    place.marks(ticks=3)
    assert 0 <= 2 * TICK - place.leases.look([place.shard_range])[0][1].lag_ms < 1_000
