"""Jobs with scripted pokes: what a job finds, and the rows and the state that it leaves."""

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection

from harness.until import until
from sensorpool.errors import Unreachable
from sensorpool.leases.background_notes import Isolated
from sensorpool.leases.lease import Acquired, Leases
from sensorpool.leases.range_state import RangeState
from sensorpool.model.states import Outcome
from sensorpool.model.trouble import Trouble
from sensorpool.model.values import JobResult
from sensorpool.store import troubles
from sensorpool.store.database import Database
from sensorpool.store.troubles import Changed
from sensorpool.worker.context import Worker
from tests.support.scripted_worker import TICK, Place, ScriptedPoker, ScriptedPoking, until_idle

HOUR = 3_600_000


class Jobs(Place):
    """A place with one worker, which runs jobs."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.process = self.worker()

    @property
    def poker(self) -> ScriptedPoker:
        """The lanes of the process."""
        poker: Any = self.process.poker
        return poker  # type: ignore[no-any-return]

    def use(self, worker: Worker) -> None:
        """Have another process run the jobs from now on."""
        self.process = worker

    def job(self, ticks: int = 1, token: str = "one@here/1") -> JobResult:
        """Run the job of a later tick."""
        self.clock.ms += ticks * TICK
        return self.process.run_job(self.shard_range, token)

    @property
    def state(self) -> RangeState:
        """The state that the last job left."""
        [(holder, state)] = self.leases.look([self.shard_range])
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

    def die(self, *in_flight: int) -> None:
        """Die as another process that has these groups in flight."""
        self.hold("dead@there/1").lease.put_in_flight(in_flight)
        self.client.delete(self.leases.store.key(self.shard_range, "lease"))

    def trouble(self, group_id: int, trouble: Trouble) -> None:
        """Write the trouble of a group, as a job does."""
        changed = {group_id: Changed(trouble, self.shard_range.shard_min)}
        self.pool.database.run(troubles.write, changed)

    def elsewhere(self, *slow: int, isolated: tuple[int, ...] = (), span: float = 60.0) -> Leases:
        """Note what another process pokes outside of jobs; return its leases."""
        leases = self.other_leases()
        leases.note_background(self.shard_range, slow, Isolated(isolated), span)
        return leases


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
    place.poker.at_step = lambda: None
    assert place.job(0).poked == 1
    assert place.poker.poked == [group]


def test_a_signal_that_a_poke_may_have_sent_leaves_what_was_in_flight(place: Jobs) -> None:
    [group] = place.register("a")

    def fail() -> None:
        raise SystemExit(-241)

    place.use(place.worker(is_struck=lambda error: isinstance(error, SystemExit)))
    place.poker.at_step = fail
    with pytest.raises(SystemExit):
        place.job()
    assert place.hold().struck == [group]


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
        place.die(group)
    else:
        place.leases.waking.raise_flags({place.shard_range: [group] if why == "late" else []})
    assert place.job(0).groups == 1


def test_a_new_group_is_poked_once_though_the_next_load_finds_it_as_new_again(place: Jobs) -> None:
    [group] = place.register("a", poke_interval=3_600)
    for _ in range(3):
        place.job()
    assert place.poker.poked == [group]


def test_what_redis_knows_of_other_tables_is_dropped(place: Jobs) -> None:
    groups = place.register("a", "b", "c")
    place.elsewhere(groups[0], span=-1.0)
    place.elsewhere(groups[1], isolated=(groups[2],))
    place.leave(pool="the pool before", left=dict.fromkeys(groups, 0))
    place.die(*groups)
    place.job()
    assert sorted(place.poker.poked) == sorted(groups)
    assert place.troubles() == {}
    assert place.state.pool == place.process.pool_id.get()
    assert place.hold().background.busy == set()


# strikes


def test_groups_in_a_dead_holders_hands_are_struck_and_isolated_in_this_job(place: Jobs) -> None:
    first, second, again = place.register("a", "b", "c")
    place.trouble(again, Trouble(strikes=1))
    place.die(first, again)
    result = place.job()
    assert place.poker.poked == [second]
    assert {each: trouble.strikes for each, trouble in place.troubles().items()} == {first: 1, again: 2}
    assert {each: suspect.alone for each, suspect in place.dying.in_lane.items()} == {first: False, again: True}
    assert (result.groups, result.poked, result.extra) == (3, 1, {"isolated": 2})
    assert place.hold().struck == []


@pytest.mark.parametrize("slow", [True, False])
def test_of_a_dead_process_only_what_it_poked_itself_is_struck(place: Jobs, slow: bool) -> None:
    [group] = place.register("a", poke_interval=3_600)
    place.job()
    place.poker.poked.clear()
    place.elsewhere(*[group] if slow else [], isolated=() if slow else (group,), span=-1.0)
    place.job()
    assert {each: trouble.strikes for each, trouble in place.troubles().items()} == ({group: 1} if slow else {})
    assert (list(place.dying.in_lane), place.poker.poked) == (([group], []) if slow else ([], [group]))
    assert place.hold().background.dead == []


def test_what_a_dead_holder_had_in_flight_outlives_a_job_that_cannot_load(
    place: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    [group] = place.register("a")
    place.die(group)

    def away(*_: object) -> None:
        raise Unreachable("the database is away")

    with monkeypatch.context() as patched:
        patched.setattr(place.process.database, "read", away)
        with pytest.raises(Unreachable):
            place.job()
    place.job(0)
    assert place.poker.poked == []
    assert list(place.dying.in_lane) == [group]
    assert place.troubles()[group].strikes == 1


def test_a_group_stays_isolated_until_a_poke_comes_back(place: Jobs) -> None:
    [group] = place.register("a")
    place.die(group)
    for strikes in (1, 2, 2):
        place.job()
        assert place.dying.in_lane[group].alone is (strikes == 2)
        place.dying.hand_in(group, Outcome.CRASHED)
        until_idle(place.process)
    assert place.troubles()[group].strikes == 2, "without a death of its own doing there is no third"
    place.job()
    place.dying.hand_in(group, Outcome.NOT_LANDED)
    until_idle(place.process)
    assert place.troubles() == {}
    place.job()
    assert place.poker.poked == [group]


def test_the_third_strike_is_that_of_a_child_that_had_the_group_alone(place: Jobs) -> None:
    [group] = place.register("a")
    place.trouble(group, Trouble(strikes=2))
    place.job()
    place.dying.hand_in(group, Outcome.CRASHED, "signal 11", own_doing=True)
    until_idle(place.process)
    assert place.states() == ["failed"]
    assert place.reasons() == ["quarantined: its poke took its process down 3 times, the last time: signal 11"]
    assert [each["reason"] for each in place.pool.database.read(troubles.quarantined)] == ["signal 11"]


def test_a_quarantined_condition_that_a_dead_process_left_unsettled_fails_in_the_next_job(place: Jobs) -> None:
    [group] = place.register("a")
    place.trouble(group, Trouble(strikes=3, cause="signal 11"))
    place.job()
    assert (place.poker.poked, place.dying.in_lane) == ([], {})
    assert place.states() == ["failed"]
    assert place.reasons() == ["quarantined: its poke took its process down 3 times, the last time: signal 11"]
    assert len(place.pool.database.read(troubles.quarantined)) == 1


# overruns


def test_a_poke_that_overran_isolates_its_group_until_one_is_in_time(place: Jobs) -> None:
    [group] = place.register("a")
    place.poker.script[group] = Outcome.POKE_TIMEOUT
    assert place.job().errors == 1
    assert (place.troubles()[group].overruns, place.states()) == (1, ["sensing"])
    place.job()
    assert not place.hanging.in_lane[group].alone
    place.hanging.hand_in(group, Outcome.POKE_TIMEOUT)
    until_idle(place.process)
    assert place.troubles()[group].overruns == 2
    place.job()
    place.hanging.hand_in(group, Outcome.NOT_LANDED)
    until_idle(place.process)
    assert place.troubles() == {}
    assert place.poker.poked == [group], "once in a job"


# busy groups


@pytest.mark.parametrize("isolated", [True, False])
def test_groups_that_another_process_pokes_miss_their_turn_and_are_counted(place: Jobs, isolated: bool) -> None:
    busy, free = place.register("a", "b")
    other = place.elsewhere(*[] if isolated else [busy], isolated=(busy,) if isolated else ())
    assert place.job().extra == {"busy": 1}
    assert place.poker.poked == [free]
    other.note_background(place.shard_range, [], Isolated(), 60.0)
    place.job()
    assert sorted(place.poker.poked) == sorted([busy, free, free])


def test_a_group_that_is_poked_in_a_child_misses_its_turn(place: Jobs) -> None:
    [group] = place.register("a")
    place.trouble(group, Trouble(strikes=1))
    assert place.job().extra == {"isolated": 1}
    assert place.job().extra == {"busy": 1}
    place.client.flushall()
    assert place.job().extra == {"busy": 1}, "this process knows by itself"


def test_a_busy_group_that_was_woken_is_poked_at_once_afterwards(place: Jobs) -> None:
    [group] = place.register("a", poke_interval=3_600)
    place.job()
    other = place.elsewhere(group)
    place.leases.waking.raise_flags({place.shard_range: [group]})
    assert place.job().extra == {"busy": 1}
    other.note_background(place.shard_range, [], Isolated(), 60.0)
    place.job()
    assert place.poker.poked == [group, group]


# failures


def test_the_trouble_of_a_group_that_fails_is_written_once_and_deleted_once(
    place: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    [group] = place.register("a")
    written: list[dict[int, Changed]] = []
    write = troubles.write

    def count(connection: Connection, changed: dict[int, Changed]) -> None:
        written.append(changed)
        write(connection, changed)

    monkeypatch.setattr(troubles, "write", count)
    place.poker.script[group] = Outcome.INFRA_FAILURE
    place.job()
    known = place.troubles()
    assert known[group].failing_since is not None
    for _ in range(3):
        place.job()
    assert (place.troubles(), len(written)) == (known, 1)
    place.poker.script[group] = Outcome.NOT_LANDED
    for _ in range(2):
        place.job()
    assert (place.troubles(), len(written)) == ({}, 2)


@pytest.mark.parametrize(("last", "state"), [(1, "failed"), (HOUR // TICK, "sensing")])
def test_an_outage_is_no_time_in_which_a_group_failed(place: Jobs, last: int, state: str) -> None:
    """In one case a job each tick sees it fail for an hour; in the other there is no job for that hour."""
    place.settle_on(infra_failure_window=60)
    place.use(place.worker())
    [group] = place.register("a", timeout=10 * HOUR / 1000)
    began = place.clock.ms
    place.trouble(group, Trouble(failing_since=began))
    place.clock.ms += HOUR
    place.leave(last=place.clock.ms - (last - 1) * TICK)
    place.poker.script[group] = Outcome.INFRA_FAILURE
    place.job()
    assert place.states() == [state]
    if state == "sensing":
        since = place.troubles()[group].failing_since
        assert since is not None
        assert began + HOUR - 60_000 < since < place.clock.ms, "moved by what is no usual pause"


def test_an_outage_is_no_time_in_which_no_process_could_poke(place: Jobs) -> None:
    [group] = place.register("a")
    place.trouble(group, Trouble(unpokeable_since=place.clock.ms))
    place.leave(last=place.clock.ms)
    place.poker.script[group] = Outcome.CANNOT_POKE
    place.job(HOUR // TICK)
    assert place.troubles()[group].unpokeable_since == place.clock.ms


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
    [(holder, state)] = place.leases.look([place.shard_range])
    assert (holder, state.last) == ("other@there/9", 0)
    assert place.states() == ["success", "sensing"], "what was seen is true, whoever holds the lease"


def test_what_there_was_no_time_for_comes_first_in_the_next_job(place: Jobs) -> None:
    groups = place.register(*"abcdef", poke_interval=3_600)
    place.poker.room, place.poker.held_up = 0, True
    assert place.job().left == 6
    assert sorted(place.state.left) == sorted(groups)
    since = place.clock.ms
    assert set(place.state.left.values()) == {since}
    late = place.register("g", poke_interval=3_600)
    place.job()
    assert place.state.left[late[0]] > since
    assert list(place.state.left)[-1] == late[0]
    place.poker.room, place.poker.held_up = 1_000, False
    place.job()
    assert place.poker.poked[-1] == late[0], "the group that has waited for longest has its turn first"
    assert place.state.left == {}


def test_pokes_that_take_longer_than_their_job_go_on_outside_of_it(place: Jobs) -> None:
    slow, quick = place.register("a", "b")
    place.poker.script, place.poker.held_up = {slow: None}, True
    assert place.job().extra == {"slow": 1}
    assert place.poker.poked == [quick]
    held = place.hold()
    assert (held.background.busy, held.struck, held.state.left) == ({slow}, [], {})
    held.lease.finish(held.state)
    assert place.job().extra == {"busy": 1}
    place.poker.script[slow] = Outcome.LANDED
    until_idle(place.process)
    assert place.states() == ["success", "sensing"]
    until(
        "the note is rewritten",
        lambda: not place.client.exists(place.leases.store.key(place.shard_range, "background")),
    )


def test_the_record_says_what_was_poked_in_a_job_and_outside(place: Jobs) -> None:
    slow, _ = place.register(*"ab")
    place.poker.script, place.poker.held_up = {slow: None}, True
    place.job()
    assert len(place.leases.poke_log.records(place.shard_range)) == 1
    place.poker.script[slow] = Outcome.NOT_LANDED
    until_idle(place.process)
    assert len(place.leases.poke_log.records(place.shard_range)) == 2


def test_what_ends_at_the_last_moment_is_not_slow(place: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is reported after the last look of its job, while the job withdraws what has not begun."""
    [group] = place.register("a")
    place.poker.script, place.poker.held_up = {group: None}, True
    withdraw = ScriptedPoking.withdraw

    def ends(poking: ScriptedPoking) -> list[Any]:
        withdrawn = withdraw(poking)
        place.poker.script[group] = Outcome.LANDED
        return withdrawn

    monkeypatch.setattr(ScriptedPoking, "withdraw", ends)
    result = place.job()
    assert (result.landed, result.settled, result.extra) == (1, 1, {"slow": 0} if "slow" in result.extra else {})
    assert place.states() == ["success"]


