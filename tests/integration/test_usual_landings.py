"""What is usual for families, by the newest landings of each, on each database."""

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import insert

from sensorpool.errors import Unreachable
from sensorpool.model.states import Ending
from sensorpool.model.usual_landing import ALL_DAYS, Series, Usual
from sensorpool.store.database import Database
from sensorpool.store.late_conditions import UsualLandings
from sensorpool.store.schema import landing

HOUR, DAY = 3_600_000, 86_400_000
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
        return UsualLandings(self.database).of([family, 8], now)[family]


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


def test_the_newest_landings_count(record: Record) -> None:
    record.write(days(*[HOUR] * 120, *[9 * HOUR] * 200))
    assert record.usual()[ALL] == Usual(120, HOUR, HOUR, HOUR, HOUR)
    assert record.usual(now=MONDAY + 390 * DAY) == {ALL: Usual(10, HOUR, HOUR, HOUR, HOUR)}


def test_runs_without_a_logical_date_are_by_themselves(record: Record) -> None:
    record.write([*days(*[HOUR] * 10), *days(*[2 * HOUR] * 11, dated=False)])
    assert record.usual() == {ALL: Usual(10, *[HOUR] * 4), (False, ALL_DAYS): Usual(11, *[2 * HOUR] * 4)}


def test_what_was_read_is_kept_for_an_hour(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = UsualLandings(record.database)
    assert kept.of([7, 8], MONDAY) == {7: {}, 8: {}}
    record.write(days(*[HOUR] * 10))
    assert kept.of([7], MONDAY) == {7: {}}
    monkeypatch.setattr("sensorpool.store.late_conditions._KEPT", -1.0)
    assert kept.of([7], MONDAY) == {7: {ALL: Usual(10, *[HOUR] * 4)}}


def test_what_could_not_be_read_is_read_by_the_next_call(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any) -> Any:
        raise Unreachable("away")

    record.write(days(*[HOUR] * 10))
    kept = UsualLandings(record.database)
    with monkeypatch.context() as patched:
        patched.setattr("sensorpool.store.late_conditions.families_with_landings", away)
        with pytest.raises(Unreachable):
            kept.of([7], MONDAY)
    assert kept.of([7], MONDAY) == {7: {ALL: Usual(10, *[HOUR] * 4)}}


def test_a_call_reads_a_bounded_number_of_families(record: Record) -> None:
    record.write([each for family in range(60) for each in days(*[HOUR] * 10, family=family)])
    kept = UsualLandings(record.database)
    assert [len(kept.of(range(60), MONDAY, most=40)) for _ in range(2)] == [40, 60]
    assert all(ALL in usual for usual in kept.of(range(60), MONDAY).values())
