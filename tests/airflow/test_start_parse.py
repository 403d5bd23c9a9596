"""The blueprint of a sensor that begins without a worker: which gets one, and that it is the same at each parse."""

import datetime as dt
import enum
import json
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

pytest.importorskip("airflow")

from airflow import policies
from airflow.exceptions import AirflowClusterPolicyViolation
from airflow.models import crypto
from airflow.models.trigger import Trigger
from airflow.providers.common.sql.sensors.sql import SqlSensor
from airflow.providers.http.sensors.http import HttpSensor
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.providers.standard.sensors.date_time import DateTimeSensor
from airflow.providers.standard.sensors.external_task import ExternalTaskSensor
from airflow.providers.standard.sensors.filesystem import FileSensor
from airflow.providers.standard.sensors.time import TimeSensor
from airflow.providers.standard.sensors.time_delta import TimeDeltaSensor
from airflow.sdk import DAG, Param, TaskGroup
from airflow.sdk.definitions.context import _AIRFLOW_PARSING_CONTEXT_TASK_ID as PARSED_FOR
from airflow.sdk.definitions.xcom_arg import XComArg
from airflow.serialization.serialized_objects import DagSerialization
from cryptography.fernet import Fernet

from sensorpool import Pool, Settings
from sensorpool.airflow.compat import operators, start_from_trigger, task_runtime
from sensorpool.airflow.configuration import AIRFLOW_SENSORS, AirflowSettings
from sensorpool.airflow.errors import REASONS_TO_BEGIN, NotPoolable
from sensorpool.airflow.start import one_task, parse
from sensorpool.airflow.start.blueprint import Blueprint
from sensorpool.airflow.task import deferral, patch
from tests.airflow.running import Flag, apply_policies

FLAG = f"{Flag.__module__}.Flag"
OURS = {"enabled": True, "start": "scheduler"}


@pytest.fixture(autouse=True)
def ours(monkeypatch: pytest.MonkeyPatch) -> Iterator[AirflowSettings]:
    pool = Pool(Settings.load(sensors_enabled=[*AIRFLOW_SENSORS, FLAG]))
    settings = AirflowSettings(**OURS)  # type: ignore[arg-type]
    monkeypatch.setattr(deferral, "pool", lambda: pool)
    monkeypatch.setattr(deferral, "airflow_settings", lambda: settings)
    yield settings
    pool.close()


def file_sensor(**arguments: Any) -> FileSensor:
    return FileSensor(task_id="wait", **{"filepath": "/data/{{ ds }}", **arguments})


POOLED: dict[str, Callable[[], Any]] = {
    "file": file_sensor,
    "plain": lambda: file_sensor(filepath="/data"),
    "headers": lambda: HttpSensor(task_id="wait", endpoint="/{{ ds }}", headers={"a": "{{ run_id }}"}),
    "moment": lambda: DateTimeSensor(task_id="wait", target_time="{{ data_interval_end }}"),
    "delta": lambda: TimeDeltaSensor(task_id="wait", delta=dt.timedelta(hours=1)),
    "external": lambda: ExternalTaskSensor(task_id="wait", external_dag_id="a", external_task_id="{{ params.x }}"),
    "a company's class": lambda: Flag(task_id="wait", flag="{{ ds }}"),
    "callback of a success": lambda: file_sensor(on_success_callback=print),
    "reschedule": lambda: file_sensor(mode="reschedule"),
    "execution_timeout": lambda: file_sensor(execution_timeout=dt.timedelta(hours=1)),
    "a time of day": lambda: TimeSensor(task_id="wait", target_time=dt.time(23, 59, 59)),
    "a connection": lambda: file_sensor(filepath="/{{ conn.store.schema }}"),
    "default_args": lambda: file_sensor(filepath="/{{ dag.default_args.owner }}"),
}
ON_WORKER: dict[str, tuple[Callable[[], Any], str]] = {
    "execution_timeout of a poke": (
        lambda: file_sensor(mode="reschedule", execution_timeout=dt.timedelta(hours=1)),
        "execution_timeout counts each poke",
    ),
    "deferrable": (lambda: file_sensor(deferrable=True), "defers by itself"),
    "start_from_trigger": (lambda: setattr(file_sensor(), "start_from_trigger", True), "defers by itself"),
    "an XCom": (lambda: file_sensor(filepath=EmptyOperator(task_id="before").output), "XCom"),
    "an XCom deep down": (
        lambda: HttpSensor(
            task_id="wait", endpoint="x", request_params={"a": [EmptyOperator(task_id="before").output]}
        ),
        "XCom",
    ),
    "a template": (lambda: file_sensor(filepath="{{ ti.xcom_pull('a') }}"), "asks ti for xcom_pull"),
    "pre_execute": (lambda: file_sensor(pre_execute=print), "pre_execute"),
    "on_execute_callback": (lambda: file_sensor(on_execute_callback=print), "on_execute_callback"),
    "max_active_tis": (lambda: file_sensor(max_active_tis_per_dag=1), "max_active_tis"),
    "run_as_user": (lambda: file_sensor(run_as_user="x"), "runs as the user"),
    "a timeout without end": (lambda: file_sensor(timeout=dt.timedelta(weeks=10**6)), "longer than the pool's longest"),
    "an execution_timeout without end": (
        lambda: file_sensor(execution_timeout=dt.timedelta.max),
        "longer than the pool's longest",
    ),
    "own params": (lambda: file_sensor(params={"own": 1}), "params of its own"),
    "a moment of the parse": (
        lambda: TimeSensor(task_id="wait", target_time=dt.datetime.now().time().replace(microsecond=1)),
        "may be another one at each parse",
    ),
    "a time": (
        lambda: HttpSensor(task_id="wait", endpoint="x", extra_options={"a": [dt.date(2026, 1, 1)]}),
        "may be another one at each parse",
    ),
    "a secret": (lambda: HttpSensor(task_id="wait", endpoint="x", headers={"password": "p"}), "secret"),
    "a function of its name": (
        lambda: HttpSensor(task_id="wait", endpoint="x", response_check=json.dumps),
        "callable|function",
    ),
    "a callable": (lambda: HttpSensor(task_id="wait", endpoint="x", response_check=print), "callable"),
}


