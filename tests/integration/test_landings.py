"""The record of ended conditions, on each database."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import select, update

from harness.scripted import ScriptedSensor
from sensorpool import Key, Pool, Registration, Settings
from sensorpool.errors import Refused
from sensorpool.model.states import Outcome
from sensorpool.model.usual_landing import family_code
from sensorpool.model.values import Fact, Registered
from sensorpool.store import inspecting
from sensorpool.store.schema import landing, poke_group, sensor_instance

SCRIPTED = "harness.scripted.ScriptedSensor"
MINUTE = 60_000


class Landings:
    """A pool whose clock the test moves, and its record."""

    def __init__(self, url: str) -> None:
        self.now = 1_790_000_000_000
        self.pool = Pool(Settings.load(database_url=url, sensors_enabled=SCRIPTED), clock=lambda: self.now)

    def register(self, name: str, **more: Any) -> Registered:
        return self.pool.register(SCRIPTED, {"folder": "/nowhere", "name": name}, poke_interval=60, **more)

    def settle(self, *instances: Registered, outcome: Outcome = Outcome.LANDED) -> None:
        versions = dict(
            self.pool.database.read(lambda c: c.execute(select(poke_group.c.id, poke_group.c.version)).all())
        )
        group_ids = {each.group_id for each in instances}
        self.pool.settler.settle([Fact(each, versions[each], self.now, outcome, "why") for each in group_ids])

    def rows(self) -> list[Mapping[str, Any]]:
        query = select(landing).order_by(landing.c.id)
        return self.pool.database.read(lambda connection: list(connection.execute(query).mappings()))


@pytest.fixture
def record(each_database: str) -> Iterator[Landings]:
    made = Landings(each_database)
    yield made
    made.pool.close()


def test_a_condition_that_landed_is_one_row(record: Landings) -> None:
    date = datetime(2026, 9, 21, tzinfo=UTC)
    first = record.register("x", family="sales", logical_date=date)
    record.now += MINUTE
    record.register("x", family="another waiter's", logical_date=datetime(2026, 9, 22, tzinfo=UTC))
    record.now += 9 * MINUTE
    record.settle(first)
    (row,) = record.rows()
    assert row["family"] == family_code(SCRIPTED, "sales")
    assert row["op_classpath"] == SCRIPTED
    assert (row["ending"], row["waiters"], row["pokes"]) == ("landed", 2, 11)
    assert (row["waiting_since"], row["ended_at"]) == (record.now - 10 * MINUTE, record.now)
    assert row["logical_date"] == date.timestamp() * 1000
    assert row["backend"] is None


def test_each_condition_of_a_flush_has_a_row(record: Landings) -> None:
    record.settle(*(record.register(str(n)) for n in range(100)), record.register("0"))
    rows = record.rows()
    assert sorted(row["waiters"] for row in rows) == [1] * 99 + [2]
    assert len({bytes(row["digest"]) for row in rows}) == 100


def test_a_condition_without_a_name_of_its_series_is_a_series(record: Landings) -> None:
    for _ in range(2):
        record.settle(record.register("x"))
    record.settle(record.register("y"))
    first, second, other = (row["family"] for row in record.rows())
    assert first == second != other


def test_a_condition_ends_with_its_last_waiter(record: Landings) -> None:
    stays, goes = record.register("x", timeout=3_600), record.register("x", timeout=60)
    record.now += 10 * MINUTE
    record.settle(goes, outcome=Outcome.NOT_LANDED)
    assert record.rows() == [], "a waiter ended, and another one waits"
    record.now += MINUTE
    record.pool.cancel(stays.id, "enough")
    (row,) = record.rows()
    assert (row["ending"], row["waiters"], row["ended_at"]) == ("timeout", 2, record.now)


def test_a_condition_that_landed_for_one_of_its_waiters_landed_then(record: Landings) -> None:
    first = record.register("x")
    (version,) = record.pool.database.read(lambda c: c.execute(select(poke_group.c.version)).scalars().all())
    late = record.register("x")  # after the load whose poke finds it
    landed_at = record.now
    record.pool.settler.settle([Fact(first.group_id, version, record.now, Outcome.LANDED)])
    assert record.rows() == []
    record.now += MINUTE
    record.pool.cancel(late.id, "enough")
    (row,) = record.rows()
    assert (row["ending"], row["ended_at"], row["waiters"]) == ("landed", landed_at, 2)


@pytest.mark.parametrize("edit", [{"poke_interval": 0}, {"registered_at": 2_000_000_000_000}, {"family": None}])
def test_an_edited_group_settles(record: Landings, edit: dict[str, Any]) -> None:
    instance = record.register("x", family="sales")
    record.pool.database.run(lambda connection: connection.execute(update(poke_group).values(**edit)))
    record.settle(instance)
    (row,) = record.rows()
    assert row["pokes"] == 1
    assert row["ending"] == "landed"


def test_a_group_whose_instances_are_gone_is_no_landing(record: Landings) -> None:
    instance = record.register("x")
    record.pool.database.run(lambda connection: connection.execute(sensor_instance.delete()))
    record.settle(instance)
    assert record.rows() == []
    assert record.pool.database.read(inspecting.count_waiting)[0] == 0


def test_nothing_is_recorded_of_a_flush_that_is_not_kept(record: Landings, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = record.register("x")

    def fails(*_: object) -> None:
        raise RuntimeError("no outbox")

    monkeypatch.setattr("sensorpool.store.outbox_rows.note", fails)
    record.settle(instance)
    assert record.rows() == []
    monkeypatch.undo()
    record.settle(instance)
    assert len(record.rows()) == 1


def test_a_registration_by_an_older_version_has_no_series(record: Landings) -> None:
    """Its group has none of the new columns."""
    instance = record.register("x", family="sales")
    none = {"family": None, "backend": None, "logical_date": None}
    record.pool.database.run(lambda connection: connection.execute(update(poke_group).values(**none)))
    record.settle(instance)
    assert record.rows()[0]["family"] == instance.hashcode


@pytest.mark.parametrize("family", ["", 7, ["x"]])
def test_a_family_is_a_text(record: Landings, family: Any) -> None:
    with pytest.raises(Refused, match="family must be a non-empty string"):
        record.register("x", family=family)


def test_a_line_of_json_names_a_family(record: Landings) -> None:
    line = {"op_classpath": SCRIPTED, "poke_context": {"folder": "/", "name": "x"}, "family": "sales"}
    (instance,) = record.pool.register_many([{**line, "logical_date": "2026-09-21T00:00:00+00:00"}])
    record.settle(instance)
    assert record.rows()[0]["family"] == family_code(SCRIPTED, "sales")
    registration = Registration(sensor=ScriptedSensor("/", "y"), key=Key("d", "t", "r"), family="sales")
    record.settle(*record.pool.register_many([registration]))
    assert record.rows()[1]["family"] == family_code(SCRIPTED, "sales")
