"""The registration of a batch: whole or not at all, found again by its keys, and recognised after a lost answer."""

from collections.abc import Iterable
from typing import Any

import pytest
from sqlalchemy import event, insert, update

from sensorpool import Key, Registration, Settings
from sensorpool.client import register as module
from sensorpool.client.register import RegisteredBatch, register
from sensorpool.client.validate import CheckedRegistration, check
from sensorpool.errors import InDoubt, Refused, Unreachable
from sensorpool.model.states import State
from sensorpool.model.values import Flushed
from sensorpool.poke.classes import Classes
from sensorpool.settle.settler import Settler
from sensorpool.store import inspecting, registering
from sensorpool.store.database import Database
from sensorpool.store.schema import poke_group, poke_quarantine, sensor_instance
from tests.support.commits import failing_commits

SCRIPTED = "harness.scripted.ScriptedSensor"
SETTINGS = Settings.load(sensors_enabled=SCRIPTED, on_settled_tasks="theirs.*", on_settled_broker_url="memory://")
CLASSES = Classes(SETTINGS.sensors_enabled)
KEY = Key("d", "t", "r")


def checked(name: str = "x", key: Key | None = KEY, **named: Any) -> CheckedRegistration:
    registration = Registration(sensor=SCRIPTED, poke_context={"folder": "/nowhere", "name": name}, key=key, **named)
    return check(registration, SETTINGS, CLASSES, try_out=False)


class Client:
    """A client that registers, and notes the delivered flushes."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.delivered: list[Flushed] = []
        self.settler = Settler(database, self.delivered.append, tick_ms=5_000)

    def register(self, *batch: CheckedRegistration) -> RegisteredBatch:
        """Register a batch."""
        return register(self.settler, batch, SETTINGS)

    def refusal(self, *batch: CheckedRegistration) -> str:
        """Check that a batch is refused and that nothing has changed; return the reason."""
        before = self.rows()
        with pytest.raises(Refused) as caught:
            self.register(*batch)
        assert self.rows() == before
        assert self.delivered == []
        said = str(caught.value)
        assert "\n" not in said
        return said

    def rows(self) -> list[Any]:
        """Return all rows."""
        tables = (poke_group, sensor_instance)
        return [self.database.read(lambda c, table=table: c.execute(table.select()).all()) for table in tables]

    def counts(self) -> tuple[int, int]:
        """Return the numbers of groups and of sensing instances."""
        return self.database.read(inspecting.count_waiting)

    def states(self, *ids: int) -> list[State]:
        """Return the states of instances."""
        found = self.database.read(inspecting.states, list(ids))
        return [found[instance_id] for instance_id in ids]

    def change(self, statement: Any, rows: Iterable[dict[str, Any]] | None = None) -> None:
        """Write to the tables by hand."""
        with self.database.engine.begin() as connection:
            connection.execute(statement, *([] if rows is None else [list(rows)]))


@pytest.fixture
def client(database: Database) -> Client:  # type: ignore[override]
    return Client(database)


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the pauses between attempts."""
    monkeypatch.setattr("sensorpool.store.transaction.time.sleep", lambda _: None)


def test_the_first_of_a_group_opens_it_and_the_others_join(client: Client) -> None:
    [first] = client.register(checked()).instances
    [second] = client.register(checked(key=None)).instances
    assert (first.created, first.opened, first.state, first.key) == (True, True, State.SENSING, KEY)
    assert (second.created, second.opened, second.group_id) == (True, False, first.group_id)
    assert client.counts() == (1, 2)


def test_all_of_a_batch_open_the_group_that_they_join_together(client: Client) -> None:
    done = client.register(*(checked(key=None) for _ in range(3)), checked("y"))
    assert [each.opened for each in done.instances] == [True] * 4
    assert client.counts() == (2, 4)


def test_the_instances_come_in_the_order_of_the_registrations(client: Client) -> None:
    keys = [KEY._replace(task_id=f"t{number}") for number in (3, 1, 2, 0)]
    client.register(checked("1", keys[1]))
    done = client.register(*(checked(key.task_id[1:], key) for key in keys))
    assert [each.key for each in done.instances] == keys
    assert [each.created for each in done.instances] == [True, False, True, True]


