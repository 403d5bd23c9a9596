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
from sensorpool.model.usual_landing import family_code
from sensorpool.model.values import Registered
from sensorpool.store.inspecting import Selection
from sensorpool.store.schema import landing, poke_group
from sensorpool.worker.chores import late
from sensorpool.worker.chores import round as limits
from sensorpool.worker.chores.round import Place, begin
from sensorpool.worker.context import Worker
from tests.support.builders import classpath

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
TODAY = 1_790_553_600_000


class Never:
    """Never lands."""

    def __init__(self, name: str) -> None:
        self.name = name

    def poke(self, context: Any) -> bool:
        return False


NEVER = classpath(Never)


class Late:
    """A pool whose clock the test moves, with a worker that looks for late conditions."""

    def __init__(self, url: str, **more: object) -> None:
        self.now = TODAY
        settings = Settings.load(database_url=url, redis_url="memory://", sensors_enabled=NEVER, shards=1, **more)
        self.pool = Pool(settings, clock=lambda: self.now)
        self.worker = Worker(settings, database=self.pool.database)
        self.place = Place()

    def land_daily(self, family: str, number: int = 30, after: int = HOUR) -> None:
        """Write the landings of the days before."""
        rows = [
            {
                "family": family_code(NEVER, family),
                "digest": bytes(32),
                "op_classpath": NEVER,
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

    def register(self, name: str, family: str | None = None, at: int | None = TODAY) -> Registered:
        date = None if at is None else datetime.fromtimestamp(at / 1000, UTC)
        context = {"name": name}
        return self.pool.register(NEVER, context, family=family, logical_date=date, timeout=9 * DAY / 1000)

    def look(self) -> None:
        """Run a job, which pokes what is due."""
        self.worker.run_job(self.pool.ranges[0], "us")

    def find(self, *, look: bool = True) -> int:
        if look:
            self.look()
        now = begin(self.worker, self.place)
        late.find(now)
        return now.done.late

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
    series.now += MINUTE
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
    assert said.startswith("2026-09-28 01:00:00 UTC (1 h 6 min ago), by 30 earlier landings")
    assert said.endswith(": it is late")
    assert explain(series.pool, other.id)["usual_landing"] is None
    series.pool.cancel(waits.id, "enough")
    assert status(series.pool)["late"] == 0


def test_after_an_outage_a_condition_is_poked_before_it_is_late(series: Late) -> None:
    series.land_daily("sales")
    series.register("today", "sales")
    series.look()
    series.now += 9 * HOUR  # no job has run
    assert series.find(look=False) == 0
    assert series.find() == 1


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


def test_a_round_is_bounded_and_the_next_ones_find_the_rest(series: Late, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ROWS", 3)
    monkeypatch.setattr(late, "PAGES", 2)
    series.land_daily("sales")
    for n in range(20):
        series.register(f"today {n}", "sales")
    series.now += DAY
    found = [series.find() for _ in range(4)]
    assert found == [6, 6, 6, 2]
    assert len(series.late_groups()) == 20
    assert series.find() == 0
    assert series.place.groups == 0


def test_many_late_conditions_are_a_few_lines(series: Late, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(late.log, "warning", lambda _, **fields: told.append(fields))
    series.land_daily("sales")
    for n in range(30):
        series.register(f"today {n}", "sales")
    series.now += DAY
    assert series.find() == 30
    assert len(told) == 5


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