def in_dag(make: Callable[[], Any], **arguments: Any) -> Any:
    defaults = {"default_args": {"owner": "me"}, "params": {"x": Param("a", type="string")}, **arguments}
    with DAG("starts", schedule=None, **defaults) as dag:
        make()
    return dag.get_task("wait")


@pytest.mark.parametrize("make", POOLED.values(), ids=POOLED)
def test_gets_a_blueprint(make: Callable[[], Any]) -> None:
    sensor = in_dag(make)
    parse.give_blueprint(sensor)
    assert sensor.start_from_trigger
    args = sensor.start_trigger_args
    assert args.trigger_cls == one_task.START
    blueprint = Blueprint.read(args.trigger_kwargs["blueprint"])
    assert blueprint.direct is not bool(sensor.on_success_callback or sensor.operator_extra_links)
    assert args.timeout == dt.timedelta(seconds=sensor.timeout + 3600)
    assert set(blueprint.templated) <= set(sensor.template_fields) & set(blueprint.arguments)
    found = DagSerialization.from_dict(DagSerialization.to_dict(sensor.dag)).get_task("wait")
    assert found.start_from_trigger


@pytest.mark.parametrize(("make", "why"), ON_WORKER.values(), ids=ON_WORKER)
def test_starts_on_a_worker(make: Callable[[], Any], why: str) -> None:
    sensor = in_dag(make)
    was = sensor.start_from_trigger, sensor.start_trigger_args
    with pytest.raises(NotPoolable, match=why):
        parse.blueprint_of(sensor, deferral.pool().settings, deferral.airflow_settings())
    parse.give_blueprint(sensor)
    assert (sensor.start_from_trigger, sensor.start_trigger_args) == was


REASONS = {
    "a function of its name": "arguments",
    "execution_timeout of a poke": "limit",
    "deferrable": "own_work",
    "an XCom": "xcom",
    "a template": "template",
    "pre_execute": "own_work",
    "max_active_tis": "limit",
    "run_as_user": "not_poolable",
    "a timeout without end": "limit",
    "own params": "template",
    "a time": "arguments",
    "a moment of the parse": "arguments",
    "a secret": "arguments",
}


