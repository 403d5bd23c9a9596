"""What a worker says of an ExternalTaskSensor: its condition, or why it is not pooled."""

import datetime as dt
from typing import Any

import pytest

pytest.importorskip("airflow.providers.standard")

from airflow.providers.standard.sensors.external_task import ExternalTaskSensor
from airflow.sdk import timezone

from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.pool.adapters import external_task
from sensorpool.airflow.pool.adapters.external_task import poke_context_of
from tests.airflow.running import in_dag

DAY = dt.timedelta(days=1)
FIRST = timezone.datetime(2026, 11, 1)


def test_the_same_condition_is_said_in_the_same_words() -> None:
    tokyo = dt.timezone(dt.timedelta(hours=9))
    one = in_dag(ExternalTaskSensor, external_dag_id="orders", external_task_ids=["b", "a"])
    other = in_dag(
        ExternalTaskSensor,
        external_dag_id="orders",
        external_task_ids=("a", "b"),
        execution_delta=DAY,
        check_existence=True,
        poke_interval=5,
    )
    said_so = poke_context_of(one, {"logical_date": FIRST})
    assert said_so == poke_context_of(other, {"logical_date": (FIRST + DAY).astimezone(tokyo)})
    assert said_so == {
        "external_dag_id": "orders",
        "external_task_ids": ["a", "b"],
        "external_task_group_id": None,
        "logical_dates": ["2026-11-01T00:00:00+00:00"],
        "allowed_states": ["success"],
        "skipped_states": [],
        "failed_states": [],
        "soft_fail": False,
    }


def test_a_run_without_logical_date_looks_at_when_it_may_run() -> None:
    sensor = in_dag(ExternalTaskSensor, external_dag_id="orders", execution_delta=DAY)
    run = type("Run", (), {"run_after": FIRST + DAY})()
    said_so = poke_context_of(sensor, {"logical_date": None, "dag_run": run})
    assert said_so["logical_dates"] == ["2026-11-01T00:00:00+00:00"]


def test_an_empty_group_is_the_whole_run() -> None:
    sensor = in_dag(ExternalTaskSensor, external_dag_id="orders", external_task_group_id="x")
    sensor.external_task_group_id = ""  # as a template may render
    assert poke_context_of(sensor, {"logical_date": FIRST})["external_task_group_id"] is None


@pytest.mark.parametrize("name", external_task.OWN)
def test_a_subclass_that_pokes_in_its_own_way_is_not_pooled(name: str) -> None:
    own = type("Own", (ExternalTaskSensor,), {name: lambda *_, **__: None})
    with pytest.raises(NotPoolable, match=f"it brings a {name} of its own"):
        poke_context_of(in_dag(own, external_dag_id="orders"), {"logical_date": FIRST})


@pytest.mark.parametrize(
    ("given", "rendered", "why"),
    [
        ({"execution_date_fn": lambda date: date}, {}, "execution_date_fn is a callable"),
        ({"external_task_id": "a", "allowed_states": [None]}, {}, "state None"),
        ({}, {"external_dag_id": None}, "None is no text"),
        ({}, {"external_dag_id": "a\0"}, "no text"),
        ({}, {"external_task_ids": ["a", "a"]}, "names an external task twice"),
        ({}, {"external_task_ids": [1, "a"]}, "1 is no text"),
    ],
)
def test_what_cannot_be_pooled(given: dict[str, Any], rendered: dict[str, Any], why: str) -> None:
    sensor = in_dag(ExternalTaskSensor, external_dag_id="orders", **given)
    vars(sensor).update(rendered)
    with pytest.raises(NotPoolable, match=why):
        poke_context_of(sensor, {"logical_date": FIRST})
