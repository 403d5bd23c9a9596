"""Each chore of rescue: its effect, its limit in one round, and the effect of its failure on the others."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import event, insert, select, text, update

from sensorpool import Key, Registration, Settings
from sensorpool.client.register import register
from sensorpool.client.validate import check
from sensorpool.config import extensions
from sensorpool.errors import Unreachable
from sensorpool.leases.incidents import ROUNDS, Incidents
from sensorpool.leases.lease import Leases
from sensorpool.leases.redis_store import RedisStore
from sensorpool.model.trouble import Trouble
from sensorpool.model.values import Flushed, Registered
from sensorpool.poke.classes import Classes
from sensorpool.settle.settler import Settler
from sensorpool.store import class_proofs, troubles
from sensorpool.store.database import Database
from sensorpool.store.late_conditions import UsualLandings
from sensorpool.store.schema import (
    callback,
    class_proof,
    group_trouble,
    landing,
    outbox,
    poke_group,
    poke_quarantine,
    sensor_instance,
)
from sensorpool.store.troubles import Changed
from sensorpool.worker import rescue as module
from sensorpool.worker.chores import late, left_behind, old_rows
from sensorpool.worker.chores import round as limits
from sensorpool.worker.chores.round import Place, Rescued, Round, begin

SCRIPTED = "harness.scripted.ScriptedSensor"
SETTINGS = Settings.load(sensors_enabled=SCRIPTED, retention=3600, shards=4, shard_code_upper_limit=100)
CLASSES = Classes(SETTINGS.sensors_enabled)
OLD = 1  # milliseconds


class Away(Exception):
    """An error of a chore."""


class Rescuing:
    """A worker for the chores, and one round."""

    def __init__(self, database: Database, redis: Any) -> None:
        self.database = database
        self.settings = SETTINGS
        self.delivered: list[Flushed] = []
        self.settler = Settler(database, self.delivered.append, tick_ms=5_000)
        self.leases = Leases(RedisStore(redis), lease_ttl=30.0)
        self.incidents = Incidents(self.leases)
        self.usual_landings = UsualLandings(database)
        self.publisher: Any = SimpleNamespace(drop_abandoned_listeners=lambda: 0)
        self.outbox: Any = SimpleNamespace(send_waiting_callbacks=lambda: None, send_left_behind=lambda _: 0)
        self.place = Place()

    def do(self, chore: Callable[[Round], None]) -> Rescued:
        """Do one chore; return its result."""
        worker: Any = self
        now = begin(worker, self.place)
        chore(now)
        return now.done

    def rescue(self) -> Rescued:
        """Do a whole round."""
        worker: Any = self
        return module.rescue(worker, self.place)

    def register(self, *names: str) -> list[Registered]:
        """Register an instance for each name; the same names wait for the same condition."""
        batch = [
            check(
                Registration(sensor=SCRIPTED, poke_context={"folder": "/n", "name": name}, key=Key("d", f"t{n}", name)),
                SETTINGS,
                CLASSES,
                try_out=False,
            )
            for n, name in enumerate(names)
        ]
        return register(self.settler, batch, SETTINGS).instances

    def change(self, statement: Any, rows: list[dict[str, Any]] | None = None) -> None:
        """Write to the tables by hand."""
        with self.database.engine.begin() as connection:
            connection.execute(text(statement) if isinstance(statement, str) else statement, rows)

    def column(self, column: Any) -> list[Any]:
        """Return all values of a column."""
        return self.database.read(lambda c: list(c.execute(select(column).order_by(column)).scalars()))

    def now(self) -> int:
        """Return the time of the database."""
        return self.database.read(self.database.now)


@pytest.fixture
def rescuing(database: Database, client: Any) -> Rescuing:
    return Rescuing(database, client)


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> int:
    """Make pages of two rows, three in a round: six rows."""
    monkeypatch.setattr(limits, "ROWS", 2)
    monkeypatch.setattr(limits, "PAGES", 3)
    return 6


# instances


def settle(rescuing: Rescuing, *ones: Registered, at: int = OLD) -> None:
    """Cancel instances at a time, with all results published."""
    rescuing.settler.cancel({one.id: "enough" for one in ones})
    ids = [one.id for one in ones]
    rescuing.change(update(sensor_instance).where(sensor_instance.c.id.in_(ids)).values(settled_at=at))
    rescuing.change(outbox.delete())


def test_instances_that_settled_before_the_retention_go(rescuing: Rescuing) -> None:
    old, border, young, waits = rescuing.register(*"abcd")
    settle(rescuing, old)
    settle(rescuing, border, at=rescuing.now() - 3_590_000)
    settle(rescuing, young, at=rescuing.now())
    rescuing.change(update(sensor_instance).where(sensor_instance.c.id == waits.id).values(start_date=OLD))
    assert rescuing.do(old_rows.prune_instances) == Rescued(pruned=1)
    assert rescuing.column(sensor_instance.c.id) == [border.id, young.id, waits.id]


def test_proofs_of_classes_go_after_a_week(rescuing: Rescuing, small_pages: int) -> None:
    ages = [0, 6 * 24, 8 * 24, 9 * 24, 10 * 24]  # hours
    for number, age in enumerate(ages):
        at = rescuing.now() - age * 3_600_000
        rescuing.database.run(class_proofs.add, bytes([number]) * 32, "a.B", "{}", at)
    rescuing.do(old_rows.prune_instances)
    assert small_pages
    assert len(rescuing.column(class_proof.c.digest)) == 3  # a page at a time
    rescuing.do(old_rows.prune_instances)
    assert sorted(rescuing.database.read(class_proofs.of_class, "a.B")) == [bytes([number]) * 32 for number in (0, 1)]


def test_landings_go_after_their_own_retention(rescuing: Rescuing, small_pages: int) -> None:
    for name in "abcdefghi":
        settle(rescuing, *rescuing.register(name))
    ids = rescuing.column(landing.c.id)
    old = rescuing.now() - 401 * 24 * 3_600_000
    rescuing.change(update(landing).where(landing.c.id <= ids[-2]).values(ended_at=old))
    rescuing.do(old_rows.prune_instances)
    assert rescuing.column(landing.c.id) == ids, "instances have another retention"
    rescuing.do(old_rows.prune_records)
    assert rescuing.column(landing.c.id) == ids[small_pages:], "a bounded number of pages"
    rescuing.do(old_rows.prune_records)
    assert rescuing.column(landing.c.id) == ids[-1:]


def test_what_is_still_to_be_told_is_kept(rescuing: Rescuing) -> None:
    old, told = rescuing.register(*"ab")
    settle(rescuing, old, at=OLD + 1)
    settle(rescuing, told, at=OLD)
    rescuing.change(insert(outbox), [{"created_at": OLD + 1, "instance_ids": f"[{old.id}]"}])
    assert rescuing.do(old_rows.prune_instances).pruned == 1
    assert rescuing.column(sensor_instance.c.id) == [old.id]
    rescuing.change(outbox.delete())
    rescuing.change(insert(callback), [{"instance_id": old.id, "task": "", "created_at": 1, "next_try_at": 1}])
    assert rescuing.do(old_rows.prune_instances).pruned == 0, "its callback waits"


def test_a_round_prunes_so_many_and_the_next_goes_on(rescuing: Rescuing, small_pages: int) -> None:
    ones = rescuing.register(*"abcdefghi")
    settle(rescuing, *ones[1:])
    assert rescuing.do(old_rows.prune_instances).pruned == small_pages - 1, "the first of the six waits"
    assert rescuing.place.instances == ones[5].id
    assert rescuing.do(old_rows.prune_instances).pruned == 3
    assert rescuing.place.instances == 0, "the next round begins anew"
    assert rescuing.column(sensor_instance.c.id) == [ones[0].id]


# groups


def test_groups_beyond_the_ranges_come_into_one(rescuing: Rescuing) -> None:
    beyond, border, inside = rescuing.register(*"abc")
    for one, shardcode in ((beyond, 250), (border, 100), (inside, 99)):
        rescuing.change(update(poke_group).where(poke_group.c.id == one.group_id).values(shardcode=shardcode))
    assert rescuing.do(old_rows.fold_shardcodes) == Rescued(folded=2)
    assert rescuing.column(poke_group.c.shardcode) == [0, 50, 99]
    assert rescuing.do(old_rows.fold_shardcodes) == Rescued()


def test_a_round_folds_so_many_groups(rescuing: Rescuing, small_pages: int) -> None:
    rescuing.register(*"abcdefg")
    rescuing.change(update(poke_group).values(shardcode=poke_group.c.id + 100))
    assert rescuing.do(old_rows.fold_shardcodes).folded == small_pages
    assert rescuing.do(old_rows.fold_shardcodes).folded == 1


# troubles


def test_the_troubles_of_groups_that_are_gone_are_forgotten(rescuing: Rescuing) -> None:
    [stays] = rescuing.register("a")
    known = {each: Changed(Trouble(strikes=1), 0) for each in (stays.group_id, stays.group_id + 1)}
    rescuing.database.run(troubles.write, known)
    rescuing.do(old_rows.prune_instances)
    assert rescuing.column(group_trouble.c.group_id) == [stays.group_id]


# quarantine


def statements(database: Database) -> list[str]:
    """Note each statement."""
    seen: list[str] = []
    event.listen(database.engine, "before_cursor_execute", lambda *told: seen.append(told[2]))
    return seen


def quarantine(rescuing: Rescuing, *since: int) -> None:
    row = {"op_classpath": SCRIPTED, "poke_context": "{}", "crashes": 3, "reason": "segfaults"}
    rescuing.change(
        insert(poke_quarantine), [row | {"digest": bytes([n] * 32), "since": at} for n, at in enumerate(since)]
    )


def test_conditions_leave_quarantine_after_the_retention(rescuing: Rescuing) -> None:
    young = rescuing.now() - 3_590_000
    quarantine(rescuing, OLD, OLD, young)
    assert rescuing.do(old_rows.let_out) == Rescued(let_out=2)
    assert rescuing.column(poke_quarantine.c.since) == [young]


def test_the_statements_of_a_look_are_as_many_whatever_there_is(rescuing: Rescuing) -> None:
    seen = statements(rescuing.database)
    rescuing.do(old_rows.let_out)
    few = len(seen)
    quarantine(rescuing, *range(100))
    seen.clear()
    assert rescuing.do(old_rows.let_out).let_out == 100
    assert len(seen) == few


# results and callbacks that were left behind


def test_abandoned_listeners_are_counted(rescuing: Rescuing) -> None:
    rescuing.publisher.drop_abandoned_listeners = lambda: 7
    assert rescuing.do(left_behind.drop_listeners) == Rescued(listeners=7)


def test_a_broker_that_is_away_is_no_failure_of_the_chore(rescuing: Rescuing) -> None:
    def away() -> int:
        raise Unreachable("away")

    rescuing.publisher.drop_abandoned_listeners = away
    assert rescuing.do(left_behind.drop_listeners) == Rescued()


def test_results_have_half_a_round(rescuing: Rescuing) -> None:
    spans: list[float] = []

    def send(seconds: float) -> int:
        spans.append(seconds)
        return 4

    rescuing.outbox.send_left_behind = send
    assert rescuing.do(left_behind.publish) == Rescued(published=4)
    assert spans == [SETTINGS.rescue_interval / 2]


def test_callbacks_are_begun(rescuing: Rescuing) -> None:
    begun: list[int] = []
    rescuing.outbox.send_waiting_callbacks = lambda: begun.append(1)
    rescuing.do(left_behind.send_callbacks)
    assert begun == [1]


# rescuers of other packages, and the round


def test_a_rescuer_that_fails_costs_no_other_its_turn(rescuing: Rescuing, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Any) -> dict[str, int]:
        raise Away("as told")

    loaded = {"first": lambda _: {"reconciled": 1}, "fails": fails, "last": lambda now: {"of": len(now)}}
    asked: list[str] = []

    def load(group: str) -> dict[str, Any]:
        asked.append(group)
        return loaded

    monkeypatch.setattr(extensions, "load", load)
    done = rescuing.do(left_behind.call_rescuers)
    assert (done.more, asked) == ({"reconciled": 1, "of": len(Round._fields)}, ["sensorpool.rescuers"])
    assert done.as_dict() == done.more


def chores(monkeypatch: pytest.MonkeyPatch, *works: Callable[[Round], None]) -> None:
    monkeypatch.setattr(module, "CHORES", {f"chore {n}": work for n, work in enumerate(works)})


def raises(error: Exception) -> Callable[[Round], None]:
    def work(_: Round) -> None:
        raise error

    return work


def prune_one(now: Round) -> None:
    now.done.pruned += 1


def test_a_round_does_every_chore_though_one_fails_and_notes_why(
    rescuing: Rescuing, monkeypatch: pytest.MonkeyPatch
) -> None:
    chores(monkeypatch, raises(Away("as\ntold")), prune_one, raises(Unreachable("the broker is away")), prune_one)
    for _ in range(ROUNDS):
        assert rescuing.rescue() == Rescued(pruned=2)
    assert rescuing.incidents.of_chores() == {"chore 0": "Away: as told", "chore 2": "the broker is away"}
    chores(monkeypatch, prune_one, prune_one, prune_one)
    rescuing.rescue()
    assert rescuing.incidents.of_chores() == {}


def test_a_round_ends_where_the_database_does_not_answer(rescuing: Rescuing, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Round] = []
    chores(monkeypatch, raises(Unreachable("the database is away")), done.append)

    def away(*_: Any, **__: Any) -> None:
        raise Unreachable("the database is away")

    monkeypatch.setattr(rescuing.database, "read", away)
    with pytest.raises(Unreachable):
        rescuing.rescue()
    assert done == []


def test_a_redis_that_is_away_does_not_end_a_round(rescuing: Rescuing, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any) -> None:
        raise Unreachable("Redis is away")

    chores(monkeypatch, prune_one)
    monkeypatch.setattr(rescuing.incidents, "note_chores", away)
    assert rescuing.rescue() == Rescued(pruned=1)


def test_no_chore_of_the_package_is_missing_from_the_round() -> None:
    modules = {old_rows, late, left_behind}
    works = {
        value
        for each in modules
        for name, value in vars(each).items()
        if callable(value) and getattr(value, "__module__", "") == each.__name__ and not name.startswith("_")
    }
    assert works == set(module.CHORES.values())


def test_a_round_of_nothing_does_nothing(rescuing: Rescuing) -> None:
    assert rescuing.rescue() == Rescued()
    assert rescuing.place == Place()