def test_the_same_key_and_try_is_the_same_instance(client: Client) -> None:
    [first] = client.register(checked()).instances
    again = client.register(checked(poke_interval=99))
    assert again.instances == [first._replace(created=False, opened=False)]
    assert again.opened == []
    assert client.counts() == (1, 1)


def test_a_settled_instance_is_given_back_with_its_state(client: Client) -> None:
    [first] = client.register(checked()).instances
    client.settler.cancel({first.id: "enough"})
    assert client.register(checked()).instances[0].state is State.CANCELLED
    assert client.counts() == (0, 0)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_conflict_refuses_the_whole_batch(client: Client, place: int) -> None:
    client.register(checked())
    batch = [checked(key=None), checked("z", KEY._replace(task_id="other"))]
    batch.insert(place, checked("another condition"))
    assert "is registered already, waiting for something else" in client.refusal(*batch)


def test_a_lower_try_is_refused_with_its_batch(client: Client) -> None:
    client.register(checked(key=KEY._replace(try_number=3)))
    said = client.refusal(checked(key=None), checked(key=KEY._replace(try_number=2)))
    assert said.startswith("d.t of r, try 2 comes too late: try 3 is registered already")


def test_a_lower_try_is_refused_once_the_higher_one_has_settled(client: Client) -> None:
    [higher] = client.register(checked(key=KEY._replace(try_number=3))).instances
    client.settler.cancel({higher.id: "enough"})
    client.delivered.clear()
    assert "comes too late" in client.refusal(checked())


def test_a_higher_try_cancels_the_lower_ones_that_sense_and_tells_of_it(client: Client) -> None:
    done, lower = (client.register(checked(key=KEY._replace(try_number=n))).instances[0] for n in (0, 1))
    [other] = client.register(checked(key=KEY._replace(map_index=0))).instances
    assert [each.id for flushed in client.delivered for each in flushed.settled] == [done.id]
    client.delivered.clear()
    [higher] = client.register(checked("y", KEY._replace(try_number=7))).instances
    [settled] = [each for flushed in client.delivered for each in flushed.settled]
    assert (settled.id, settled.state, settled.reason) == (lower.id, State.CANCELLED, "superseded by try 7")
    assert client.states(higher.id, other.id) == [State.SENSING] * 2


@pytest.mark.parametrize(
    "other",
    [checked(), checked("y"), checked(key=KEY._replace(try_number=2))],
    ids=["the same", "another condition", "another try"],
)
def test_a_batch_that_names_a_key_twice_is_refused(client: Client, other: CheckedRegistration) -> None:
    assert "stands in the same batch twice" in client.refusal(checked(), other)


def quarantine(client: Client, condition: CheckedRegistration) -> None:
    identity = condition.identity
    row = {"digest": identity.digest, "op_classpath": identity.op_classpath, "poke_context": identity.poke_context}
    client.change(insert(poke_quarantine), [row | {"crashes": 3, "reason": "segfaults", "since": 1}])


def test_a_condition_in_quarantine_refuses_its_batch(client: Client) -> None:
    bad = checked("bad")
    quarantine(client, bad)
    assert "waits for something in quarantine" in client.refusal(checked(key=None), bad)


def test_what_is_there_already_is_given_back_though_it_is_barred_now(client: Client) -> None:
    [first] = client.register(checked()).instances
    quarantine(client, checked())
    assert client.register(checked()).instances == [first._replace(created=False, opened=False)]
    assert "quarantine" in client.refusal(checked(), checked(key=KEY._replace(task_id="new")))


def test_a_digest_that_is_there_for_another_context_is_refused(client: Client) -> None:
    client.register(checked())
    client.change(update(poke_group).values(poke_context='{"another": 1}'))
    assert "two different contexts have one digest" in client.refusal(checked(key=None))


def test_what_the_database_cannot_hold_is_refused_in_one_line(client: Client) -> None:
    key = KEY._replace(task_id="a\ud83d")  # which `check` would have refused
    assert "the database refuses d.a" in client.refusal(checked()._replace(key=key))


# the two attempts


