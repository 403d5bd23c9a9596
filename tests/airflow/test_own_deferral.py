"""Sensors with ``deferrable=True`` in the pool, with `deferrable = pool`; else by a trigger of their own."""

import ast
import datetime as dt
import importlib
import inspect
import json
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("airflow")

from airflow.providers.amazon.aws.sensors.batch import BatchSensor
from airflow.providers.amazon.aws.sensors.emr import EmrContainerSensor
from airflow.providers.http.sensors.http import HttpSensor
from airflow.providers.standard.sensors.filesystem import FileSensor
from airflow.providers.standard.sensors.time import TimeSensor
from airflow.providers.standard.sensors.time_delta import TimeDeltaSensor
from airflow.providers.standard.triggers.file import FileTrigger
from airflow.sdk import DAG

from sensorpool import Pool, Settings
from sensorpool.airflow import policy
from sensorpool.airflow.catalog import proved
from sensorpool.airflow.compat import task_runtime
from sensorpool.airflow.compat.exceptions import AirflowSensorTimeout, TaskDeferralError, TaskDeferred
from sensorpool.airflow.configuration import AIRFLOW_SENSORS, AirflowSettings
from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.proof import known_sensors
from sensorpool.airflow.result import START_ON_WORKER, InstanceResult
from sensorpool.airflow.start import parse
from sensorpool.airflow.start.blueprint import Blueprint
from sensorpool.airflow.task import deferral, own_deferral, patch
from sensorpool.airflow.trigger import PoolTrigger
from sensorpool.errors import Unreachable
from sensorpool.model.states import Ending, State
from tests.airflow.running import apply_policies, as_runner, context_of, in_dag


class Otherwise(FileSensor):
    """Its constructor behaves otherwise if it is deferrable."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.recursive = self.deferrable


class Settled:
    """The settings of a test, and the pool."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.ours = AirflowSettings(enabled=True, deferrable="pool")

    def set(self, **more: Any) -> None:
        """Change settings."""
        self.ours = AirflowSettings(**({"enabled": True, "deferrable": "pool"} | more))


@pytest.fixture(autouse=True)
def settled(
    postgres_database: str,
    redis_url: str,
    monkeypatch: pytest.MonkeyPatch,
    set_airflow_connection: Callable[[str, str], None],
) -> Iterator[Settled]:
    set_airflow_connection("fs_default", "fs:///")
    pool = Pool(Settings.load(database_url=postgres_database, redis_url=redis_url, sensors_enabled=AIRFLOW_SENSORS))
    made = Settled(pool)
    monkeypatch.setattr(deferral, "pool", lambda: pool)
    monkeypatch.setattr(deferral, "airflow_settings", lambda: made.ours)
    monkeypatch.setattr(patch, "is_enabled", lambda: made.ours.enabled)
    monkeypatch.setattr(patch, "takes_deferrable", lambda: made.ours.enabled and made.ours.deferrable == "pool")
    monkeypatch.setattr(policy, "_failed", False)
    monkeypatch.setattr(patch, "_is_configured", lambda: True)
    yield made
    pool.close()


def sensor_of(cls: Any = FileSensor, **arguments: Any) -> Any:
    """Return a deferrable sensor whose file has been parsed."""
    given = {"filepath": "/never", "deferrable": True} if issubclass(cls, FileSensor) else {"deferrable": True}
    sensor = in_dag(cls, **(given | arguments))
    apply_policies(sensor)
    return sensor


def defers(sensor: Any, context: Any = None) -> Any:
    """Execute a sensor; return the trigger by which it waits."""
    with pytest.raises(TaskDeferred) as deferred:
        as_runner(sensor, "execute", context or context_of(sensor))
    return deferred.value.trigger


def resume(sensor: Any, event: Any) -> Any:
    """Resume as Airflow's task runner does."""
    return as_runner(sensor, "resume_execution", patch.RESUME, {"event": event}, context_of(sensor))


def test_waits_in_the_pool_with_those_that_are_not_deferrable(settled: Settled) -> None:
    sensor = sensor_of()
    trigger = defers(sensor)
    assert isinstance(trigger, PoolTrigger)
    assert sensor.deferrable
    other = in_dag(FileSensor, "other", filepath="/never", deferrable=False)
    assert isinstance(defers(other), PoolTrigger)
    with settled.pool.database.engine.begin() as connection:
        groups = connection.exec_driver_sql("SELECT members, poke_context FROM poke_group").all()
    assert [members for members, _ in groups] == [2]


