"""Template fields whose default is a template: it is rendered natively, and the pool waits for what it becomes."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("airflow.providers.apache.hive")

from airflow.providers.amazon.aws.sensors.glue_catalog_partition import GlueCatalogPartitionSensor
from airflow.providers.apache.hive.sensors.hive_partition import HivePartitionSensor
from airflow.sdk import DAG
from airflow.sdk.bases.sensor import BaseSensorOperator

from sensorpool import Pool, Settings
from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.proof.arguments import rebuild
from sensorpool.airflow.start import parse, registration, templates
from sensorpool.airflow.start.blueprint import Blueprint
from sensorpool.airflow.task import deferral, reschedule_condition
from sensorpool.airflow.task.poolable import Condition
from sensorpool.model.values import Key

CONTEXT = {"ds": "2026-03-01"}
KEY = Key("dag", "wait", "run", -1, 1)
HIVE, GLUE = HivePartitionSensor, GlueCatalogPartitionSensor


class Derived(HivePartitionSensor):
    """Passes on what it is given."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)


class Listing(BaseSensorOperator):
    """Has a default with parts."""

    template_fields = ("days", "place", "made")

    def __init__(self, *, days: tuple[str, ...] = ("{{ ds }}", "2026-01-01"), place: str = "/", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.days, self.place = days, place
        self.made = ""


class Making(Listing):
    """Makes a template that is no argument."""

    def __init__(self, made: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.made = made


CASES: list[tuple[Any, dict[str, Any], dict[str, Any]]] = [
    (HIVE, {"table": "orders"}, {"partition": "ds='2026-03-01'", "table": "orders"}),
    (HIVE, {"table": "a", "partition": "ds='{{ ds }}'"}, {"partition": "ds='2026-03-01'", "table": "a"}),
    (HIVE, {"table": "a", "partition": "day='1'"}, {"partition": "day='1'", "table": "a"}),
    (GLUE, {"table_name": "orders"}, {"expression": "ds='2026-03-01'", "table_name": "orders"}),
]


@pytest.fixture(autouse=True)
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    made = Pool(Settings.load(sensors_enabled="airflow.providers.*"))
    settings = AirflowSettings(enabled=True, start="scheduler")
    monkeypatch.setattr(deferral, "pool", lambda: made)
    monkeypatch.setattr(deferral, "airflow_settings", lambda: settings)
    monkeypatch.setattr(registration, "airflow_settings", lambda: settings)
    yield made
    made.close()


def task(cls: Any, **arguments: Any) -> Any:
    with DAG("dag", schedule=None):
        return cls(task_id="wait", **arguments)


@pytest.mark.parametrize(("cls", "given", "waits_for"), CASES)
def test_a_triggerer_waits_for_what_it_becomes(pool: Pool, cls: Any, given: Any, waits_for: Any) -> None:
    sensor = task(cls, **given)
    parse.give_blueprint(sensor)
    blueprint = Blueprint.read(sensor.start_trigger_args.trigger_kwargs["blueprint"])
    registered = registration.prepare(pool, blueprint, KEY, "x", CONTEXT).checked.identity.poke_context
    assert registered == json.dumps(waits_for, separators=(",", ":"), sort_keys=True)


@pytest.mark.parametrize(("cls", "given", "waits_for"), CASES)
def test_a_worker_does_so(cls: Any, given: Any, waits_for: Any) -> None:
    sensor = task(cls, **given)
    sensor.render_template_fields(CONTEXT)
    assert rebuild.poke_context_of(sensor) == waits_for


def test_a_blueprint_of_an_earlier_version_has_it_rendered_too(pool: Pool) -> None:
    sensor = task(GLUE, table_name="orders")
    parse.give_blueprint(sensor)
    text = sensor.start_trigger_args.trigger_kwargs["blueprint"].replace('"expression":"ds=\'{{ ds }}\'",', "")
    earlier = Blueprint.read(text.replace('["expression","table_name"]', '["table_name"]'))
    assert earlier.arguments == {"table_name": "orders"}
    registered = registration.prepare(pool, earlier, KEY, "x", CONTEXT).checked.identity.poke_context
    assert json.loads(registered) == {"expression": "ds='2026-03-01'", "table_name": "orders"}


@pytest.mark.parametrize("off", [{"enabled": False}, {"start": "worker"}])
def test_a_blueprint_of_a_dag_that_was_parsed_before_a_setting_changed_begins_on_a_worker(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, off: dict[str, Any]
) -> None:
    sensor = task(GLUE, table_name="orders")
    parse.give_blueprint(sensor)
    blueprint = Blueprint.read(sensor.start_trigger_args.trigger_kwargs["blueprint"])
    settings = AirflowSettings(**({"enabled": True, "start": "scheduler"} | off))
    monkeypatch.setattr(registration, "airflow_settings", lambda: settings)
    with pytest.raises(NotPoolable, match="enabled or start is off"):
        registration.prepare(pool, blueprint, KEY, "x", CONTEXT)


def test_a_class_that_passes_on_what_it_is_given_has_the_defaults_of_its_base() -> None:
    sensor = task(Derived, table="orders")
    sensor.render_template_fields(CONTEXT)
    assert rebuild.poke_context_of(sensor)["partition"] == "ds='2026-03-01'"


def test_parts_of_a_default_may_be_templates() -> None:
    sensor = task(Listing)
    sensor.render_template_fields(CONTEXT)
    context = rebuild.poke_context_of(sensor)
    assert "2026-03-01" in str(context["days"])
    assert "place" not in context


@pytest.mark.parametrize("made", ["{{ ds }}", "{{ task_instance.xcom_pull() }}"])
def test_a_template_that_is_no_argument_is_rendered_or_begins_on_a_worker(made: str) -> None:
    sensor = task(Making, made=made)
    if "xcom" in made:
        with pytest.raises(NotPoolable, match="its made has a template that asks task_instance for xcom_pull"):
            templates.others_of(sensor, ["days"])
    else:
        assert templates.others_of(sensor, ["days"]) == {"made": made}


class Query:
    """Is rendered field by field."""

    template_fields = ("sql",)

    def __init__(self, sql: str) -> None:
        self.sql = sql

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Query) and other.sql == self.sql

    def __hash__(self) -> int:
        return hash(self.sql)


@pytest.mark.parametrize("wrap", [lambda query: query, lambda query: [query], lambda query: {"a": (query,)}])
def test_an_object_with_template_fields_of_its_own_begins_on_a_worker(wrap: Any) -> None:
    sensor = task(Making, made=wrap(Query("{{ ds }}")))
    with pytest.raises(NotPoolable, match="its made has template fields of its own"):
        templates.others_of(sensor, ["days"])


def test_a_default_that_may_change_is_looked_at_again_in_reschedule_mode() -> None:
    condition = Condition("x", {}, adapted=False)
    sensor = task(HIVE, table="orders")
    sensor.render_template_fields(CONTEXT)
    assert not reschedule_condition.may_change(sensor, condition)
    sensor = task(VariableDefault)
    sensor.day = "what the Variable says"
    assert reschedule_condition.may_change(sensor, condition)


class VariableDefault(BaseSensorOperator):
    """Waits for what a Variable says."""

    template_fields = ("day",)

    def __init__(self, *, day: str = "{{ var.value.day }}", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.day = day
