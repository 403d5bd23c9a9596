"""One flush: a bad group costs no other its result, and no result is half written."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event, text

from sensorpool import Key, Registration, Settings
from sensorpool.client.register import register
from sensorpool.client.validate import check
from sensorpool.errors import Unreachable
from sensorpool.model.states import Ending, Outcome, State
from sensorpool.model.values import Fact, Flushed, Registered
from sensorpool.poke.classes import Classes
from sensorpool.settle import flush as module
from sensorpool.settle.flush import cancel, flush, in_flushes
from sensorpool.settle.settler import Settler
from sensorpool.store import inspecting, outbox_rows, results
from sensorpool.store.database import Database
from sensorpool.store.schema import poke_group, sensor_instance
from tests.support.commits import failing_commits

SCRIPTED = "harness.scripted.ScriptedSensor"
SETTINGS = Settings.load(sensors_enabled=SCRIPTED)
CLASSES = Classes(SETTINGS.sensors_enabled)
LATER = 10**13  # milliseconds: after all deadlines


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the pauses between attempts."""
    monkeypatch.setattr("sensorpool.store.transaction.time.sleep", lambda _: None)


def registered(database: Database, *names: str) -> list[Registered]:
    """Register an instance for each name; the same names wait for the same condition."""
    batch = [
        check(
            Registration(
                sensor=SCRIPTED, poke_context={"folder": "/nowhere", "name": name}, key=Key(name, "t", f"r{place}")
            ),
            SETTINGS,
            CLASSES,
            try_out=False,
        )
        for place, name in enumerate(names)
    ]
    settler = Settler(database, lambda _: None, tick_ms=5_000)
    return register(settler, batch, SETTINGS).instances


def fact(instance: Registered, outcome: Outcome = Outcome.LANDED, *, version: int = 1, **said: Any) -> Fact:
    return Fact(instance.group_id, version, LATER, outcome, **said)


def states(database: Database, *instances: Registered) -> list[State]:
    found = database.read(inspecting.states, [each.id for each in instances])
    return [found[each.id] for each in instances]


def told(database: Database, instance: Registered) -> tuple[State, Ending, str | None]:
    [settled] = database.read(results.read, [instance.id])
    return settled.state, settled.ending, settled.reason


def unsettled(done: list[Flushed]) -> dict[int, str]:
    return {group_id: cause for flushed in done for group_id, cause in flushed.unsettled.items()}


def settled(done: list[Flushed]) -> list[int]:
    return [each.id for flushed in done for each in flushed.settled]


def by_hand(database: Database, statement: str) -> None:
    with database.engine.begin() as connection:
        connection.execute(text(statement))


def refuse(database: Database, instance: Registered) -> None:
    """Have the database refuse to change an instance, with an error of unknown cause."""
    by_hand(
        database,
        f"CREATE TRIGGER refuses_{instance.id} BEFORE UPDATE ON sensor_instance WHEN old.id = {instance.id} "
        "BEGIN SELECT RAISE(ABORT, 'refused, as told'); END",
    )


@contextmanager
def bounded(database: Database, length: int) -> Iterator[None]:
    """Have the database refuse texts that are longer than so many characters."""

    def bound(connection: Any, *_: Any) -> None:
        connection.setlimit(0, length)  # SQLITE_LIMIT_LENGTH

    event.listen(database.engine, "checkout", bound)
    yield
    event.remove(database.engine, "checkout", bound)


def begun(database: Database) -> list[str]:
    """Note each transaction that begins."""
    seen: list[str] = []

    @event.listens_for(database.engine, "begin")
    def note(connection: Any) -> None:
        if connection.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
            seen.append("begin")

    return seen


def test_all_that_landed_settle_in_one_transaction_with_one_outbox_row(database: Database) -> None:
    ones = registered(database, "a", "a", "b")
    seen = begun(database)
    [flushed] = flush(database, [fact(ones[0], version=2), fact(ones[2])], tick_ms=5_000)
    assert seen == ["begin"]
    assert sorted(each.id for each in flushed.settled) == [each.id for each in ones]
    assert sorted(flushed.emptied) == sorted({each.group_id for each in ones})
    assert database.read(inspecting.count_waiting) == (0, 0)
    [row] = database.read(outbox_rows.unpublished, LATER, 0, 10)
    assert (row.id, sorted(row.instance_ids)) == (flushed.outbox_id, [each.id for each in ones])