def test_a_default_of_airflow_makes_it_deferrable(settled: Settled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FileSensor.__init__.__wrapped__.__kwdefaults__, "deferrable", True)  # type: ignore[attr-defined]
    sensor = in_dag(FileSensor, filepath="/never")
    apply_policies(sensor)
    assert sensor.deferrable
    assert isinstance(defers(sensor), PoolTrigger)
    assert isinstance(defers(in_dag(FileSensor, "other", filepath="/never", deferrable=False)), PoolTrigger)
    with settled.pool.database.engine.begin() as connection:
        assert connection.exec_driver_sql("SELECT members FROM poke_group").scalars().all() == [2]


def test_what_holds_already_ends_at_once(tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    sensor = sensor_of(filepath=str(tmp_path / "there"))
    assert as_runner(sensor, "execute", context_of(sensor)) is None
    assert sensor.deferrable


@pytest.mark.parametrize(
    ("settings", "arguments"),
    [
        ({"deferrable": "native"}, {}),
        ({"enabled": False}, {}),
        ({"exclude": ("dag",)}, {}),
        ({}, {"mode": "reschedule"}),
        ({}, {"run_as_user": "x"}),
    ],
    ids=["native", "off", "excluded", "reschedule", "not poolable"],
)
def test_defers_by_itself(settled: Settled, settings: dict[str, Any], arguments: dict[str, Any]) -> None:
    settled.set(**settings)
    assert isinstance(defers(sensor_of(**arguments)), FileTrigger)


@pytest.mark.parametrize("first_poke", ["worker", "pool"])
def test_defers_by_itself_if_the_pool_cannot_be_reached(
    settled: Settled, monkeypatch: pytest.MonkeyPatch, first_poke: str
) -> None:
    struck = list[str]()

    def away(*_: Any, **__: Any) -> Any:
        struck.append("asked")
        raise Unreachable("away")

    settled.set(first_poke=first_poke)
    monkeypatch.setattr(settled.pool, "register_many", away)
    assert isinstance(defers(sensor_of()), FileTrigger)
    assert struck == ["asked"]


def test_defers_by_itself_if_its_poke_needs_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FileSensor, "poke", lambda _, context: bool(context.get("never")))
    assert isinstance(defers(sensor_of()), FileTrigger)


