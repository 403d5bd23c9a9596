"""The series of an Airflow task's condition."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from sensorpool.airflow.task.series import series_of

DAY = datetime(2026, 11, 24, tzinfo=UTC)


def context(day: datetime, **more: Any) -> dict[str, Any]:
    end = day + timedelta(days=1)
    return {"logical_date": day, "data_interval_start": day, "data_interval_end": end, **more}


def test_the_runs_of_two_days_are_one_series() -> None:
    days = [DAY, DAY + timedelta(days=1)]
    found = [series_of({"path": f"/data/{day:%Y-%m-%d}"}, context(day)) for day in days]
    assert found[0]["family"] == found[1]["family"] is not None
    assert [each["logical_date"] for each in found] == days


def test_a_run_without_a_logical_date_counts_from_the_time_after_which_it_runs() -> None:
    runs = [{"logical_date": None, "dag_run": SimpleNamespace(run_after=DAY + timedelta(days=n))} for n in (0, 1)]
    found = [series_of({"path": f"/data/2026-11-{24 + n}"}, run) for n, run in enumerate(runs)]
    assert found[0] == found[1] != {"logical_date": None, "family": None}


@pytest.mark.parametrize("odd", [{}, {"dag_run": None}, {"logical_date": "2026-11-24"}, {"dag_run": SimpleNamespace()}])
def test_without_dates_there_is_no_series(odd: dict[str, Any]) -> None:
    assert series_of({"path": "/data"}, odd)["family"] is None


def test_no_sensor_keeps_its_slot_because_its_series_cannot_be_told() -> None:
    assert series_of({1: object()}, context(DAY))["family"] is None  # type: ignore[dict-item]