def test_what_changes_nothing_writes_nothing(database: Database) -> None:
    [one] = registered(database, "a")
    before = database.read(lambda c: c.execute(poke_group.select()).all())
    began = one.group_id, 1, 0  # long before its deadline
    assert flush(database, [Fact(*began, Outcome.NOT_LANDED)], tick_ms=5_000) == [Flushed()]
    assert database.read(lambda c: c.execute(poke_group.select()).all()) == before
    assert flush(database, [Fact(999, 1, LATER, Outcome.LANDED)], tick_ms=5_000) == [Flushed()]


def test_a_member_that_joined_after_the_load_is_not_settled(database: Database) -> None:
    before, after = registered(database, "a")[0], registered(database, "a", "a")[1]
    [flushed] = flush(database, [fact(before)], tick_ms=5_000)
    assert (settled([flushed]), flushed.emptied) == ([before.id], [])
    assert states(database, before, after) == [State.SUCCESS, State.SENSING]
    assert flush(database, [fact(before)], tick_ms=5_000) == [Flushed()], "handed in again, it does no harm"


@pytest.mark.parametrize("bad", [0, 3, 6])
def test_a_flush_is_bisected_to_the_one_group_that_cannot_be_written(database: Database, bad: int) -> None:
    ones = registered(database, *"abcdefg")
    refuse(database, ones[bad])
    seen = begun(database)
    done = flush(database, [fact(each) for each in ones], tick_ms=5_000)
    others = [each for each in ones if each is not ones[bad]]
    assert sorted(settled(done)) == [each.id for each in others]
    [(group_id, cause)] = unsettled(done).items()
    assert group_id == ones[bad].group_id
    assert "refused, as told" in cause
    assert "\n" not in cause
    assert len(cause) <= 200
    assert states(database, ones[bad]) == [State.SENSING], "an error that is not understood fails no instance"
    assert len(seen) <= 7, "of seven groups one is found by halves"


def test_two_groups_that_cannot_be_written_stop_no_other(database: Database) -> None:
    ones = registered(database, *"abcd")
    for bad in ones[1:3]:
        refuse(database, bad)
    done = flush(database, [fact(each) for each in ones], tick_ms=5_000)
    assert sorted(settled(done)) == [ones[0].id, ones[3].id]
    assert unsettled(done).keys() == {ones[1].group_id, ones[2].group_id}


def test_a_result_that_the_database_refuses_fails_its_group_at_once(database: Database) -> None:
    ones = registered(database, *"abc")
    facts = [fact(each, xcom_value='"small"') for each in ones]
    facts[1] = facts[1]._replace(xcom_value=f'"{"x" * 200_000}"')
    with bounded(database, 100_000):
        done = flush(database, facts, tick_ms=5_000)
    assert unsettled(done) == {}
    state, ending, reason = told(database, ones[1])
    assert (state, ending) == (State.FAILED, Ending.FAIL)
    assert "its result could not be written" in str(reason)
    assert "the poke said landed" in str(reason)
    assert states(database, ones[0], ones[2]) == [State.SUCCESS] * 2


def test_a_reason_that_the_database_cannot_spell_is_spelt_in_ascii(database: Database) -> None:
    [one] = registered(database, "a")
    done = flush(database, [fact(one, Outcome.POKE_ERROR, reason="half a 💣: \ud83d")], tick_ms=5_000)
    assert settled(done) == [one.id]
    assert told(database, one) == (State.FAILED, Ending.POKE_ERROR, "half a \\U0001f4a3: \\ud83d")


def test_a_failure_whose_reason_is_refused_stays_and_says_why(database: Database) -> None:
    """There is no plainer result to write."""
    [one] = registered(database, "a")
    with bounded(database, 100_000):
        done = flush(database, [fact(one, Outcome.FAIL, reason="x" * 200_000)], tick_ms=5_000)
    assert "too big" in unsettled(done)[one.group_id]
    assert states(database, one) == [State.SENSING]


@pytest.mark.parametrize("times", [1, 2])
def test_a_lost_answer_to_a_commit_is_recognised(database: Database, times: int) -> None:
    [one] = registered(database, "a")
    with failing_commits(database, times, kept=True) as failed:
        [flushed] = flush(database, [fact(one)], tick_ms=5_000)
    assert len(failed) == times
    assert [each.id for each in flushed.settled] == [one.id], "so it is told at once, and not by rescue"
    assert [row.id for row in database.read(outbox_rows.unpublished, LATER, 0, 10)] == [flushed.outbox_id]


