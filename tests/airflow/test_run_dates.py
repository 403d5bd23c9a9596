"""The family of a condition: the same in each run, another for another condition."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sensorpool.airflow.task.run_dates import without_dates
from sensorpool.model.usual_landing import family_code

DAYS = [datetime(2026, 2, 27, tzinfo=UTC) + timedelta(days=n) for n in (0, 1, 2, 30, 31, 308)]  # months and years end
HOURS = [datetime(2026, 12, 31, 20, tzinfo=UTC) + timedelta(hours=n) for n in range(12)]

DAILY = (
    "s3://lake/sales/{0:%Y-%m-%d}/_SUCCESS",
    "/data/{0:%Y%m%d}.csv",
    "/data/{0:%Y/%m/%d}/part-0001",
    "/data/{0:%Y_%m_%d}_0",
    "dt={0:%Y-%m-%d}/hour=07",
    "year={0:%Y}/month={0:%m}/day={0:%d}",
    "scheduled__{0:%Y-%m-%dT%H:%M:%S+00:00}",
    "{0:%Y-%m-%dT%H:%M:%S.123456Z}",
    "partition_{0:%Y%m%d%H%M%S}",
    "{1:%Y-%m-%d}",
    "from {0:%Y-%m-%d} to {1:%Y-%m-%d}",
)
HOURLY = (
    "s3://lake/{0:%Y-%m-%d}/{0:%H}/_SUCCESS",
    "dt={0:%Y-%m-%d}/hour={0:%H}",
    "/data/{0:%Y%m%d%H}",
    "/data/{0:%Y%m%dT%H%M}",
    "year={0:%Y}/month={0:%m}/day={0:%d}/hour={0:%H}",
    "dt={0:%Y-%m-%d}/region=eu/hour={0:%H}",
    "{1:%Y-%m-%dT%H:%M:%S+00:00}",
)


def family(context: Any, date: datetime, span: timedelta = timedelta(days=1)) -> str:
    dates = {"logical_date": date, "data_interval_start": date, "data_interval_end": date + span}
    return without_dates(context, dates)


@pytest.mark.parametrize("template", DAILY)
def test_partitions_of_all_days_are_one_family(template: str) -> None:
    end = timedelta(days=1)
    found = {family({"path": [template.format(day, day + end)], "n": 3}, day) for day in DAYS}
    assert len(found) == 1
    assert all(str(day.year) not in found.copy().pop() for day in DAYS)


@pytest.mark.parametrize("template", HOURLY)
def test_partitions_of_all_hours_are_one_family(template: str) -> None:
    hour = timedelta(hours=1)
    assert len({family({"path": template.format(each, each + hour)}, each, hour) for each in HOURS}) == 1


@pytest.mark.parametrize("days", [-30, -7, -1, 2, 7])
def test_a_day_that_is_always_as_far_from_the_run_is_one_family(days: int) -> None:
    found = {family({"path": f"/data/{day + timedelta(days=days):%Y-%m-%d}"}, day) for day in DAYS}
    assert len(found) == 1
    assert found != {family({"path": f"/data/{day:%Y-%m-%d}"}, day) for day in DAYS}


def test_months_are_one_family() -> None:
    months = [datetime(2026, month, 1, tzinfo=UTC) for month in (1, 2, 11, 12)]
    assert len({family({"path": f"/data/{month:%Y-%m}.csv"}, month) for month in months}) == 1
    assert len({family({"path": f"/data/{month:%Y%m}.csv"}, month) for month in months}) == 1


def test_seconds_since_1970_are_one_family() -> None:
    assert len({family({"since": int(day.timestamp()), "path": f"{day.timestamp():.0f}"}, day) for day in DAYS}) == 1
    assert len({family({"since": int(day.timestamp() * 1000)}, day) for day in DAYS}) == 1


def test_a_zone_of_the_text_is_read() -> None:
    rome = timezone(timedelta(hours=1))
    assert len({family({"at": day.astimezone(rome).isoformat()}, day) for day in DAYS}) == 1


@pytest.mark.parametrize(
    "text",
    [
        "2025-02-31",
        "20261399",
        "/releases/2019-01-01/x",
        "job-1780000000",
        "12345678901234567890",
        "1.2.3",
        "no date",
        "",
    ],
)
def test_what_is_no_date_of_the_run_stays(text: str) -> None:
    assert json.loads(family({"path": text}, DAYS[0])) == {"path": text}


def test_other_conditions_are_other_families() -> None:
    contexts = [{"path": f"/{table}/{DAYS[0]:%Y-%m-%d}"} for table in ("sales", "costs")] + [{"path": "/sales"}, {}]
    assert len({family(context, DAYS[0]) for context in contexts}) == len(contexts)
    assert family_code("a.B", "x") != family_code("a.C", "x")


def test_a_family_has_one_number_everywhere() -> None:
    assert family_code("sensorpool.sensors.PathSensor", "sales") == -432947900023800628
    assert -(2**63) <= family_code("a.B", "\ud800 and NUL \0") < 2**63


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=8,
    ),
    st.datetimes(min_value=datetime(1971, 1, 1), max_value=datetime(2200, 1, 1)),
)
def test_any_context_has_a_family(value: Any, date: datetime) -> None:
    assert json.loads(family({"value": value}, date.replace(tzinfo=UTC)))