# groups that this process cannot poke


def test_what_this_process_cannot_poke_is_left_to_the_others(place: Jobs) -> None:
    here, elsewhere = place.register("a", "b", poke_interval=60)
    place.poker.script[elsewhere] = Outcome.CANNOT_POKE
    assert place.job().extra == {"not_here": 1}
    assert place.troubles()[elsewhere].unpokeable_since is not None
    assert list(place.state.left) == [elsewhere], "due at the next tick in whichever process"
    place.use(place.worker())
    place.job()
    assert place.poker.poked == [elsewhere]
    assert (place.troubles(), place.state.left) == ({}, {})
    assert here not in place.poker.poked


def test_it_is_tried_at_each_tick_for_a_minute_then_at_its_own_interval(place: Jobs) -> None:
    [group] = place.register("a", poke_interval=600)
    place.poker.script[group] = Outcome.CANNOT_POKE
    tries = [place.job().extra.get("not_here", 0) for _ in range(60)]
    assert sum(tries[:12]) == 12
    assert sum(tries[20:]) <= 1


def test_a_group_that_no_process_can_poke_ends_once_the_window_is_over(place: Jobs) -> None:
    place.settle_on(infra_failure_window=70)
    place.use(place.worker())
    [group] = place.register("a", timeout=10 * HOUR / 1000)
    for _ in range(4):
        place.use(place.worker())
        place.poker.script[group] = Outcome.CANNOT_POKE
        place.job(4)
        assert place.states() == ["sensing"]
    place.poker.script[group] = Outcome.CANNOT_POKE
    place.job(4)
    assert place.states() == ["failed"]
    assert "no process could poke it for 70 s" in str(place.reasons()[0])