@pytest.mark.parametrize("case", REASONS)
def test_a_worker_knows_the_reason_for_its_metric(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sensor = in_dag(ON_WORKER[case][0])
    monkeypatch.setenv(PARSED_FOR, "wait")
    monkeypatch.setattr(parse, "begins_on_worker", kept := {})
    parse.give_blueprint(sensor)
    assert kept["starts", "wait"][1] == REASONS[case]
    assert REASONS[case] in REASONS_TO_BEGIN


def test_a_worker_knows_that_others_begin_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    sensor = in_dag(file_sensor)
    monkeypatch.setenv(PARSED_FOR, "wait")
    monkeypatch.setattr(parse, "begins_on_worker", kept := {})
    parse.give_blueprint(sensor)
    assert kept == {("starts", "wait"): None}
    assert not sensor.start_from_trigger


@pytest.mark.parametrize(
    ("filepath", "direct"),
    [
        ("/data", True),
        ("/data/{{ ds }}/{{ params.x }}/{{ dag_run.conf.x }}", True),
        ("/data/{{ var.value.place }}", False),
        ("/data/{{ conn.store.schema }}", False),
        ("/data/{{ macros.datetime.now() }}", False),
        ("/data/{{ [ds, ts] | random }}", False),
    ],
)
def test_a_rescheduled_sensor_that_may_change_ends_on_a_worker(filepath: str, direct: bool) -> None:
    """Natively each poke renders anew; in poke mode it is rendered once."""
    for mode, expected in (("reschedule", direct), ("poke", True)):
        sensor = in_dag(lambda mode=mode: file_sensor(filepath=filepath, mode=mode))
        parse.give_blueprint(sensor)
        assert Blueprint.read(sensor.start_trigger_args.trigger_kwargs["blueprint"]).direct is expected, mode


@pytest.mark.parametrize(
    "arguments",
    [
        {"user_defined_macros": {"a": 1}},
        {"user_defined_filters": {"a": str}},
        {"jinja_environment_kwargs": {"trim_blocks": True}},
        {"render_template_as_native_obj": True},
        {"template_undefined": __import__("jinja2").Undefined},
    ],
    ids=lambda arguments: next(iter(arguments)),
)
def test_a_dag_with_templates_of_its_own_starts_on_workers(arguments: dict[str, Any]) -> None:
    sensor = in_dag(file_sensor, **arguments)
    parse.give_blueprint(sensor)
    assert not sensor.start_from_trigger


class Place(enum.StrEnum):
    HERE = "here"


class Number(enum.IntEnum):
    ONE = 1


PARAMS: dict[str, tuple[Any, bool]] = {
    "a text": ("a", True),
    "nested": ({"a": [1, {"b": None}], "c": {"d": [True, 2.5]}}, True),
    "dicts": ([{"a": 1}, {"a": [2]}], True),
    "in another order": ({"b": 1, "a": 2}, False),
    "by length": ({"aa": 1, "b": 2}, False),
    "within": ({"a": [{"b": 1, "a": 2}]}, False),
    "of letters": ({"a": 1, "ö": 2}, True),
    "a float": ([0.1, 1.0, 1e-07, 123456.75], True),
    "an exponent": (1e16, False),
    "less than nothing": ([-0.0], False),
    "a tuple": ((1, (2, "x")), True),
    "of a type": (Param([{"a": 1}], type="array"), True),
    "a dict beside another": ([1, {"a": 2}], False),
    "a dict in two lists": ([[{"a": 1}]], False),
    "an enum": (Number.ONE, False),
    "a text's enum": (Place.HERE, False),
    "infinite": (float("inf"), False),
    "keys": ({1: 2}, False),
}


@pytest.mark.parametrize("of_task", [False, True], ids=["of its DAG", "of its task"])
@pytest.mark.parametrize(("value", "is_same"), PARAMS.values(), ids=PARAMS)
def test_params_that_a_serialized_dag_changes_are_a_workers(value: Any, is_same: bool, of_task: bool) -> None:
    """A triggerer has the params of the serialized DAG: Airflow does not read back all that it writes there."""
    own = {"params": {"y": value}} if of_task else {}
    sensor = in_dag(
        lambda: file_sensor(filepath="/{{ params.y }}", **own), params={"x": 1, "y": 2 if of_task else value}
    )
    parse.give_blueprint(sensor)
    assert sensor.start_from_trigger is is_same
    if is_same:
        found = DagSerialization.from_dict(json.loads(json.dumps(DagSerialization.to_dict(sensor.dag))))
        of = found.get_task("wait").params if of_task else found.params
        assert repr(of["y"]) == repr(sensor.params["y"])
    not_named = in_dag(lambda: file_sensor(**own), params={"x": 1, "y": value})
    parse.give_blueprint(not_named)
    assert not_named.start_from_trigger


def test_one_that_others_are_mapped_over_ends_on_a_worker() -> None:
    """Airflow walks a whole DAG for each task: where nothing is mapped it is walked once, and anew for another DAG."""
    blueprints = []
    for is_mapped in (False, True, False):
        with DAG("starts", schedule=None) as dag:
            file_sensor()
            if is_mapped:
                with TaskGroup("group"):
                    FileSensor.partial(task_id="mapped").expand(filepath=XComArg(dag.get_task("wait")))
        parse.give_blueprint(dag.get_task("wait"))
        blueprints.append(Blueprint.read(dag.get_task("wait").start_trigger_args.trigger_kwargs["blueprint"]))
    assert [blueprint.direct for blueprint in blueprints] == [True, False, True]


def test_a_task_that_is_mapped_later_is_seen() -> None:
    with DAG("starts", schedule=None) as dag:
        sensor = file_sensor()
        assert not operators.has_mapped_dependants(sensor)
        FileSensor.partial(task_id="mapped").expand(filepath=XComArg(sensor))
    assert operators.has_mapped_dependants(dag.get_task("wait"))


def test_a_mapped_sensor_starts_on_workers() -> None:
    with DAG("starts", schedule=None) as dag:
        FileSensor.partial(task_id="wait").expand(filepath=["a", "b"])
    parse.give_blueprint(dag.get_task("wait"))
    assert not dag.get_task("wait").start_from_trigger


def test_a_sensor_in_a_mapped_group_starts_on_a_worker() -> None:
    from airflow.sdk import task_group

    with DAG("starts", schedule=None) as dag:

        @task_group
        def group(_: str) -> None:
            file_sensor()

        group.expand(_=["a", "b"])
    sensor = dag.get_task("group.wait")
    parse.give_blueprint(sensor)
    assert not sensor.start_from_trigger


@pytest.mark.parametrize("changed", [{"enabled": False}, {"start": "worker"}, {"exclude": ("starts",)}], ids=str)
def test_the_settings_decide(changed: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    settings = AirflowSettings(**(OURS | changed))  # type: ignore[arg-type]
    monkeypatch.setattr(deferral, "airflow_settings", lambda: settings)
    sensor = in_dag(file_sensor)
    parse.give_blueprint(sensor)
    assert not sensor.start_from_trigger


@pytest.mark.parametrize("listeners", ["respect", "ignore"])
def test_listeners_of_tasks_are_respected(listeners: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = AirflowSettings(enabled=True, start="scheduler", listeners=listeners)
    monkeypatch.setattr(deferral, "airflow_settings", lambda: settings)
    monkeypatch.setattr(task_runtime, "has_task_listeners", lambda: True)
    sensor = in_dag(file_sensor)
    parse.give_blueprint(sensor)
    assert sensor.start_from_trigger is (listeners == "ignore")


def test_with_teams_sensors_begin_on_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__MULTI_TEAM", "True")
    sensor = in_dag(file_sensor)
    parse.give_blueprint(sensor)
    assert not sensor.start_from_trigger


def test_an_older_airflow_starts_sensors_on_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_from_trigger, "is_offered", lambda: False)
    sensor = in_dag(file_sensor)
    parse.give_blueprint(sensor)
    assert not sensor.start_from_trigger


@pytest.mark.parametrize("value", ["b" * 40_000, '"\\' * 8_000], ids=["text", "quotes"])
def test_a_large_argument_starts_on_a_worker(value: str) -> None:
    """Airflow writes it as JSON into JSON, and encrypts that: MySQL takes 65,535 bytes, or the scheduler ends."""
    sensor = in_dag(lambda: HttpSensor(task_id="wait", endpoint="x", headers={"a": value}))
    parse.give_blueprint(sensor)
    assert not sensor.start_from_trigger


def test_the_largest_blueprint_fits_into_the_row_of_a_trigger() -> None:
    least, most = 1, 20_000
    while least < most:
        half = (least + most + 1) // 2
        sensor = in_dag(lambda half=half: HttpSensor(task_id="wait", endpoint="x", headers={"a": '"\\' * half}))
        parse.give_blueprint(sensor)
        least, most = (half, most) if sensor.start_from_trigger else (least, half - 1)
    sensor = in_dag(lambda: HttpSensor(task_id="wait", endpoint="x", headers={"a": '"\\' * least}))
    parse.give_blueprint(sensor)
    with pytest.MonkeyPatch.context() as context:
        context.setenv("AIRFLOW__CORE__FERNET_KEY", Fernet.generate_key().decode())
        crypto.get_fernet.cache_clear()
        assert len(Trigger.encrypt_kwargs(sensor.start_trigger_args.trigger_kwargs)) <= 65_535
    crypto.get_fernet.cache_clear()


def change(task: Any) -> None:
    """Change what a blueprint keeps."""
    task.timeout, task.on_success_callback = 60, [print]


class Company:
    @staticmethod
    @policies.hookimpl
    def task_policy(task: Any) -> None:
        change(task)


class TriesLast:
    @staticmethod
    @policies.hookimpl(trylast=True)
    def task_policy(task: Any) -> None:
        change(task)


class Around:
    @staticmethod
    @policies.hookimpl(wrapper=True)
    def task_policy(task: Any) -> Generator[None, Any, Any]:
        result = yield
        change(task)
        return result


@pytest.mark.parametrize("company", [Company, TriesLast, Around])
@pytest.mark.parametrize("order", ["before", "after"])
def test_a_blueprint_has_what_a_policy_of_the_company_changes(
    monkeypatch: pytest.MonkeyPatch, company: type, order: str
) -> None:
    monkeypatch.setattr(patch, "starts_without_worker", lambda: True)
    sensor = in_dag(file_sensor)
    apply_policies(sensor, **{order: [company]})
    blueprint = Blueprint.read(sensor.start_trigger_args.trigger_kwargs["blueprint"])
    assert (sensor.timeout, blueprint.timeout, blueprint.direct) == (60, 60, False)


class Refuses:
    @staticmethod
    @policies.hookimpl
    def task_policy(task: Any) -> None:
        raise AirflowClusterPolicyViolation(task.task_id)


@pytest.mark.parametrize("order", ["before", "after"])
def test_the_refusal_of_a_policy_passes_through(monkeypatch: pytest.MonkeyPatch, order: str) -> None:
    monkeypatch.setattr(patch, "starts_without_worker", lambda: True)
    sensor = in_dag(file_sensor)
    with pytest.raises(AirflowClusterPolicyViolation, match="wait"):
        apply_policies(sensor, **{order: [Refuses]})
    assert not sensor.start_from_trigger
    apply_policies(sensor)
    assert sensor.start_from_trigger


PARSE = """
import datetime as dt
import json
from airflow.sdk import DAG
from airflow.providers.standard.sensors.time import TimeSensor
from airflow.providers.http.sensors.http import HttpSensor
from airflow.providers.standard.sensors.external_task import ExternalTaskSensor
from airflow.serialization.serialized_objects import DagSerialization
from tests.airflow.running import apply_policies

with DAG("d", schedule=None) as dag:
    HttpSensor(task_id="a", endpoint="{{ ds }}", headers={name: "1" for name in ("c", "a", "b")})
    TimeSensor(task_id="c", target_time=dt.time(3, tzinfo=dt.timezone(dt.timedelta(hours=2))))
    ExternalTaskSensor(task_id="b", external_dag_id="a", external_task_ids=["x", "y"], allowed_states=["success"])
for task in dag.tasks:
    apply_policies(task)
    assert task.start_from_trigger, task
print(json.dumps(DagSerialization.to_dict(dag), sort_keys=True))
"""


def test_each_process_parses_the_same_blueprint(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**OURS, "database_url": f"sqlite:///{tmp_path}/p", "redis_url": "redis://127.0.0.1:1"}.items():
        monkeypatch.setenv(f"AIRFLOW__SENSORPOOL__{name.upper()}", str(value))
    texts = set()
    for seed in ("1", "2"):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        done = subprocess.run([sys.executable, "-c", PARSE], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        texts.add(done.stdout.splitlines()[-1])
    (text,) = texts
    assert json.loads(text)["dag"]["tasks"][0]["__var"]["start_trigger_args"]["trigger_cls"] == one_task.START


@pytest.mark.parametrize(
    ("make", "is_same"),
    [
        (lambda pairs: SqlSensor(task_id="wait", conn_id="x", sql="q", parameters=pairs), True),
        (lambda pairs: SqlSensor(task_id="wait", conn_id="x", sql="q", hook_params={"a": [pairs]}), True),
        (lambda pairs: FileSensor(task_id="wait", filepath="x", **dict.fromkeys(pairs, True)), True),
        (lambda pairs: HttpSensor(task_id="wait", endpoint="x", headers=pairs), False),
    ],
    ids=["template field", "argument", "names", "an order that counts"],
)
def test_the_order_of_a_set_makes_no_new_version(make: Callable[[dict[str, Any]], Any], is_same: bool) -> None:
    """Airflow compares serialized DAGs with their names sorted; hashes of texts differ from process to process."""
    texts = []
    for names in (("recursive", "fs_conn_id"), ("fs_conn_id", "recursive")):
        sensor = in_dag(lambda names=names: make(dict.fromkeys(names, "1")))
        parse.give_blueprint(sensor)
        texts.append(sensor.start_trigger_args.trigger_kwargs["blueprint"])
    assert (texts[0] == texts[1]) is is_same


def test_groups_name_their_task(ours: AirflowSettings) -> None:
    assert ours.start == "scheduler"
    with DAG("starts", schedule=None) as dag, TaskGroup("group"):
        file_sensor()
    sensor = dag.get_task("group.wait")
    parse.give_blueprint(sensor)
    assert sensor.start_from_trigger