def test_a_flush_that_gets_the_id_of_a_lost_one_is_not_taken_for_it(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database gives an id out again when the transaction that had it is rolled back."""
    one, other = registered(database, *"ab")
    between: list[Flushed] = []

    def pause(_: float) -> None:
        if not between:
            between.append(cancel(database, {other.id: "meanwhile"}))

    monkeypatch.setattr("sensorpool.store.transaction.time.sleep", pause)
    lost: list[int | None] = []
    noted = outbox_rows.note
    monkeypatch.setattr(outbox_rows, "note", lambda *args: lost.append(noted(*args)) or lost[-1])
    with failing_commits(database, kept=False):
        [flushed] = flush(database, [fact(one)], tick_ms=5_000)
    assert lost[0] == between[0].outbox_id, "its id was not given out again"
    assert flushed.outbox_id == lost[2]
    assert states(database, one, other) == [State.SUCCESS, State.CANCELLED]


def test_a_database_that_keeps_nothing_blames_no_group(database: Database) -> None:
    ones = registered(database, *"ab")
    with failing_commits(database, 100, kept=False) as failed, pytest.raises(Unreachable):
        flush(database, [fact(each) for each in ones], tick_ms=5_000)
    assert len(failed) == module.ATTEMPTS, "it is not bisected"
    assert states(database, *ones) == [State.SENSING] * 2


@pytest.mark.parametrize(
    ("number", "lengths"), [(0, []), (1, [1]), (1_000, [1_000]), (1_001, [1_000, 1]), (2_500, [1_000, 1_000, 500])]
)
def test_a_flush_has_a_thousand_groups_at_most(number: int, lengths: list[int]) -> None:
    facts = [Fact(group_id, 1, 1, Outcome.LANDED) for group_id in range(number)]
    parts = list(in_flushes(facts))
    assert [len(part) for part in parts] == lengths
    assert [each for part in parts for each in part] == facts


def test_a_cancel_is_of_what_senses_and_of_no_other(database: Database) -> None:
    leaves, stays, done = registered(database, "a", "a", "b")
    flush(database, [fact(done)], tick_ms=5_000)
    flushed = cancel(database, {leaves.id: "enough", done.id: "too late", 999: "never there"})
    assert (settled([flushed]), flushed.emptied) == ([leaves.id], [])
    assert told(database, leaves) == (State.CANCELLED, Ending.CANCELLED, "enough")
    assert states(database, stays, done) == [State.SENSING, State.SUCCESS]
    assert cancel(database, {leaves.id: "again"}) == Flushed()


def test_a_hand_back_is_a_cancel_that_says_so(database: Database) -> None:
    [one] = registered(database, "a")
    flushed = cancel(database, {one.id: "poke it yourself"}, Ending.HANDED_BACK)
    assert flushed.emptied == [one.group_id]
    assert told(database, one) == (State.CANCELLED, Ending.HANDED_BACK, "poke it yourself")


def test_a_group_whose_waiters_were_ended_by_hand_goes_with_a_fact_that_matters(database: Database) -> None:
    one, other = registered(database, "a", "b")
    by_hand(database, f"UPDATE sensor_instance SET state = 'cancelled' WHERE id = {one.id}")
    facts = [Fact(each.group_id, 1, 10**13, Outcome.NOT_LANDED) for each in (one, other)]
    [flushed] = flush(database, facts, tick_ms=5_000, timeouts=False)
    assert (flushed.settled, flushed.emptied) == ([], [one.group_id])
    assert database.read(inspecting.count_waiting) == (1, 1)


def test_the_step_of_a_member_grows_without_a_message(database: Database) -> None:
    """A wait that goes on has no result to publish."""
    context = {"folder": "/nowhere", "name": "a"}
    registration = Registration(sensor=SCRIPTED, poke_context=context, exponential_backoff=True, poke_interval=10)
    settler = Settler(database, lambda _: None, tick_ms=5_000)
    [one] = register(settler, [check(registration, SETTINGS, CLASSES, try_out=False)], SETTINGS).instances
    row = database.read(lambda c: c.execute(sensor_instance.select()).one())
    seen = Fact(one.group_id, 1, row.start_date + 10_000, Outcome.NOT_LANDED)
    [flushed] = flush(database, [seen], tick_ms=5_000)
    assert (flushed.settled, flushed.outbox_id, flushed.emptied) == ([], None, [])
    grown = database.read(lambda c: c.execute(poke_group.select()).one())
    assert (grown.poke_interval, grown.version) == (20_000, 2)