@pytest.mark.parametrize(("since", "is_at_once"), [(0, True), (60_000, False)])
def test_a_child_that_cannot_poke_a_group_leaves_it_to_the_others(place: Jobs, since: int, is_at_once: bool) -> None:
    [group] = place.register("a", poke_interval=3_600)
    began = place.clock.ms
    place.trouble(group, Trouble(strikes=1, unpokeable_since=began))
    place.clock.ms += since
    place.leave(last=place.clock.ms)
    place.leases.waking.keep(place.shard_range, [group])
    place.job()
    place.dying.hand_in(group, Outcome.CANNOT_POKE)
    until_idle(place.process)
    assert place.troubles()[group] == Trouble(strikes=1, unpokeable_since=began)
    assert place.hold().woken == ([group] if is_at_once else [])


# finish


def test_a_range_that_became_dirty_is_looked_at_once_more(place: Jobs) -> None:
    [first] = place.register("a")
    seen: list[int] = []

    def register_once() -> None:
        if not seen:
            seen.extend(place.register("b", poke_interval=3_600))
            assert place.leases.waking.raise_flags({place.shard_range: seen})

    place.poker.at_step = register_once
    result = place.job()
    assert place.poker.poked == [first, *seen]
    assert result.groups == 2
    assert not place.hold().dirty


