"""What is usual for families: percentiles of their landings, on each database; and simulated years of alerts."""

import math
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, insert

from sensorpool.model.states import Ending
from sensorpool.model.usual_landing import ALL_DAYS, Series, Usual, expected
from sensorpool.store.database import Database
from sensorpool.store.schema import landing, metadata
from sensorpool.store.usual_landings import UsualLandings, percentiles

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
MONDAY = 1_790_553_600_000  # 2026-09-28
ALL = (True, ALL_DAYS)


def row(
    took: int, began: int, *, waited: int = 0, dated: bool = True, family: int = 7, ending: str = "landed"
) -> dict[str, Any]:
    """Return the row of a landing.

    :param waited: how long after its time began the first waiter came.
    """
    since = began + waited
    date = began if dated else None
    row = {"family": family, "logical_date": date, "waiting_since": since, "ended_at": began + took, "ending": ending}
    return row | {"digest": bytes(32), "op_classpath": "a.B", "waiters": 1, "pokes": 1}


class Record:
    def __init__(self, url: str) -> None:
        self.database = Database(url)

    def write(self, rows: list[dict[str, Any]]) -> None:
        self.database.run(lambda connection: connection.execute(insert(landing), rows))

    def usual(self, family: int = 7, now: int = MONDAY) -> Series:
        return self.database.read(percentiles, [family, 8], now).get(family, {})


@pytest.fixture
def record(each_database: str) -> Iterator[Record]:
    made = Record(each_database)
    yield made
    made.database.dispose()


def days(*took: int, **more: Any) -> list[dict[str, Any]]:
    return [row(each, MONDAY - (n + 1) * DAY, **more) for n, each in enumerate(took)]


def test_ten_landings_are_needed(record: Record) -> None:
    record.write([*days(*[HOUR] * 9), *days(HOUR, ending=Ending.TIMEOUT), *days(*[HOUR] * 10, family=9)])
    assert record.usual() == {}
    record.write(days(HOUR))
    assert record.usual() == {ALL: Usual(10, HOUR, HOUR, HOUR, HOUR)}


def test_percentiles_are_those_of_the_landings(record: Record) -> None:
    chance = random.Random(17)
    for family in range(10, 30):
        took = [chance.randrange(20 * HOUR) for _ in range(chance.randint(10, 60))]
        record.write(days(*took, family=family, waited=HOUR))
        took.sort()
        shortest = max(0, took[0] - HOUR)
        wanted = Usual(len(took), took[(len(took) - 1) // 2], took[math.ceil(0.9 * len(took)) - 1], took[0], shortest)
        assert record.usual(family)[ALL] == wanted


def test_a_weekday_with_ten_landings_has_percentiles_of_its_own(record: Record) -> None:
    monday = MONDAY // DAY % 7
    record.write(days(*[5 * HOUR if n % 7 == 6 else HOUR for n in range(69)]))
    assert (True, monday) not in record.usual(), "nine Mondays are too few"
    record.write([row(5 * HOUR, MONDAY - 70 * DAY)])
    usual = record.usual()
    assert usual[True, monday] == Usual(10, 5 * HOUR, 5 * HOUR, 5 * HOUR, 5 * HOUR)
    assert usual[ALL] == Usual(70, HOUR, 5 * HOUR, HOUR, HOUR)


def test_the_newest_landings_count(record: Record) -> None:
    record.write(days(*[HOUR] * 120, *[9 * HOUR] * 200))
    assert record.usual()[ALL] == Usual(120, HOUR, HOUR, HOUR, HOUR)
    assert record.usual(now=MONDAY + 390 * DAY) == {ALL: Usual(10, HOUR, HOUR, HOUR, HOUR)}


def test_runs_without_a_logical_date_are_by_themselves(record: Record) -> None:
    record.write([*days(*[HOUR] * 10), *days(*[2 * HOUR] * 11, dated=False)])
    assert record.usual() == {ALL: Usual(10, *[HOUR] * 4), (False, ALL_DAYS): Usual(11, *[2 * HOUR] * 4)}


def test_a_backfill_says_nothing_about_when_data_lands(record: Record) -> None:
    ordinary = [row(26 * HOUR, MONDAY - n * DAY, waited=24 * HOUR) for n in range(2, 42)]
    by_hand = [row(MINUTE, MONDAY - DAY)]
    backfill = [row(n * DAY, MONDAY - n * DAY, waited=n * DAY) for n in range(42, 72)]
    record.write(ordinary + by_hand + backfill)
    assert record.usual()[ALL] == Usual(41, 26 * HOUR, 26 * HOUR, MINUTE, MINUTE)


def test_what_was_read_is_kept_for_an_hour(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = UsualLandings(record.database)
    assert kept.of([7, 8], MONDAY) == {7: {}, 8: {}}
    record.write(days(*[HOUR] * 10))
    assert kept.of([7], MONDAY) == {7: {}}
    monkeypatch.setattr("sensorpool.store.usual_landings._KEPT", -1.0)
    assert kept.of([7], MONDAY) == {7: {ALL: Usual(10, *[HOUR] * 4)}}


def test_a_call_reads_a_bounded_number_of_families(record: Record) -> None:
    record.write([each for family in range(60) for each in days(*[HOUR] * 10, family=family)])
    kept = UsualLandings(record.database)
    assert [len(kept.of(range(60), MONDAY, most=40)) for _ in range(2)] == [40, 60]
    assert all(ALL in usual for usual in kept.of(range(60), MONDAY).values())


# years


def play(connection: Connection, years: int) -> Counter[str]:
    """Play years of daily partitions of which one in a hundred comes hours late; count what the alerts were."""
    counted: Counter[str] = Counter()
    chances = {year: random.Random(year) for year in range(years)}
    for began in range(MONDAY, MONDAY + 365 * DAY, DAY):
        usual = percentiles(connection, [*chances], began)
        rows = []
        for year, chance in chances.items():
            has_trouble = chance.random() < 0.01
            took = round(daily(chance, began)) + (chance.randint(2 * HOUR, 10 * HOUR) if has_trouble else 0)
            if (found := expected(usual.get(year, {}), began, began)) is None:
                counted["not known"] += 1
            elif began + took > found.late_after:
                counted["in time" if has_trouble else "false"] += 1
            else:
                counted["missed" if has_trouble else "none"] += 1
            rows.append(row(took, began, family=year))
        connection.execute(insert(landing), rows)
    return counted


def daily(chance: random.Random, began: int) -> float:
    """Four hours after midnight, an hour later on Mondays, and a little later every day; the tail is long."""
    weekday = began // DAY % 7
    drift = (began - MONDAY) / DAY * 10_000
    return (
        4 * HOUR + (HOUR if weekday == MONDAY // DAY % 7 else 0) + drift + chance.lognormvariate(0, 0.6) * 20 * MINUTE
    )


def test_years_of_alerts() -> None:
    database = Database("sqlite://")
    with database.engine.begin() as connection:
        metadata.create_all(connection)
        counted = play(connection, 10)
    database.dispose()
    troubles = counted["in time"] + counted["missed"]
    assert troubles > 20
    assert counted["missed"] <= troubles * 0.1
    assert counted["false"] <= counted["none"] * 0.02
    assert counted["not known"] == 100