def attempts(database: Database) -> list[str]:
    """Note the first step of each attempt."""
    seen: list[str] = []

    @event.listens_for(database.engine, "before_cursor_execute")
    def note(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("BEGIN"):
            seen.append("")
        elif seen and not seen[-1]:
            seen[-1] = "looks" if "FROM sensor_instance" in statement else "inserts"

    return seen


@pytest.mark.usefixtures("no_pauses")
def test_the_first_attempt_inserts_and_a_clash_has_the_next_one_look(client: Client) -> None:
    seen = attempts(client.database)
    client.register(checked())
    assert seen == ["inserts"]
    seen.clear()
    client.register(checked())
    assert seen == ["inserts", "looks"]


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize("key", [None, KEY], ids=["fresh key", "chosen key"])
@pytest.mark.parametrize("times", [1, 2])  # the second COMMIT is that of a look, whose result is known
def test_a_lost_answer_to_a_commit_is_recognised(client: Client, key: Key | None, times: int) -> None:
    batch = [checked("x", key), checked("y", None)]
    with failing_commits(client.database, times, kept=True) as failed:
        done = client.register(*batch)
    assert len(failed) == times
    assert [(each.created, each.opened) for each in done.instances] == [(True, True)] * 2, "it made what it found"
    assert client.states(*(each.id for each in done.instances)) == [State.SENSING] * 2
    assert client.counts() == (2, 2)


@pytest.mark.usefixtures("no_pauses")
def test_a_commit_that_was_not_kept_is_made_again(client: Client) -> None:
    with failing_commits(client.database, 2, kept=False) as failed:
        [made] = client.register(checked()).instances
    assert len(failed) == 2
    assert (made.created, made.opened) == (True, True)
    assert client.counts() == (1, 1)


@pytest.mark.usefixtures("no_pauses")
def test_a_lower_try_is_told_though_the_answer_is_lost(client: Client) -> None:
    [lower] = client.register(checked()).instances
    with failing_commits(client.database, kept=True):
        client.register(checked(key=KEY._replace(try_number=2)))
    assert [each.id for flushed in client.delivered for each in flushed.settled] == [lower.id]


@pytest.mark.usefixtures("no_pauses")
def test_what_stays_in_doubt_names_its_keys(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any) -> bool:
        raise Unreachable("away, as told", in_doubt=True)

    with monkeypatch.context() as patched, failing_commits(client.database, kept=True):
        patched.setattr(registering, "is_there", away)
        with pytest.raises(InDoubt, match=r"d\.t of r, try 1 and 1 others got registered is open") as caught:
            client.register(checked(), checked("y", KEY._replace(task_id="u")))
    assert caught.value.keys == (KEY, KEY._replace(task_id="u"))
    assert client.counts() == (2, 2)


@pytest.mark.usefixtures("no_pauses")
def test_a_database_that_keeps_nothing_is_unreachable_and_tells_nothing(client: Client) -> None:
    client.register(checked())
    with failing_commits(client.database, 100, kept=False), pytest.raises(Unreachable):
        client.register(checked(key=KEY._replace(try_number=2)))
    assert client.delivered == []
    assert client.counts() == (1, 1)


# how long it took


@pytest.mark.parametrize(("seconds", "is_late"), [(0.5, False), (1.5, True)])
def test_a_registration_that_took_long_says_so(
    client: Client, monkeypatch: pytest.MonkeyPatch, seconds: float, is_late: bool
) -> None:
    """A load may have missed it, so its group is named beside the dirty flag."""
    moments = iter([100.0, 100.0 + seconds])
    monkeypatch.setattr(module.time, "monotonic", lambda: next(moments, 100.0 + seconds))
    assert SETTINGS.commit_overlap > 2
    assert client.register(checked()).is_late is is_late


@pytest.mark.parametrize(
    ("key", "spelt"),
    [(KEY, "d.t of r, try 1"), (KEY._replace(map_index=0, try_number=0), "d.t[0] of r, try 0")],
    ids=["plain", "mapped"],
)
def test_a_key_is_spelt_for_people(key: Key, spelt: str) -> None:
    assert module.spell(key) == spelt