def test_no_further_round_begins_once_the_job_has_taken_its_time(place: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    place.register("a")
    begun: list[object] = []

    def begin(*_: object) -> ScriptedPoking:
        begun.append(place.leases.waking.raise_flags({place.shard_range: []}))
        return ScriptedPoking(place.poker)

    monkeypatch.setattr(place.poker, "begin", begin)
    monkeypatch.setattr(type(place.settings), "job_span", -1.0)
    place.job()
    assert len(begun) == 1
    assert place.hold().dirty, "the next job finds it"


# Redis forgets


def test_should_redis_forget_the_state_all_is_due_once(place: Jobs) -> None:
    place.register("a", poke_interval=3_600)
    place.job()
    place.client.flushall()
    assert [place.job().groups, place.job().groups] == [1, 0]


def test_should_redis_forget_what_was_left_over_it_is_due_again(place: Jobs) -> None:
    [group] = place.register("a", poke_interval=3_600)
    place.poker.room, place.poker.held_up = 0, True
    place.job(12)
    place.client.flushall()
    place.poker.room = 1
    place.job()
    assert place.poker.poked == [group]


def test_whenever_redis_forgets_the_groups_in_trouble_are_known(place: Jobs) -> None:
    struck, overran, failing, landing = place.register(*"abcd")
    place.trouble(struck, Trouble(strikes=2))
    place.trouble(overran, Trouble(overruns=1))
    place.poker.script |= {failing: Outcome.INFRA_FAILURE, landing: Outcome.LANDED}
    place.poker.at_step = place.client.flushall
    place.settle_on(heartbeat=0.05)
    place.job()
    place.client.flushall()
    assert place.states() == ["sensing", "sensing", "sensing", "success"]
    since = place.troubles()[failing].failing_since
    place.use(place.worker())
    place.poker.script[failing] = Outcome.INFRA_FAILURE
    place.job()
    assert place.dying.in_lane[struck].alone
    assert list(place.hanging.in_lane) == [overran]
    assert since is not None
    assert place.troubles()[failing].failing_since is not None