def test_defers_by_itself_if_its_constructor_behaves_otherwise(
    settled: Settled, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"{Otherwise.__module__}.Otherwise"
    assert isinstance(defers(sensor_of(Otherwise)), FileTrigger)  # a class that was not reviewed
    monkeypatch.setattr(known_sensors, "_ENDS_ALIKE", known_sensors._ENDS_ALIKE | {path})
    pool = Pool(settled.pool.settings.model_copy(update={"sensors_enabled": (path,)}))
    monkeypatch.setattr(deferral, "pool", lambda: pool)
    assert isinstance(defers(sensor_of(Otherwise)), FileTrigger)
    pool.close()


@pytest.mark.parametrize("is_handed_back", [False, True])
def test_one_that_never_defers_goes_on_natively(monkeypatch: pytest.MonkeyPatch, is_handed_back: bool) -> None:
    """`HttpSensor` keeps its slot with a response_check, whatever deferrable says."""
    answers = [True, False]
    monkeypatch.setattr(HttpSensor, "poke", lambda *_: answers.pop())
    sensor = sensor_of(HttpSensor, endpoint="x", response_check=lambda _: True, poke_interval=0.1)
    if is_handed_back:
        assert resume(sensor, InstanceResult(State.CANCELLED, Ending.HANDED_BACK, "drained").as_payload()) is None
    else:
        assert as_runner(sensor, "execute", context_of(sensor)) is None
    assert not answers


def test_a_class_that_ends_otherwise_defers_by_itself() -> None:
    sensor = sensor_of(TimeDeltaSensor, delta=dt.timedelta(days=1))
    now = dt.datetime.now(dt.UTC)
    trigger = defers(sensor, context_of(sensor, data_interval_end=now, dag_run=None))
    assert not isinstance(trigger, PoolTrigger)


@pytest.mark.parametrize("settings", [{}, {"deferrable": "native"}, {"enabled": False}], ids=str)
def test_what_waits_in_the_pool_ends_as_one_that_is_not_deferrable(settled: Settled, settings: dict[str, Any]) -> None:
    sensor = sensor_of()
    settled.set(**settings)
    assert resume(sensor, InstanceResult(State.SUCCESS, Ending.LANDED).as_payload()) is None
    with pytest.raises(AirflowSensorTimeout):
        resume(sensor, InstanceResult(State.FAILED, Ending.TIMEOUT, "late").as_payload())
    assert sensor.deferrable


def test_what_is_handed_back_defers_by_itself() -> None:
    sensor = sensor_of(timeout=1_000)
    event = InstanceResult(State.CANCELLED, Ending.HANDED_BACK, "drained").as_payload()
    with pytest.raises(TaskDeferred) as deferred:
        as_runner(
            sensor,
            "resume_execution",
            patch.RESUME,
            {"event": event, "started": dt.datetime.now().timestamp() - 400},
            context_of(sensor),
        )
    assert isinstance(deferred.value.trigger, FileTrigger)
    assert isinstance(deferred.value.timeout, dt.timedelta)
    assert 500 < deferred.value.timeout.total_seconds() < 600


def test_a_trigger_of_its_own_that_fails_fails_its_try(settled: Settled) -> None:
    """Not so while it is in the pool: then it defers by itself, once."""
    sensor = sensor_of()
    context = context_of(sensor)
    failed = (patch._GIVEN_UP, {"error": "Trigger failure", "traceback": ["x"]})
    with pytest.raises(TaskDeferralError):
        as_runner(sensor, "resume_execution", *failed, context)
    assert isinstance(defers(sensor, context), PoolTrigger)
    with pytest.raises(TaskDeferred) as deferred:
        as_runner(sensor, "resume_execution", *failed, context)
    assert isinstance(deferred.value.trigger, FileTrigger)
    with pytest.raises(TaskDeferralError):
        as_runner(sensor, "resume_execution", *failed, context)


def test_a_mapped_one_waits_in_the_pool() -> None:
    with DAG("mapped", schedule=None) as dag:
        FileSensor.partial(task_id="wait", deferrable=True).expand(filepath=["a", "b"])
    task: Any = dag.get_task("wait")
    apply_policies(task)
    assert isinstance(defers(task.unmap({"filepath": "/never"})), PoolTrigger)


def test_its_blueprint_is_that_of_one_that_is_not_deferrable(settled: Settled) -> None:
    settled.set(start="scheduler")
    texts = list[str]()
    for deferrable in (True, False):
        sensor = in_dag(FileSensor, filepath="/{{ ds }}", deferrable=deferrable)
        parse.give_blueprint(sensor)
        assert sensor.start_from_trigger
        assert sensor.deferrable is deferrable
        texts.append(Blueprint.read(sensor.start_trigger_args.trigger_kwargs["blueprint"]).as_text())
    assert texts[0] == texts[1]


@pytest.mark.parametrize("arguments", [{"start_from_trigger": True}, {"mode": "reschedule"}], ids=str)
def test_one_that_defers_by_itself_gets_no_blueprint(settled: Settled, arguments: dict[str, Any]) -> None:
    settled.set(start="scheduler")
    sensor = in_dag(FileSensor, filepath="/x", deferrable=True, **arguments)
    before = sensor.start_trigger_args
    parse.give_blueprint(sensor)
    assert sensor.start_trigger_args is before


def test_one_that_cannot_begin_without_a_worker_waits_in_the_pool_from_there(settled: Settled) -> None:
    settled.set(start="scheduler")
    with pytest.raises(TaskDeferred) as deferred:
        resume(sensor_of(), {START_ON_WORKER: "in doubt"})
    assert isinstance(deferred.value.trigger, PoolTrigger)
    settled.set(start="scheduler", deferrable="native")
    with pytest.raises(TaskDeferred) as deferred:
        resume(sensor_of(), {START_ON_WORKER: "in doubt"})
    assert isinstance(deferred.value.trigger, FileTrigger)


def _poolable() -> Iterator[Any]:
    for path in sorted(proved().poolable):
        module, _, name = path.rpartition(".")
        yield getattr(importlib.import_module(module), name)


ARGUMENTS: dict[str, Any] = {
    "target_time": dt.time(23, 59, 59),
    "bucket_key": "s3://bucket/key",
    "target_state": "running",
    "max_retries": 3,
}


@pytest.mark.parametrize("path", sorted(known_sensors._ENDS_ALIKE), ids=lambda path: path.rpartition(".")[2])
def test_each_class_that_ends_alike_waits_in_the_pool(
    settled: Settled, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    module, _, name = path.rpartition(".")
    cls = getattr(importlib.import_module(module), name)
    monkeypatch.setattr(cls, "poke", lambda *_: False)
    parameters = inspect.signature(inspect.unwrap(cls.__init__)).parameters
    needed = {
        name
        for name, one in parameters.items()
        if name != "self" and one.default is one.empty and one.kind in (one.KEYWORD_ONLY, one.POSITIONAL_OR_KEYWORD)
    }
    sensor = sensor_of(cls, **{name: ARGUMENTS.get(name, "x") for name in needed})
    now = dt.datetime.now(dt.UTC)
    assert isinstance(defers(sensor, context_of(sensor, logical_date=now)), PoolTrigger)
    assert sensor.deferrable


def test_a_time_of_day_begins_without_a_worker(settled: Settled) -> None:
    settled.set(start="scheduler")
    texts = []
    for deferrable in (True, False):
        sensor = in_dag(TimeSensor, target_time=dt.time(3), deferrable=deferrable)
        parse.give_blueprint(sensor)
        assert sensor.start_from_trigger
        texts.append(Blueprint.read(sensor.start_trigger_args.trigger_kwargs["blueprint"]))
    assert replace(texts[0], arguments={}) == replace(texts[1], arguments={})


def test_the_classes_that_end_alike_return_no_value() -> None:
    """Of the installed providers: no method by which they resume returns a value, nor is a poke one."""
    seen = 0
    for cls in _poolable():
        if known_sensors.reason_to_defer(cls) is not None:
            continue
        source = textwrap.dedent(inspect.getsource(inspect.unwrap(cls.execute)))
        assert "'poke'" not in source.replace('"', "'"), cls
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls.execute_complete)))
        returned = [node.value for node in ast.walk(tree) if isinstance(node, ast.Return) and node.value is not None]
        assert all(isinstance(value, ast.Constant) and value.value is None for value in returned), cls
        seen += 1
    assert seen == len(known_sensors._ENDS_ALIKE)


