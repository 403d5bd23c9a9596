"""Conditions that are later than their family usually lands: found once, on each database, within bounds."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import insert, select, update

from sensorpool import Pool, Settings
from sensorpool.admin.explain import explain
from sensorpool.admin.instances import list_instances
from sensorpool.admin.status import status
from sensorpool.errors import Unreachable
from sensorpool.leases.range_state import RangeState
from sensorpool.model.family import family_code
from sensorpool.model.usual_landing import Expected
from sensorpool.model.values import Instance
from sensorpool.store.late_conditions import Waiting
from sensorpool.store.listing import Selection
from sensorpool.store.schema import landing, poke_group
from sensorpool.worker import usual_landings
from sensorpool.worker.chores import late, pages
from sensorpool.worker.chores.round import Place, Rescued, Round
from sensorpool.worker.context import Worker

SCRIPTED = "sensorpool.testing.ScriptedSensor"
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
TODAY = 1_790_553_600_000


class Late:
    """A pool whose clock the test moves, with a worker that looks for late conditions."""

    def __init__(self, url: str, **more: object) -> None:
        self.now = TODAY
        settings = Settings.load(database_url=url, redis_url="memory://", sensors_enabled=SCRIPTED, shards=1, **more)
        self.pool = Pool(settings, clock=lambda: self.now)
        self.worker = Worker(settings, database=self.pool.database)
        self.place = Place()

    def land_daily(self, family: str, number: int = 30, after: int = HOUR) -> None:
        """Write the landings of the days before."""
        rows = [
            {
                "family": family_code(SCRIPTED, family),
                "digest": bytes(32),
                "op_classpath": SCRIPTED,
                "logical_date": TODAY - day * DAY,
                "waiting_since": TODAY - day * DAY + 7,
                "ended_at": TODAY - day * DAY + after,
                "ending": "landed",
                "waiters": 1,
                "pokes": 1,
            }
            for day in range(1, number + 1)
        ]
        self.pool.database.run(lambda connection: connection.execute(insert(landing), rows))

    def register(self, name: str, family: str | None = None, at: int | None = TODAY) -> Instance:
        date = None if at is None else datetime.fromtimestamp(at / 1000, UTC)
        context = {"folder": "/nowhere", "name": name}
        return self.pool.register(SCRIPTED, context, family=family, logical_date=date, timeout=9 * DAY / 1000)

    def find(self) -> int:
        found = Rescued()
        late.find(Round(self.worker, self.place, found))
        return found.late

    def late_groups(self) -> list[int]:
        query = select(poke_group.c.id).where(poke_group.c.late_since.is_not(None)).order_by(poke_group.c.id)
        return self.pool.database.read(lambda connection: list(connection.execute(query).scalars()))


@pytest.fixture
def series(each_database: str) -> Iterator[Late]:
    made = Late(each_database)
    yield made
    made.worker.close()
    made.pool.close()


def test_a_condition_is_late_once(series: Late, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(late.log, "warning", lambda _, **fields: told.append(fields))
    series.land_daily("sales")
    waits, other = series.register("today", "sales"), series.register("another")
    series.now = TODAY + HOUR + 5 * MINUTE
    assert series.find() == 0, "a landing an hour after midnight is usual, and five minutes are no matter"
    series.now += 1
    assert series.find() == 1
    assert series.late_groups() == [waits.group_id]
    assert told == [
        {
            "group_id": waits.group_id,
            "usually_lands_at": "2026-09-28T01:00:00.000Z",
            "late_after": "2026-09-28T01:05:00.000Z",
        }
    ]
    series.now += HOUR
    assert series.find() == 0, "it is known to be late"
    assert status(series.pool)["late"] == 1
    assert [each["id"] for each in list_instances(series.pool, Selection(late=True), 10)] == [waits.id]
    said = explain(series.pool, waits.id)["usual_landing"]
    assert said.startswith("2026-09-28 01:00:00 UTC (1 h 5 min ago), by 30 earlier landings")
    assert said.endswith(": it is late")
    assert explain(series.pool, other.id)["usual_landing"] is None
    series.pool.cancel(waits.id, "enough")
    assert status(series.pool)["late"] == 0


def test_after_an_outage_a_condition_is_poked_before_it_is_late(series: Late, monkeypatch: pytest.MonkeyPatch) -> None:
    series.land_daily("sales")
    series.register("today", "sales")
    looked_at = TODAY + MINUTE  # and then no job has run for long
    monkeypatch.setattr(
        series.worker.leases, "look", lambda ranges: [(None, RangeState(last=looked_at), 0) for _ in ranges]
    )
    series.now += 9 * HOUR
    assert series.find() == 0
    looked_at = series.now - MINUTE
    assert series.find() == 1

    def away(_: object) -> None:
        raise Unreachable("Redis does not answer")

    series.register("too", "sales", at=TODAY - DAY)
    monkeypatch.setattr(series.worker.leases, "look", away)
    assert series.find() == 0


def test_the_range_of_a_condition_counts(series: Late, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = series.worker
    worker.settings = worker.settings.model_copy(update={"shards": 2, "shard_code_upper_limit": 10_000})
    monkeypatch.setattr(
        worker.leases, "look", lambda ranges: [(None, RangeState(last=each.shard_min or 1), 0) for each in ranges]
    )
    expected = Expected(usually=100, late_after=200)
    late_groups = {Waiting(code, 2, None, 3, shardcode=code): expected for code in (0, 4_999, 5_000, 9_999, 77_777)}
    kept = late._looked_at_since(late_groups, worker)
    assert [each.shardcode for each in kept] == [5_000, 9_999, 77_777]


def test_explain_says_when_it_will_be_late(series: Late) -> None:
    series.land_daily("sales")
    waits = series.register("today", "sales")
    said = explain(series.pool, waits.id)["usual_landing"]
    assert said == (
        "2026-09-28 01:00:00 UTC (in 1 h), by 30 earlier landings; "
        "it is late after 2026-09-28 01:05:00 UTC (in 1 h 5 min)"
    )


def test_of_few_landings_nothing_is_late(series: Late) -> None:
    series.land_daily("sales", 9)
    series.register("today", "sales")
    series.now += 9 * DAY
    assert series.find() == 0


def test_without_a_logical_date_a_condition_is_late_by_how_long_it_waits(series: Late) -> None:
    series.land_daily("sales", after=HOUR + 7)
    series.pool.database.run(lambda connection: connection.execute(update(landing).values(logical_date=None)))
    waits = series.register("today", "sales", at=None)
    series.now += HOUR
    assert series.find() == 0
    series.now += 6 * MINUTE
    assert series.find() == 1
    assert series.late_groups() == [waits.group_id]


def test_what_is_usual_is_read_anew_after_an_hour(series: Late, monkeypatch: pytest.MonkeyPatch) -> None:
    series.register("today", "sales")
    series.now += DAY
    assert series.find() == 0
    series.land_daily("sales")
    assert series.find() == 0
    monkeypatch.setattr(usual_landings, "KEPT", -1.0)
    assert not series.worker.usual_landings.of(family_code(SCRIPTED, "sales"), TODAY)
    monkeypatch.setattr(usual_landings, "KEPT", 3_600.0)
    series.worker.usual_landings.read([family_code(SCRIPTED, "sales")], series.now)
    assert series.find() == 1


def test_a_round_is_bounded_and_the_next_ones_find_the_rest(series: Late, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "ROWS", 3)
    monkeypatch.setattr(late, "PAGES", 2)
    monkeypatch.setattr(late, "FAMILIES", 4)
    for n in range(20):
        series.land_daily(f"family {n}", 12)
        series.register(f"today {n}", f"family {n}")
    series.now += DAY
    found = [series.find() for _ in range(7)]
    assert max(found) <= 4
    assert sum(found) == 20
    assert len(series.late_groups()) == 20
    assert series.find() == 0
    assert series.place.waiting_id == 0


def test_many_late_conditions_are_a_few_lines(series: Late, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(late.log, "warning", lambda _, **fields: told.append(fields))
    series.land_daily("sales")
    for n in range(30):
        series.register(f"today {n}", "sales")
    series.now += DAY
    assert series.find() == 30
    assert len(told) == 6
    assert told[-1] == {"groups": 25}


def test_a_group_that_a_settle_has_locked_is_found_later(series: Late) -> None:
    if series.pool.database.engine.dialect.name == "sqlite":
        return  # its transactions come one after the other
    series.land_daily("sales")
    held, free = series.register("held", "sales"), series.register("free", "sales")
    series.now += DAY
    with series.pool.database.engine.begin() as settles:
        settles.execute(select(poke_group.c.id).where(poke_group.c.id == held.group_id).with_for_update())
        assert series.find() == 1
        assert series.late_groups() == [free.group_id]
    assert series.find() == 1


@pytest.mark.parametrize("edit", [{"logical_date": -(2**62)}, {"logical_date": 2**62}, {"registered_at": 2**62}])
def test_odd_times_stop_no_round(series: Late, edit: dict[str, int]) -> None:
    series.land_daily("sales")
    odd, waits = series.register("odd", "sales"), series.register("today", "sales")
    of_odd = update(poke_group).where(poke_group.c.id == odd.group_id).values(edit)
    series.pool.database.run(lambda connection: connection.execute(of_odd))
    series.now += DAY
    assert series.find() >= 1
    assert waits.group_id in series.late_groups()
    assert explain(series.pool, odd.id)["why"]
