"""Templates that a triggerer renders: as a worker does, or not at all."""

import datetime as dt
from typing import Any

import pytest

pytest.importorskip("airflow")

import jinja2
from airflow.sdk import DAG, Param
from airflow.sdk.bases.sensor import BaseSensorOperator

from sensorpool.airflow.start import templates

MOMENT = dt.datetime(2026, 3, 1, 4, 5, tzinfo=dt.UTC)
CONTEXT: dict[str, Any] = {
    "ds": "2026-03-01",
    "run_id": "run1",
    "logical_date": MOMENT,
    "data_interval_start": MOMENT,
    "params": {"name": "x", "many": [1, 2]},
    "dag_run": {"conf": {"key": "value"}, "run_id": "run1"},
    "ti": {"task_id": "wait"},
    "var": {"value": {"place": "here"}},
    "macros": {"timedelta": dt.timedelta},
}
ADMITTED = [
    "plain",
    "ends with a line\n",
    "{{ ds }}",
    "{# nothing #}{{ run_id }}",
    "{{ logical_date.strftime('%Y') }}",
    "{{ (data_interval_start - macros.timedelta(days=1)).isoformat() }}",
    "{{ params.name }}{{ params['name'] | upper }}",
    "{% for one in params.many %}{{ loop.index }}{{ one }}{% endfor %}",
    "{% set y = ds[:4] %}{% if y %}{{ y }}{% endif %}",
    "{{ dag_run.conf['key'] }}{{ dag_run['run_id'] }}{{ dag_run.conf.get('none', 1) }}",
    "{{ ti.task_id }}",
    "{{ var.value.place }}",
    "{{ logical_date | ds_nodash }}",
    "{{ range(3) | list }}",
]
REFUSED = {
    "{{ prev_ds }}": "names prev_ds",
    "{{ inlets }}": "names inlets",
    "{{ dag.owner }}": "asks dag for owner",
    "{{ dag_run.note }}": "asks dag_run for note",
    "{{ dag.fileloc }}": "asks dag for fileloc",
    "{{ dag.default_args }}": "uses default_args as a whole",
    "{{ dag.default_args.none }}": "asks default_args for none",
    "{{ dag.default_args.get('x') }}": "asks default_args for get",
    "{{ dag['default_args'][ds] }}": "asks default_args for what an expression says",
    "{{ dag.default_args.called }}": "asks default_args for called",
    "{{ task.timeout_ }}": "asks task for timeout_",
    "{{ ti.xcom_pull('a') }}": "asks ti for xcom_pull",
    "{{ task_instance.hostname }}": "asks task_instance for hostname",
    "{{ ti[params.name] }}": "asks ti for what an expression says",
    "{{ ti }}": "uses ti as a whole",
    "{{ ti | string }}": "uses ti as a whole",
    "{% set x = dag_run %}{{ x.state }}": "uses dag_run as a whole",
    "{{ dag_run.state }}": "asks dag_run for state",
    "{{ dag.schedule }}": "asks dag for schedule",
    "{{ task.timeout }}": "asks task for timeout",
    "{{ var.value }}{{ var }}": "uses var as a whole",
    "{{ ds | mine }}": "with mine",
    "{{ ds is mine }}": "with mine",
    "{% include 'a' %}": "takes in others",
    "{% import 'a' as b %}": "takes in others",
    "{% extends 'a' %}": "takes in others",
    "{% macro a() %}{% endmacro %}{{ a() }}": "takes in others",
    "{% block a %}{% endblock %}": "takes in others",
    "{{ ds": "no template",
    "query.sql": "template file",
}


class Templated(BaseSensorOperator):
    """Has a template field."""

    template_fields = ("value",)
    template_ext = (".sql",)

    def __init__(self, *, value: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.value = value

    def poke(self, context: Any) -> bool:
        """Find nothing."""
        return False


def natively(value: Any, context: dict[str, Any]) -> Any:
    with DAG("templates", schedule=None, params={"name": Param("x")}) as dag:
        sensor = Templated(task_id="wait", value=value)
    sensor.render_template_fields(context, dag.get_template_env())  # type: ignore[arg-type]
    return sensor.value


@pytest.mark.parametrize(
    "value", [*ADMITTED, {"a": ADMITTED}, tuple(ADMITTED), [{"b": ("{{ ds }}", 3)}, None]], ids=str
)
def test_an_admitted_template_is_rendered_as_on_a_worker(value: Any) -> None:
    assert templates.reason_against(value, [".sql"]) is None
    assert templates.render(value, CONTEXT) == natively(value, CONTEXT)


@pytest.mark.parametrize("template", REFUSED)
def test_another_template_needs_a_worker(template: str) -> None:
    for value in (template, [template], {"a": ("plain", template)}):
        assert REFUSED[template] in str(templates.reason_against(value, [".sql"], {"owner": "me", "called": print}))


@pytest.mark.parametrize(
    "template", ["{{ logical_date }}", "{{ params.other }}", "{{ dag_run.conf.a.b }}", "{{ ds.__class__.x }}"]
)
def test_what_is_not_there_is_an_error_and_no_empty_text(template: str) -> None:
    assert templates.reason_against(template, []) is None
    context = {name: value for name, value in CONTEXT.items() if name != "logical_date"}
    with pytest.raises(jinja2.TemplateError):
        templates.render(template, context)


def test_a_value_that_is_nested_too_deep_is_refused() -> None:
    deep: Any = "{{ ds }}"
    for _ in range(40):
        deep = [deep]
    assert templates.reason_against(deep, []) == "is nested too deep"
