"""The steps of a job, one by one, with scripted pokes: each on the result of the step before."""

from collections.abc import Iterator
from typing import Any

import pytest

from sensorpool.errors import Unreachable
from sensorpool.leases.dirty_flags import at_once
from sensorpool.leases.lease import Acquired
from sensorpool.leases.range_state import RangeState
from sensorpool.model.states import Outcome
from sensorpool.model.suspicion import Suspicion
from sensorpool.model.values import Failing, JobResult
from sensorpool.store.database import Database
from sensorpool.worker import job
from sensorpool.worker.context import Worker
from tests.support.scripted_worker import TICK, Place, RecordingSlowPokes, RecordingSuspects, ScriptedPoker

HOUR = 3_600_000


class Jobs(Place):
    """A place with one worker, which runs jobs."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.apart, self.slow = RecordingSuspects(), RecordingSlowPokes()
        self.passed_on: list[float] = []
        self.use(self.worker())

    def use(self, worker: Worker) -> None:
        """Have another process run the jobs from now on."""
        self.process = worker
        stands_in: Any = worker
        stands_in.suspects, stands_in.slow_pokes = self.apart, self.slow
        stands_in.pass_on = lambda _, span: self.passed_on.append(span) if span is not None else None

    @property
    def poker(self) -> ScriptedPoker:
        """The lanes of the process."""
        poker: Any = self.process.poker
        return poker  # type: ignore[no-any-return]

    def job(self, ticks: int = 1, token: str = "one@here/1") -> JobResult:
        """Run the job of a later tick."""
        self.clock.ms += ticks * TICK
        return job.run(self.process, self.shard_range, token)

    @property
    def state(self) -> RangeState:
        """The state that the last job left."""
        [(holder, state, _)] = self.leases.look([self.shard_range])
        assert holder is None, "a job that has ended holds nothing"
        return state

    def leave(self, **state: Any) -> None:
        """Leave a state, as a job does."""
        held = self.hold()
        for name, value in state.items():
            setattr(held.state, name, value)
        held.lease.finish(held.state)

    def hold(self, token: str = "other@there/1") -> Acquired:
        """Take the lease."""
        held = self.leases.acquire(self.shard_range, token)
        assert isinstance(held, Acquired)
        return held

    def marks(self) -> dict[int, Suspicion | None]:
        """The suspects of the range in Redis."""
        marks = self.leases.suspects
        return {each: marks.why(self.shard_range, each) for each in marks.of(self.shard_range)}


@pytest.fixture
def place(database: Database, client: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    made = Jobs(database, client, monkeypatch)
    yield made
    made.close()


# acquire


def test_a_range_that_is_held_is_left_to_its_holder(place: Jobs) -> None:
    place.register("a")
    place.hold("other@there/7")
    assert place.job().as_dict() == {"skipped": "held by other@there/7"}
    assert place.poker.poked == []


def test_an_error_gives_the_lease_back_and_what_was_poked_is_due_again(place: Jobs) -> None:
    [group] = place.register("a")

    def fail() -> None:
        raise Unreachable("the database is away")

    place.poker.at_step = fail
    with pytest.raises(Unreachable):
        place.job()
    assert place.poker.withdrawn
    place.poker.at_step = lambda: None
    assert place.job(0).poked == 1
    assert place.poker.poked == [group]


def test_a_signal_that_a_poke_may_have_sent_leaves_what_was_in_flight(place: Jobs) -> None:
    [group] = place.register("a")

    def fail() -> None:
        raise SystemExit(-241)

    place.poker.at_step = fail
    place.process.is_struck = lambda error: isinstance(error, SystemExit)
    with pytest.raises(SystemExit):
        place.job()
    assert place.hold().in_flight == [group]


def test_what_a_dead_holder_had_in_flight_outlives_a_job_that_cannot_load(
    place: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    [group] = place.register("a")
    place.hold().lease.put_in_flight([group])
    place.client.delete(place.leases.store.key(place.shard_range, "lease"))

    def fail(*_: object) -> None:
        raise Unreachable("the database is away")

    with monkeypatch.context() as patched:
        patched.setattr(job, "_load", fail)
        with pytest.raises(Unreachable):
            place.job()
    place.job(0)
    assert place.poker.poked == []
    assert place.apart.offered == {group: Suspicion.DEAD_HOLDER}


# load


def test_a_repeated_message_loads_nothing(place: Jobs) -> None:
    place.register("a", poke_interval=3_600)
    assert place.job().poked == 1
    before = place.state
    place.clock.ms += TICK // 2 - 1
    assert place.job(0).groups == 0
    assert place.state == before
    place.clock.ms += 1
    assert place.job(0).groups == 0, "it is loaded, and nothing is due"
    assert place.state.last == before.last + TICK // 2


@pytest.mark.parametrize("why", ["dirty", "late", "in flight"])
def test_a_repeated_message_that_brings_news_is_a_job(place: Jobs, why: str) -> None:
    place.job()
    [group] = place.register("a", poke_interval=60)
    if why == "in flight":
        held = place.hold()
        held.lease.put_in_flight([group])
        place.client.delete(place.leases.store.key(place.shard_range, "lease"))
    else:
        place.leases.dirty_flags.put_up(place.shard_range, [group] if why == "late" else [])
    assert place.job(0).groups == 1


def test_a_new_group_is_poked_once_though_the_next_load_finds_it_as_new_again(place: Jobs) -> None:
    [group] = place.register("a", poke_interval=3_600)
    for _ in range(3):
        place.job()
    assert place.poker.poked == [group]


def test_what_redis_knows_of_other_tables_is_dropped(place: Jobs) -> None:
    [group] = place.register("a")
    place.leave(pool="the pool before", left=[group], infra={group: 1})
    place.leases.suspects.mark(place.shard_range, [group], Suspicion.OVERRAN)
    place.job()
    assert place.apart.offered == {}
    assert place.poker.poked == [group]
    assert place.state.infra == {}
    assert place.state.pool == place.process.pool_id.get()


# an outage


@pytest.mark.parametrize(("last", "state"), [(1, "failed"), (HOUR // TICK, "sensing")])
def test_an_outage_is_no_time_in_which_a_group_failed(place: Jobs, last: int, state: str) -> None:
    """In one case a job each tick sees it fail for an hour; in the other there is no job for that hour."""
    place.settle_on(infra_failure_window=60)
    place.use(place.worker())
    [group] = place.register("a", timeout=10 * HOUR / 1000)
    began = place.clock.ms
    place.clock.ms += HOUR
    place.leave(last=place.clock.ms - (last - 1) * TICK, infra={group: began})
    place.poker.script[group] = Outcome.INFRA_FAILURE
    place.job()
    assert place.states() == [state]
    failing = place.state.infra
    assert failing == {} if state == "failed" else failing[group] > began + HOUR - 60_000


def test_an_outage_is_no_time_in_which_no_process_could_poke(place: Jobs) -> None:
    [group] = place.register("a", poke_interval=3_600)
    began = place.clock.ms
    place.clock.ms += HOUR
    place.leave(last=began, stranded={group: began}, left=[group])
    place.poker.script[group] = Outcome.CANNOT_POKE
    place.job()
    assert place.state.resumed == place.clock.ms
    assert place.state.stranded[group] > began + HOUR // 2


def test_failures_of_groups_that_are_gone_are_forgotten_and_others_are_kept(place: Jobs) -> None:
    [group] = place.register("a", poke_interval=3_600)
    place.job()
    place.leave(infra={group: 1, 4_711: 1})
    place.job()
    assert place.state.infra == {group: 1}


# suspects are set apart


def test_groups_in_a_dead_holders_hands_are_poked_apart(place: Jobs) -> None:
    first, second, alone = place.register("a", "b", "c")
    held = place.hold()
    held.lease.put_in_flight([first, alone])
    place.leases.suspects.mark(place.shard_range, [alone], Suspicion.CRASHED)
    place.client.delete(place.leases.store.key(place.shard_range, "lease"))
    result = place.job()
    assert place.poker.poked == [second]
    assert place.apart.offered == {first: Suspicion.DEAD_HOLDER, alone: Suspicion.CRASHED}
    assert place.marks() == place.apart.offered, "a group that is poked alone keeps its reason"
    assert (result.groups, result.poked) == (3, 1)
    place.apart.offered.clear()
    place.job()
    assert set(place.apart.offered) == {first, alone}, "until they are cleared"


def test_the_failure_of_a_group_that_is_poked_apart_is_told_to_the_process_that_pokes_it(place: Jobs) -> None:
    """Its answer ends the failure, and the next one in a job is the first of a new window."""
    [group] = place.register("a")
    began = place.clock.ms
    place.leave(last=began, infra={group: began})
    place.leases.suspects.mark(place.shard_range, [group], Suspicion.OVERRAN)
    place.job()
    assert place.apart.offered == {group: Suspicion.OVERRAN}
    assert place.state.infra == {}
    told = place.leases.outside_failures.of(place.shard_range, [group])
    assert told.failing == {group: Failing(began, place.clock.ms)}


def test_what_was_told_is_taken_up_in_the_round_after_a_repeated_message(
    place: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    [group] = place.register("a")
    began = place.clock.ms
    place.job()
    told, store = Failing(began, place.clock.ms), place.leases.outside_failures
    store.keep(place.shard_range, {group: told})
    place.poker.script[group] = Outcome.INFRA_FAILURE
    rounds = []

    def woken(*_: Any) -> None:
        rounds.append(1)
        place.leases.dirty_flags.put_up(place.shard_range, [at_once(group)])

    monkeypatch.setattr(job.passing_on, "again", woken)
    place.job(ticks=0)
    assert rounds, "its message is a repeated one"
    assert place.state.infra == {group: told.since}
    assert store.of(place.shard_range, [group]).failing == {}


def test_a_job_that_ends_leaves_nothing_in_flight(place: Jobs) -> None:
    place.register("a")
    place.job()
    assert place.hold().in_flight == []


def test_suspects_that_are_still_poked_miss_a_turn_and_are_counted(place: Jobs) -> None:
    [group] = place.register("a")
    place.leases.suspects.mark(place.shard_range, [group], Suspicion.OVERRAN)
    place.apart.busy = [group]
    assert place.job().extra == {"busy": 1}


def test_a_suspect_that_lost_its_turn_is_due_whatever_the_time(place: Jobs) -> None:
    [group] = place.register("a", poke_interval=3_600)
    place.job()
    place.leases.suspects.mark_each(place.shard_range, {group: Suspicion.OVERRAN}, lost_turn=True)
    place.job()
    assert place.apart.offered == {group: Suspicion.OVERRAN}
    place.apart.offered.clear()
    place.job()
    assert place.apart.offered == {}, "once"


def test_where_the_process_retires_the_lost_turn_stays_lost(place: Jobs) -> None:
    [group] = place.register("a", poke_interval=3_600)
    place.job()
    place.leases.suspects.mark_each(place.shard_range, {group: Suspicion.OVERRAN}, lost_turn=True)
    place.apart.is_retired = True
    place.job()
    assert place.hold().lost_turn == [group]


# poke


def test_what_landed_is_settled_and_the_rest_waits(place: Jobs) -> None:
    landing, _, skipping = place.register("a", "b", "c")
    place.poker.script |= {landing: Outcome.LANDED, skipping: Outcome.SKIP}
    result = place.job()
    assert place.states() == ["success", "sensing", "skipped"]
    assert (result.groups, result.poked, result.landed, result.settled) == (3, 3, 1, 2)
    state = place.state
    assert (state.holder, state.groups, state.pokes, state.last) == ("one@here/1", 3, 3, place.clock.ms)


def test_a_deadline_ends_an_instance_after_a_poke_that_found_nothing(place: Jobs) -> None:
    place.register("a", timeout=12 * TICK / 1000)
    place.job()
    assert place.states() == ["sensing"]
    place.job(12)
    assert place.states() == ["failed"]


def test_a_lost_lease_ends_the_pokes_and_leaves_no_state(place: Jobs) -> None:
    place.settle_on(heartbeat=0.05)
    place.use(place.worker())
    landing, slow = place.register("a", "b")
    place.poker.script = {landing: Outcome.LANDED, slow: None}
    name = place.leases.store.key(place.shard_range, "lease")
    place.poker.at_step = lambda: place.client.set(name, "other@there/9")
    assert place.job().extra["lost_lease"]
    [(holder, state, _)] = place.leases.look([place.shard_range])
    assert (holder, state.last) == ("other@there/9", 0)
    assert place.states() == ["success", "sensing"], "what was seen is true, whoever holds the lease"


def test_what_there_was_no_time_for_comes_first_in_the_next_job(place: Jobs) -> None:
    groups = place.register(*"abcdef", poke_interval=3_600)
    place.poker.room, place.poker.held_up = 0, True
    assert place.job().left == 6
    assert sorted(place.state.left) == sorted(groups)
    since = place.clock.ms
    assert set(place.state.left_since.values()) == {since}
    late = place.register("g", poke_interval=3_600)
    place.job()
    assert place.state.left_since[late[0]] > since
    assert place.state.left[-1] == late[0]
    place.poker.room, place.poker.held_up = 1_000, False
    place.job()
    assert place.poker.poked[-1] == late[0], "the group that has waited for longest has its turn first"
    assert place.state.left == []


def test_a_class_that_hangs_has_its_other_groups_poked_apart(place: Jobs) -> None:
    groups = place.register(*"abc")
    place.poker.room, place.poker.held_up, place.poker.stuck = 0, True, True
    result = place.job()
    assert place.apart.offered == dict.fromkeys(groups, Suspicion.CLASS_HANGS)
    assert place.marks() == place.apart.offered
    assert (result.extra, result.left) == ({"apart": 3}, 0)


@pytest.mark.parametrize("is_lost", [False, True])
def test_who_has_the_lease_tells_the_failures_of_groups_whose_pokes_outlive_the_job(place: Jobs, is_lost: bool) -> None:
    """One who has stood still for longer than the lease knows of no answer since."""
    place.settle_on(heartbeat=0.05)
    place.use(place.worker())
    [group] = place.register("a")
    began = place.clock.ms
    place.leave(last=began, infra={group: began})
    place.poker.script, place.poker.held_up = {group: None}, not is_lost
    if is_lost:
        name = place.leases.store.key(place.shard_range, "lease")
        place.poker.at_step = lambda: place.client.set(name, "other@there/9")
    assert ("lost_lease" in place.job().extra) is is_lost
    assert place.slow.adopted == [group]
    told = place.leases.outside_failures.of(place.shard_range, [group]).failing
    assert told == ({} if is_lost else {group: Failing(began, place.clock.ms)})


def test_pokes_that_take_longer_than_their_job_go_on_outside_of_it(place: Jobs) -> None:
    slow, quick = place.register("a", "b")
    place.poker.script, place.poker.held_up = {slow: None}, True
    result = place.job()
    assert place.slow.adopted == [slow]
    assert place.poker.poked == [quick]
    assert result.extra == {"slow": 1}
    assert place.state.left == []


def test_a_poke_that_overran_is_a_suspect_and_the_instance_waits(place: Jobs) -> None:
    [group] = place.register("a")
    place.poker.script[group] = Outcome.POKE_TIMEOUT
    result = place.job()
    assert place.marks() == {group: Suspicion.OVERRAN}
    assert place.leases.suspects.overruns(place.shard_range, group) == 1
    assert (result.errors, place.states()) == (1, ["sensing"])


# groups that are left to others


def test_what_this_process_cannot_poke_is_left_to_the_others(place: Jobs) -> None:
    here, elsewhere = place.register("a", "b")
    place.poker.script[elsewhere] = Outcome.CANNOT_POKE
    result = place.job()
    at = place.clock.ms
    assert result.extra == {"not_here": 1}
    assert list(place.state.stranded) == [elsewhere]
    assert place.state.left == [elsewhere], "due at once in another process"
    assert (place.state.passes, place.passed_on) == (1, [0.0])
    assert place.job(0).groups == 0, "this process has nothing to do for it"
    assert place.state.passes == 2
    place.use(place.worker())
    place.job(0)
    assert place.poker.poked == [elsewhere]
    state = place.state
    assert (state.stranded, state.left, state.last) == ({}, [], at)
    assert here not in place.poker.poked


def test_a_group_that_no_process_can_poke_ends_once_the_window_is_over(place: Jobs) -> None:
    place.settle_on(infra_failure_window=70)
    place.use(place.worker())
    [group] = place.register("a", timeout=10 * HOUR / 1000)
    for _ in range(4):
        place.use(place.worker())
        place.poker.script[group] = Outcome.CANNOT_POKE
        place.job(4)
        assert place.states() == ["sensing"]
    place.use(place.worker())
    place.poker.script[group] = Outcome.CANNOT_POKE
    place.job(4)
    assert place.states() == ["failed"]
    assert "no process could poke it for 70 s" in str(place.reasons()[0])


def test_a_suspect_that_this_process_cannot_poke_is_not_handed_to_its_children(place: Jobs) -> None:
    [group] = place.register("a")
    place.job()
    place.process.outside.not_here[group] = "here: a.Class is not enabled"
    place.leases.suspects.mark(place.shard_range, [group], Suspicion.OVERRAN)
    assert place.job().extra == {"not_here": 1}
    assert place.apart.offered == {}
    assert list(place.state.stranded) == [group]


def test_a_stranded_group_that_was_poked_apart_elsewhere_is_no_longer_stranded(place: Jobs) -> None:
    [group] = place.register("a", poke_interval=3_600)
    place.poker.script[group] = Outcome.CANNOT_POKE
    place.job()
    place.leases.poked_apart.keep(place.shard_range, {group: place.clock.ms + TICK - 1})
    assert place.job().groups == 0
    assert (place.state.stranded, place.state.left) == ({}, [])


# finish


def test_a_range_that_became_dirty_is_looked_at_once_more(place: Jobs) -> None:
    [first] = place.register("a")
    seen: list[int] = []

    def register_once() -> None:
        if not seen:
            seen.extend(place.register("b", poke_interval=3_600))
            assert place.leases.dirty_flags.put_up(place.shard_range, seen)

    place.poker.at_step = register_once
    result = place.job()
    assert place.poker.poked == [first, *seen]
    assert result.groups == 2
    assert not place.hold().dirty


def test_no_further_round_begins_once_the_job_has_taken_its_time(place: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    place.register("a")
    begun: list[bool] = []

    def begin(now: object = None, has_budget: object = None) -> ScriptedPoker:
        begun.append(place.leases.dirty_flags.put_up(place.shard_range))
        return place.poker

    monkeypatch.setattr(place.poker, "begin", begin)
    monkeypatch.setattr(type(place.settings), "job_span", -1.0)
    place.job()
    assert len(begun) == 1
    assert place.hold().dirty, "the next job finds it"


def test_should_redis_forget_the_state_what_this_process_loaded_is_not_due_again(place: Jobs) -> None:
    place.register("a", poke_interval=3_600)
    for _ in range(3):
        place.job()
    place.client.flushall()
    assert place.job().groups == 0
    place.use(place.worker())
    place.client.flushall()
    assert place.job().groups == 1, "another process does not know"


def test_should_redis_forget_what_was_left_over_it_is_due_again(place: Jobs) -> None:
    [group] = place.register("a", poke_interval=3_600)
    place.poker.room, place.poker.held_up = 0, True
    place.job(12)
    place.client.flushall()
    place.poker.room = 1
    place.job()
    assert place.poker.poked == [group]


def test_the_record_says_what_was_poked(place: Jobs) -> None:
    place.register(*"ab")
    place.job()
    assert len(place.leases.poke_log.records(place.shard_range)) == 1