def test_its_execution_timeout_counts_no_time_in_the_pool(settled: Settled) -> None:
    """Natively Airflow counts it for each process of the task, and not while a trigger waits."""
    sensor = sensor_of(execution_timeout=dt.timedelta(seconds=30), timeout=1_000)
    with pytest.raises(TaskDeferred) as deferred:
        as_runner(sensor, "execute", context_of(sensor))
    assert isinstance(deferred.value.trigger, PoolTrigger)
    whole = 1_000 + settled.ours.deferral_grace
    assert whole - 60 < deferred.value.timeout.total_seconds() <= whole  # type: ignore[union-attr]
    assert sensor.execution_timeout == dt.timedelta(seconds=30)
    with settled.pool.database.engine.begin() as connection:
        (told,) = connection.exec_driver_sql("SELECT execution_context FROM sensor_instance").scalars()
    assert json.loads(told).get("execution_timeout") is None


def test_one_that_is_handed_back_has_its_execution_timeout_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As natively, where the process in which it defers has all of it."""
    limits = list[Any]()
    own_poke = FileSensor.poke

    def poke(sensor: Any, context: Any) -> Any:
        limits.append(sensor.execution_timeout)
        return own_poke(sensor, context)

    monkeypatch.setattr(FileSensor, "poke", poke)
    monkeypatch.setattr(task_runtime, "execution_timeout", lambda left: pytest.fail(f"it has {left} s"))
    sensor = sensor_of(execution_timeout=dt.timedelta(seconds=30), timeout=1_000)
    event = InstanceResult(State.CANCELLED, Ending.HANDED_BACK, "drained").as_payload()
    waited = {"event": event, "started": dt.datetime.now().timestamp() - 400}
    with pytest.raises(TaskDeferred) as deferred:
        as_runner(sensor, "resume_execution", patch.RESUME, waited, context_of(sensor))
    assert isinstance(deferred.value.trigger, FileTrigger)
    assert limits == [dt.timedelta(seconds=30)]


def test_with_an_execution_timeout_it_gets_no_blueprint(settled: Settled) -> None:
    """Airflow counts that for a trigger from which a task starts."""
    settled.set(start="scheduler")
    sensor = in_dag(FileSensor, filepath="/x", deferrable=True, execution_timeout=dt.timedelta(hours=1))
    parse.give_blueprint(sensor)
    assert not sensor.start_from_trigger


def test_the_execution_timeout_may_be_the_limit_of_its_trigger() -> None:
    hour = dt.timedelta(hours=1)
    for given, why in (
        ({"max_retries": 3, "execution_timeout": hour}, None),
        ({"max_retries": 0, "execution_timeout": hour}, "is the time limit of its trigger"),
        ({"max_retries": 0}, None),
    ):
        sensor: Any = BatchSensor(task_id="wait", job_id="x", deferrable=True, **given)
        if why is None:
            own_deferral.check(sensor)
        else:
            with pytest.raises(NotPoolable, match=why):
                own_deferral.check(sensor)


def test_those_that_hand_on_their_execution_timeout_are_known() -> None:
    """`ExternalTaskSensor` does if it has no timeout: each sensor has one."""
    naming = {
        cls.__name__
        for cls in _poolable()
        if known_sensors.reason_to_defer(cls) is None
        and "self.execution_timeout" in inspect.getsource(inspect.unwrap(cls.execute))
    }
    assert naming == {"BatchSensor", "ExternalTaskSensor"}


def test_a_poke_that_waits_for_the_end_of_its_job_keeps_no_slot() -> None:
    """`EmrContainerSensor` looks at its job until that has ended: deferrable, it never pokes."""
    assert "poll_query_status" in inspect.getsource(EmrContainerSensor.poke)
    assert known_sensors.reason_to_defer(EmrContainerSensor) is not None
