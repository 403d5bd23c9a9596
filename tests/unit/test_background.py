"""What a process pokes outside of jobs. The tests take the place of its lanes, and of the pokes that outlive a job."""

import threading
from collections.abc import Collection, Iterator
from typing import Any

import pytest

from harness.until import until
from sensorpool.errors import Unreachable
from sensorpool.leases.background_notes import InBackground
from sensorpool.leases.lease import Acquired, Leases
from sensorpool.leases.poke_log import Record
from sensorpool.model.states import Outcome
from sensorpool.model.trouble import Trouble
from sensorpool.model.values import JobResult
from sensorpool.poke.unit import PokeUnit
from sensorpool.store import loading
from sensorpool.store.database import Database
from sensorpool.worker.background import Background
from sensorpool.worker.finisher import Batch
from sensorpool.worker.load import Moment
from tests.support.scripted_worker import Place, ScriptedPoker, ScriptedPoking, until_idle

STRUCK, OVERRAN = Trouble(strikes=1), Trouble(overruns=1)


class Outside(Place):
    """A place with one process, which pokes outside of jobs."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.settle_on(heartbeat=0.05, lease_ttl=30.0)
        self.process = self.worker()
        self.background: Background = self.process.background
        self.background.start()  # as a job does
        self.poker: ScriptedPoker = self.process.poker  # type: ignore[assignment]

    def batch(self, **troubles: Trouble) -> Batch:
        """The batch of a job that begins now."""
        moment = Moment(self.clock.ms, 0.0, True)
        known = {int(name[1:]): trouble for name, trouble in troubles.items()}
        return Batch(self.shard_range, moment, known, JobResult(), Record(moment.now))

    def units(self, *group_ids: int) -> list[PokeUnit]:
        """The groups as a job loads them."""
        rows = self.process.database.read(loading.groups, group_ids)
        return [self.poker.cache.keep(*row) for row in rows]

    def isolate(self, trouble: Trouble, *group_ids: int) -> bool:
        """Have groups poked in children."""
        known = {f"_{group_id}": trouble for group_id in group_ids}
        return self.background.isolate(self.batch(**known), self.units(*group_ids))

    def adopt(self, *group_ids: int, ended: Any = None) -> ScriptedPoking:
        """Have pokes go on that outlive a job; they do not return for now."""
        self.poker.script |= dict.fromkeys(group_ids, None)
        poking: Any = self.poker.begin()
        units = self.units(*group_ids)
        poking.put(units, [unit.group.id for unit in units])
        self.background.adopt(poking, self.batch(), ended)
        return poking  # type: ignore[no-any-return]

    def found(self) -> Acquired:
        """What the next holder of the range finds."""
        held = self.leases.acquire(self.shard_range, "next@here/1")
        assert isinstance(held, Acquired)
        self.leases.free(self.shard_range, "next@here/1")
        return held

    @property
    def busy(self) -> set[int]:
        """The groups that other processes leave alone."""
        return self.found().background.busy


@pytest.fixture
def place(database: Database, client: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Outside]:
    made = Outside(database, client, monkeypatch)
    yield made
    made.close()


# groups in children


@pytest.mark.parametrize(
    ("trouble", "hangs", "alone"), [(STRUCK, False, False), (Trouble(strikes=2), False, True), (OVERRAN, True, False)]
)
def test_what_hangs_and_what_may_crash_have_lanes_of_their_own(
    place: Outside, trouble: Trouble, hangs: bool, alone: bool
) -> None:
    [group] = place.register("a")
    assert place.isolate(trouble, group)
    lane, other = (place.hanging, place.dying) if hangs else (place.dying, place.hanging)
    assert (lane.in_lane[group].alone, other.in_lane) == (alone, {})
    assert place.background.has(group)


def test_the_note_is_written_before_the_poke_begins(place: Outside, monkeypatch: pytest.MonkeyPatch) -> None:
    [group] = place.register("a")
    noted: list[set[int]] = []
    monkeypatch.setattr(place.dying, "offer", lambda offered: noted.append(place.busy) if offered else None)
    place.isolate(STRUCK, group)
    assert noted == [{group}]


@pytest.mark.parametrize("what", ["the database", "Redis"])
def test_where_a_server_is_away_none_is_poked(place: Outside, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    [group] = place.register("a")
    units = place.units(group)
    batch = place.batch()

    def away(*_: object) -> None:
        raise Unreachable(f"{what} does not answer")

    with monkeypatch.context() as patched:
        if what == "Redis":
            patched.setattr(Leases, "note_background", away)
        else:
            patched.setattr(place.process.database, "read", away)
        with pytest.raises(Unreachable):
            place.background.isolate(batch, units)
    assert not place.background.is_busy
    assert (place.dying.in_lane, place.hanging.in_lane) == ({}, {})


def test_where_no_thread_can_be_started_no_group_is_kept(place: Outside, monkeypatch: pytest.MonkeyPatch) -> None:
    hanging, dying = place.register("a", "b")
    batch = place.batch(**{f"_{hanging}": OVERRAN, f"_{dying}": STRUCK})

    def fails(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(place.hanging, "offer", fails)
    with pytest.raises(RuntimeError):
        place.background.isolate(batch, place.units(hanging, dying))
    assert not place.background.is_busy
    until("no note names them", lambda: place.busy == set())


def test_a_group_that_is_gone_is_not_poked(place: Outside) -> None:
    [group] = place.register("a")
    units = place.units(group)
    place.pool.cancel(1)
    assert place.background.isolate(place.batch(), units)
    assert not place.background.is_busy


def test_the_note_is_rewritten_when_a_poke_ends(place: Outside) -> None:
    waiting, landing = place.register("a", "b")
    place.isolate(STRUCK, waiting, landing)
    assert place.busy == {waiting, landing}
    place.dying.hand_in(landing, Outcome.LANDED)
    until("the note names the other one alone", lambda: place.busy == {waiting})
    assert place.states() == ["sensing", "success"]
    place.dying.hand_in(waiting, Outcome.NOT_LANDED)
    until("there is no note", lambda: place.found().background == InBackground())


def test_the_note_is_renewed_and_written_anew_where_redis_forgot_it(place: Outside) -> None:
    [group] = place.register("a")
    place.isolate(STRUCK, group)
    place.client.flushall()
    until("the next renewal writes it", lambda: place.busy == {group})


def test_the_reports_of_a_lane_go_to_the_finisher(place: Outside) -> None:
    good, bad = place.register("a", "b")
    place.isolate(STRUCK, good, bad)
    place.dying.hand_in(good, Outcome.NOT_LANDED)
    place.dying.hand_in(bad, Outcome.CRASHED, "signal 9")
    until_idle(place.process)
    assert place.troubles() == {bad: Trouble(strikes=2, cause="signal 9")}
    assert len(place.leases.poke_log.records(place.shard_range)) >= 1


def test_an_overrun_of_a_call_for_many_ends_no_wait(place: Outside) -> None:
    one, many = place.register("a", "b", timeout=5)
    place.clock.ms += 60_000
    place.isolate(OVERRAN, one, many)
    place.hanging.hand_in(one, Outcome.POKE_TIMEOUT)
    place.hanging.hand_in(many, Outcome.POKE_TIMEOUT, of_many=True)
    until_idle(place.process)
    assert place.states() == ["failed", "sensing"]
    assert place.troubles()[many].overruns == 1


def test_a_group_that_its_lane_has_given_up_is_forgotten(place: Outside) -> None:
    """As where no child starts: it is due again."""
    [group] = place.register("a")
    place.isolate(STRUCK, group)
    del place.dying.in_lane[group]
    until_idle(place.process)
    until("no note names it", lambda: place.busy == set())
    assert place.isolate(STRUCK, group)
    assert place.background.has(group)


def test_a_result_that_cannot_be_written_is_lost_and_the_group_is_free(
    place: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = place.register("a", "b")
    place.isolate(STRUCK, first, second)

    def away(*_: object) -> None:
        raise Unreachable("the database does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(place.process.database, "read", away)
        place.dying.hand_in(first, Outcome.LANDED)
        until("the group is free", lambda: not place.background.has(first))
    place.dying.hand_in(second, Outcome.LANDED)
    until_idle(place.process)
    assert place.states() == ["sensing", "success"]


def test_an_error_does_not_end_the_thread(place: Outside, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = place.register("a", "b")
    place.isolate(STRUCK, first, second)

    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr(place.process.settler, "settle", fail)
        place.dying.hand_in(first, Outcome.LANDED)
        until("the group is free", lambda: not place.background.has(first))
    place.dying.hand_in(second, Outcome.LANDED)
    until_idle(place.process)
    assert place.states() == ["sensing", "success"]


# pokes that outlive their job


def test_slow_pokes_go_on_and_are_settled(place: Outside) -> None:
    slow, slower = place.register("a", "b")
    ended: list[Collection[int]] = []
    poking = place.adopt(slow, slower, ended=ended.append)
    assert place.busy == {slow, slower}
    place.poker.script[slow] = Outcome.LANDED
    until("the note names the other one alone", lambda: place.busy == {slower})
    assert not poking.ended
    place.poker.script[slower] = Outcome.POKE_TIMEOUT
    until("the lanes are given back", lambda: poking.ended)
    until_idle(place.process)
    assert place.states() == ["success", "sensing"]
    assert list(place.troubles()) == [slower]
    assert ended == [{slow}, {slower}]


def test_slow_pokes_that_an_error_has_lost_are_forgotten(place: Outside) -> None:
    [group] = place.register("a")
    poking = place.adopt(group)
    poking.lost = True
    until_idle(place.process)
    assert poking.ended
    until("no note names it", lambda: place.busy == set())


def test_what_a_slow_shared_call_leaves_undecided_is_poked(place: Outside) -> None:
    groups = place.register("a", "b")
    poking = place.adopt(*groups)
    poking.undecided = list(groups)
    until("they are poked by themselves", lambda: not poking.undecided)
    place.poker.script |= dict.fromkeys(groups, Outcome.LANDED)
    until_idle(place.process)
    assert place.states() == ["success", "success"]


def test_where_there_are_budgets_it_is_due_at_once(place: Outside) -> None:
    groups = place.register("a", "b")
    poking = place.adopt(*groups, ended=lambda _: None)
    poking.undecided = list(groups)
    until_idle(place.process)
    assert sorted(place.found().woken) == sorted(groups)


def test_where_redis_is_away_slow_pokes_go_on(place: Outside, monkeypatch: pytest.MonkeyPatch) -> None:
    [group] = place.register("a")

    def away(*_: object) -> None:
        raise Unreachable("Redis does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(Leases, "note_background", away)
        with pytest.raises(Unreachable):
            place.adopt(group)
        assert place.background.has(group)
    until("it is noted once Redis answers", lambda: place.busy == {group})


# the end of the process


@pytest.mark.parametrize("end", ["retire", "close", "give_back"])
def test_what_waits_when_a_process_ends_is_due_at_once_elsewhere(place: Outside, end: str) -> None:
    [group] = place.register("a", poke_interval=3_600)
    place.isolate(STRUCK, group)
    getattr(place.background, end)()
    assert (place.found().woken, place.busy) == ([group], set())


def test_a_close_that_takes_long_loses_no_group(place: Outside, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lane that closes waits for its threads, and has let go of its groups by then."""
    [group] = place.register("a", poke_interval=3_600)
    place.isolate(STRUCK, group)
    close, seen = place.dying.close, threading.Event()

    def slowly() -> list[int]:
        given_back = close()
        seen.wait(0.3)
        return given_back

    monkeypatch.setattr(place.dying, "close", slowly)
    place.background.close()
    assert place.found().woken == [group]


def test_slow_pokes_are_given_back_as_the_process_ends(place: Outside) -> None:
    [group] = place.register("a", poke_interval=3_600)
    place.adopt(group)
    place.background.close()
    assert place.busy == {group}, "it is poked for as long as the process lives"
    place.background.give_back()
    assert (place.found().woken, place.busy) == ([group], set())


def test_a_process_that_has_retired_isolates_none_and_says_so(place: Outside) -> None:
    [group] = place.register("a")
    place.background.retire()
    assert not place.isolate(STRUCK, group)
    assert not place.background.is_busy
