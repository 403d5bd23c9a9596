"""A sensor that starts without a worker, from the scheduler's deferral to its end: Airflow's own code and database."""

import asyncio
import datetime as dt
import gc
import json
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pendulum
import pytest

pytest.importorskip("airflow")

from airflow.jobs import triggerer_job_runner
from airflow.jobs.triggerer_job_runner import ToTriggerSupervisor, TriggerRunner, TriggerRunnerSupervisor
from airflow.models.dagbag import DBDagBag
from airflow.models.dagrun import DagRun
from airflow.models.db_callback_request import DbCallbackRequest
from airflow.models.taskinstance import TaskInstance
from airflow.models.trigger import Trigger
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.providers.standard.sensors.filesystem import FileSensor
from airflow.providers.standard.sensors.time import TimeSensor
from airflow.sdk import DAG, Param
from airflow.sdk.execution_time.comms import _RequestFrame
from airflow.triggers.base import TaskSuccessEvent
from airflow.utils.session import create_session
from pydantic import TypeAdapter
from sqlalchemy import func, select, text

from harness.servers import Elsewhere, Server
from harness.until import PATIENCE, until
from sensorpool import Pool
from sensorpool.airflow.compat import task_runtime
from sensorpool.airflow.configuration import AIRFLOW_SENSORS, AirflowSettings
from sensorpool.airflow.errors import REASONS_TO_BEGIN
from sensorpool.airflow.result import START_ON_WORKER, START_ON_WORKER_KIND
from sensorpool.airflow.start import one_task, parse, registrar, registration, renderers, trigger
from sensorpool.airflow.task import (
    begun_without_worker,
    deferral,
    patch,
    poolable,
    reschedule_condition,
    reschedule_limits,
)
from sensorpool.airflow.triggerer import direct_success
from sensorpool.airflow.triggerer.notifier import Notifier
from sensorpool.model.states import State
from tests.airflow.deployment import notifier_of_triggerer
from tests.airflow.metadata import Metadata
from tests.airflow.versions import deserialize

FILE_SENSOR = f"{FileSensor.__module__}.FileSensor"
DATES = (dt.datetime(2026, 3, 1, tzinfo=dt.UTC) + dt.timedelta(days=day) for day in count())


class Log:
    """A log file of a trigger that is never written."""

    def __init__(self, **_: Any) -> None:
        """Take what Airflow gives."""


class Supervisor:
    """As much of the triggerer's supervisor as makes a workload."""

    id, job = "1", None

    def __init__(self) -> None:
        self.logger_cache: dict[int, Any] = {}


class Starts:
    """A DAG with sensors that have a blueprint in Airflow's database, and a triggerer that serves them."""

    def __init__(self, pool: Pool, metadata: Metadata) -> None:
        self.pool = pool
        self.metadata = metadata

    def dag(
        self, *, others: int = 0, with_blueprint: bool = True, filepath: str = "/data/{{ run_id }}", **arguments: Any
    ) -> Any:
        """Write a DAG as the DAG processor does."""
        with DAG("starts", schedule=None, params={"x": Param("a", type="string")}) as dag:
            sensor = FileSensor(task_id="wait", filepath=filepath, **arguments)
            sensor >> [EmptyOperator(task_id=f"other{number}") for number in range(others)]
        dag.relative_fileloc = "starts.py"
        if with_blueprint:
            parse.give_blueprint(sensor)
            assert sensor.start_from_trigger
        return self.metadata.add_dag(dag)

    def run(self, dag: Any, *, is_dated: bool = True) -> str:
        """Start a run, and have the scheduler take up its sensor."""
        run_id = self.metadata.add_run(dag, next(DATES) if is_dated else None)
        self.schedule(dag, run_id)
        return run_id

    def schedule(self, dag: Any, run_id: str) -> None:
        """Have the scheduler take up the sensor of a run."""
        with create_session() as session:
            run = session.scalars(select(DagRun).where(DagRun.run_id == run_id, DagRun.dag_id == "starts")).one()
            task = run.get_task_instance("wait", session=session)
            assert task is not None
            task.task = dag.get_task("wait")
            run.schedule_tis([task], session=session)
        assert self.task(run_id).state == "deferred"

    def task(self, run_id: str) -> Any:
        """Return the task instance of the sensor."""
        with create_session() as session:
            one = (TaskInstance.dag_id == "starts", TaskInstance.run_id == run_id, TaskInstance.task_id == "wait")
            return session.scalars(select(TaskInstance).where(*one)).one()

    def workload(self, run_id: str) -> Any:
        """Return what the triggerer's supervisor sends to its runner."""
        trigger_id = self.task(run_id).trigger_id
        with create_session() as session:
            row = Trigger.bulk_fetch({trigger_id}, session=session)[trigger_id]
            made = TriggerRunnerSupervisor._create_workload(
                Supervisor(),
                row,
                DBDagBag(),
                lambda ti: f"{ti.run_id}.log",
                session=session,  # type: ignore[arg-type]
            )
        return type(made).model_validate_json(made.model_dump_json())

    def serve(self, workload: Any, while_it_waits: Callable[[], object] = lambda: None) -> dict[str, Any] | None:
        """Run a trigger as the triggerer does; return what its task resumes with, None if it has ended."""

        async def serve() -> Any:
            runner = TriggerRunner()
            runner.to_create.append(workload)
            await runner.create_triggers()
            assert not runner.failed_triggers
            await asyncio.to_thread(while_it_waits)
            async with asyncio.timeout(PATIENCE):
                await runner.triggers[workload.id]["task"]
            return runner.process_trigger_events([workload.id])

        frame = _RequestFrame(id=1, body=asyncio.run(serve()).model_dump()).as_bytes()
        received = msgspec.msgpack.Decoder(_RequestFrame).decode(frame[4:])
        message: Any = TypeAdapter(ToTriggerSupervisor).validate_python(received.body)
        (entry,) = message.events
        Trigger.submit_event(trigger_id=entry.trigger_id, event=entry.event)
        task = self.task(workload.ti.run_id)
        if task.state == "success":
            return None
        assert task.state == "scheduled"
        found: Any = deserialize(task.next_kwargs)
        event: dict[str, Any] = found["event"]
        return event

    def instances(self, run_id: str) -> list[Any]:
        """Return the instances of a run in the pool."""
        with self.pool.database.engine.begin() as connection:
            return list(connection.execute(text("SELECT * FROM sensor_instance WHERE run_id = :run"), {"run": run_id}))

    def land(self, run_id: str, **columns: Any) -> None:
        """Have the pool end the instance of a run, once it is there."""
        until("the instance", lambda: self.instances(run_id))
        ended = {"state": "success", "ending": "landed", "settled_at": 1} | columns
        given = ", ".join(f"{name} = :{name}" for name in ended)
        with self.pool.database.engine.begin() as connection:
            connection.execute(text(f"UPDATE sensor_instance SET {given} WHERE run_id = :run"), ended | {"run": run_id})


@pytest.fixture(scope="module")
def served(
    postgres_server: Server | Elsewhere, postgres_template: str, redis_server: Server | Elsewhere
) -> Iterator[Notifier]:
    settings = AirflowSettings(enabled=True, start="scheduler", resume_hold=0.0)
    servers = postgres_server, postgres_template, redis_server
    with (
        notifier_of_triggerer(*servers, settings, sensors_enabled=AIRFLOW_SENSORS) as made,
        pytest.MonkeyPatch.context() as context,
    ):
        context.setattr(deferral, "airflow_settings", lambda: settings)
        context.setattr(registration, "airflow_settings", lambda: settings)
        context.setattr(trigger, "airflow_settings", lambda: settings)
        context.setattr(registrar.Registrar, "_of_processes", {})
        context.setattr(triggerer_job_runner, "TriggerLoggingFactory", Log)
        context.setattr(task_runtime, "has_listeners", lambda: False)
        context.setattr(TriggerRunnerSupervisor, "_create_workload", TriggerRunnerSupervisor._create_workload)
        one_task.install(triggerer_job_runner)
        direct_success.install(patch.RESUME)
        yield made


@pytest.fixture
def starts(served: Notifier, airflow_metadata: Metadata) -> Starts:
    return Starts(served.pool, airflow_metadata)


def test_a_success_needs_no_worker(starts: Starts) -> None:
    run_id = starts.run(starts.dag())
    assert starts.serve(starts.workload(run_id), lambda: starts.land(run_id)) is None
    (instance,) = starts.instances(run_id)
    task = starts.task(run_id)
    assert (instance.dag_id, instance.task_id, instance.try_number) == ("starts", "wait", 1)
    assert instance.external_id == str(task.id)
    assert task.try_number == 1


def test_a_direct_success_has_no_dag_file_parsed(starts: Starts) -> None:
    """Airflow's dag processor parses the whole file for a request of which it makes nothing. One of another stays."""

    def requests() -> int:
        with create_session() as session:
            return session.scalar(select(func.count()).select_from(DbCallbackRequest)) or 0

    before = requests()
    run_id = starts.run(starts.dag())
    assert starts.serve(starts.workload(run_id), lambda: starts.land(run_id)) is None
    assert requests() == before
    foreign = starts.run(starts.dag())
    with create_session() as session:
        task = session.merge(starts.task(foreign))
        task.next_method, trigger_id = "execute_complete", task.trigger_id
    Trigger.submit_event(trigger_id=trigger_id, event=TaskSuccessEvent())
    assert starts.task(foreign).state == "success"
    assert requests() == before + 1


def test_the_condition_is_that_of_a_worker(starts: Starts) -> None:
    """Sensors by both ways wait for the same condition in one group."""
    dag = starts.dag(filepath="/same/{{ params.x }}")
    runs = [starts.run(dag) for _ in range(2)]
    for run_id in runs:
        starts.serve(starts.workload(run_id), lambda run_id=run_id: starts.land(run_id))
    condition = {"filepath": "/same/a"}
    by_worker = starts.pool.register(FILE_SENSOR, condition)
    (first,), (second,) = map(starts.instances, runs)
    assert first.hashcode == second.hashcode == by_worker.hashcode


@pytest.mark.parametrize(
    "columns",
    [{"state": "failed", "ending": "timeout", "reason": "late"}, {"xcom_value": "[1]"}],
    ids=["timeout", "a value"],
)
def test_another_end_resumes_once(starts: Starts, columns: dict[str, Any]) -> None:
    run_id = starts.run(starts.dag())
    event = starts.serve(starts.workload(run_id), lambda: starts.land(run_id, **columns))
    assert event is not None
    assert event["started"] == pytest.approx(starts.instances(run_id)[0].start_date / 1000, abs=PATIENCE)
    assert json.loads(event["as_started"])["values"]["filepath"] == f"/data/{run_id}"
    assert starts.task(run_id).next_method == patch.RESUME


def test_a_rescheduled_sensor_takes_its_condition_along(starts: Starts) -> None:
    """As on a worker: where it resumes, its condition and its limits are compared with those of then."""
    run_id = starts.run(starts.dag(mode="reschedule", soft_fail=True))
    late = {"state": "failed", "ending": "timeout", "reason": "late"}
    event = starts.serve(starts.workload(run_id), lambda: starts.land(run_id, **late))
    with DAG("starts", schedule=None):
        sensor: Any = FileSensor(task_id="wait", filepath=f"/data/{run_id}", mode="reschedule", soft_fail=True)
    condition = poolable.unchecked_condition_of(sensor, {})
    resumed = reschedule_condition.resume_arguments(condition) | reschedule_limits.resume_arguments(sensor)
    assert event is not None
    assert begun_without_worker.saved_in(event) == resumed


def test_a_rescheduled_sensor_ends_directly(starts: Starts) -> None:
    run_id = starts.run(starts.dag(mode="reschedule"))
    assert starts.serve(starts.workload(run_id), lambda: starts.land(run_id)) is None


def test_a_new_triggerer_knows_the_condition_that_the_last_one_registered(starts: Starts) -> None:
    run_id = starts.run(starts.dag(mode="reschedule", soft_fail=True))
    workload = starts.workload(run_id)

    async def is_killed() -> None:
        runner = await waiting_runner(starts, workload)
        runner.triggers[workload.id]["task"].cancel()

    late = {"state": "failed", "ending": "timeout", "reason": "late"}
    asyncio.run(is_killed())
    joined = starts.serve(workload, lambda: starts.land(run_id, **late))
    other = starts.run(starts.dag(mode="reschedule", soft_fail=True, filepath=f"/data/{run_id}"))
    registered = starts.serve(starts.workload(other), lambda: starts.land(other, **late))
    assert joined is not None
    assert registered is not None
    assert begun_without_worker.saved_in(joined) == begun_without_worker.saved_in(registered)
    assert begun_without_worker.saved_in(joined).keys() == {"condition", "limits"}


def test_one_that_had_ended_before_is_held(starts: Starts, served: Notifier, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its task may have been on a worker in this try a moment ago: a second start there would be failed by Airflow."""
    run_id = starts.run(starts.dag())
    workload = starts.workload(run_id)

    async def is_killed() -> None:
        runner = await waiting_runner(starts, workload)
        runner.triggers[workload.id]["task"].cancel()

    asyncio.run(is_killed())
    starts.land(run_id, state="cancelled", ending="handed_back", reason="its worker asks")
    monkeypatch.setattr(served, "settings", served.settings.model_copy(update={"resume_hold": 1.5}))
    began = time.monotonic()
    event = starts.serve(workload)
    assert time.monotonic() - began >= 1.5
    assert event is not None
    assert (event["ending"], begun_without_worker.start_of(event) > 0) == ("handed_back", True)


def test_the_execution_timeout_is_the_pools(starts: Starts) -> None:
    run_id = starts.run(starts.dag(execution_timeout=dt.timedelta(hours=1)))
    starts.serve(starts.workload(run_id), lambda: starts.land(run_id))
    (instance,) = starts.instances(run_id)
    assert json.loads(instance.execution_context)["execution_timeout"] == 3600
    assert starts.task(run_id).trigger_timeout <= starts.task(run_id).start_date + dt.timedelta(hours=1)


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/Anchorage"])
def test_a_time_of_day_is_that_of_its_start(starts: Starts, zone: str) -> None:
    """As on a worker, whose constructor combines it with the date that it is there in the timezone of the DAG."""
    tz = pendulum.timezone(zone)
    with DAG("starts", schedule=None, start_date=dt.datetime(2026, 1, 1, tzinfo=tz)) as dag:
        sensor: Any = TimeSensor(task_id="wait", target_time=dt.time(12))
    dag.relative_fileloc = "starts.py"
    parse.give_blueprint(sensor)
    serialized = starts.metadata.add_dag(dag)
    at = {dt.datetime.combine(dt.datetime.now(tz), dt.time(12), tz)}
    run_id = starts.run(serialized)
    starts.serve(starts.workload(run_id), lambda: starts.land(run_id))
    at.add(dt.datetime.combine(dt.datetime.now(tz), dt.time(12), tz))  # midnight may have passed meanwhile
    (instance,) = starts.instances(run_id)
    assert dt.datetime.fromisoformat(json.loads(instance.poke_context)["target_time"]) in at


async def waiting_runner(starts: Starts, workload: Any) -> TriggerRunner:
    """Return a triggerer's runner whose sensor has been registered."""
    runner = TriggerRunner()
    runner.to_create.append(workload)
    await runner.create_triggers()
    await asyncio.to_thread(until, "the instance", lambda: starts.instances(workload.ti.run_id))
    return runner


def test_a_trigger_that_waits_holds_no_dag(starts: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks: list[weakref.ref[Any]] = []
    native = TriggerRunner.create_runtime_ti

    def create_runtime_ti(*arguments: Any) -> Any:
        made = native(*arguments)
        tasks.append(weakref.ref(made.task))
        return made

    monkeypatch.setattr(TriggerRunner, "create_runtime_ti", staticmethod(create_runtime_ti))
    run_id = starts.run(starts.dag())
    workload = starts.workload(run_id)
    tasks.clear()  # the supervisor has tried it out

    def is_gone() -> bool:
        gc.collect()
        return tasks[0]() is None

    async def waits() -> None:
        runner = await waiting_runner(starts, workload)
        await asyncio.to_thread(until, "the end of its DAG", is_gone)
        starts.land(run_id)
        await runner.triggers[workload.id]["task"]

    asyncio.run(waits())
    assert len(tasks) == 1


@pytest.mark.parametrize("context", [{}, {"dag_data": None, "dag_run_data": None}], ids=["context", "no context"])
def test_a_new_triggerer_joins_what_the_last_one_registered(starts: Starts, context: dict[str, Any]) -> None:
    run_id = starts.run(starts.dag())
    workload = starts.workload(run_id)

    async def is_killed() -> None:
        runner = await waiting_runner(starts, workload)
        runner.triggers[workload.id]["task"].cancel()

    asyncio.run(is_killed())
    assert starts.task(run_id).state == "deferred"
    starts.land(run_id)
    event = starts.serve(workload.model_copy(update=context))
    assert len(starts.instances(run_id)) == 1
    assert event is None


@pytest.mark.parametrize(
    ("waits", "state"), [(False, State.CANCELLED), (True, State.SENSING)], ids=["cleared", "moved"]
)
def test_cancels_when_its_task_is_cleared(
    starts: Starts, served: Notifier, monkeypatch: pytest.MonkeyPatch, waits: bool, state: State
) -> None:
    async def answer(ti: Any) -> bool:
        assert ti.run_id == run_id
        return waits

    monkeypatch.setattr(served.task_states, "waits", answer)
    run_id = starts.run(starts.dag())
    workload = starts.workload(run_id)

    async def is_cleared() -> None:
        runner = await waiting_runner(starts, workload)
        runner.to_cancel.append(workload.id)
        async with asyncio.timeout(PATIENCE):
            await runner.cancel_triggers()
            while not runner.triggers[workload.id]["task"].done():
                await asyncio.sleep(0.01)

    asyncio.run(is_cleared())
    assert [row.state for row in starts.instances(run_id)] == [state]


def goes_to_a_worker(
    starts: Starts, run_id: str, why: str, workload: Any = None, kinds: Collection[str] = REASONS_TO_BEGIN
) -> None:
    event = starts.serve(workload or starts.workload(run_id))
    assert event is not None
    assert event.keys() == {START_ON_WORKER, START_ON_WORKER_KIND}
    assert why in event[START_ON_WORKER]
    assert event[START_ON_WORKER_KIND] in kinds
    assert kinds <= REASONS_TO_BEGIN
    assert not starts.instances(run_id)


def test_those_that_go_to_workers_take_turns(starts: Starts, served: Notifier, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool that is away sends all to workers at once, and Airflow's triggerer writes events one by one."""
    delays = [0.4, 0.0]
    monkeypatch.setattr(served.pace, "delay", lambda _: delays.pop(0))
    run_id = starts.run(starts.dag(filepath="/data/{{ params.none }}"))
    began = time.monotonic()
    goes_to_a_worker(starts, run_id, "cannot be rendered")
    assert time.monotonic() - began >= 0.4
    assert delays == [0.0]


def test_no_context(starts: Starts) -> None:
    run_id = starts.run(starts.dag())
    workload = starts.workload(run_id).model_copy(update={"dag_data": None, "dag_run_data": None})
    goes_to_a_worker(starts, run_id, "no template context", workload, {"context"})


def test_an_edited_file_does_not_matter_to_what_was_deferred(starts: Starts) -> None:
    run_id = starts.run(starts.dag(filepath="/before/{{ run_id }}"))
    starts.dag(with_blueprint=False, filepath="/after/{{ run_id }}")
    assert starts.serve(starts.workload(run_id), lambda: starts.land(run_id)) is None
    (instance,) = starts.instances(run_id)
    group = starts.pool.register(FILE_SENSOR, {"filepath": f"/before/{run_id}"})
    assert group.hashcode == instance.hashcode


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"filepath": "/data/{{ params.none }}"}, "cannot be rendered here: UndefinedError"),
        ({"filepath": "/data/{{ run_id / 0 }}"}, "cannot be rendered here: TypeError"),
        ({"filepath": "/data/{{ '\\0' }}"}, "NUL"),
    ],
)
def test_a_template_that_fails(starts: Starts, arguments: dict[str, Any], why: str) -> None:
    goes_to_a_worker(starts, starts.run(starts.dag(**arguments)), why, kinds={"rendering", "pool", "not_poolable"})


def test_a_run_without_a_logical_date(starts: Starts) -> None:
    run_id = starts.run(starts.dag(filepath="/data/{{ ds }}"), is_dated=False)
    goes_to_a_worker(starts, run_id, "cannot be rendered here: UndefinedError")


def test_a_class_that_is_not_enabled_any_more(starts: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = starts.run(starts.dag())
    monkeypatch.setattr(starts.pool, "settings", starts.pool.settings.model_copy(update={"sensors_enabled": ()}))
    goes_to_a_worker(starts, run_id, "[sensorpool] sensors_enabled does not list")


def test_a_pool_that_does_not_answer(starts: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = starts.run(starts.dag())

    def away(*_: Any, **__: Any) -> Any:
        raise registrar.Unreachable("it is away")

    monkeypatch.setattr(starts.pool, "register_checked", away)
    monkeypatch.setattr(trigger, "LIMIT", 0.5)
    goes_to_a_worker(starts, run_id, "it is away", kinds={"pool"})


def test_a_pool_that_does_not_answer_for_a_moment(starts: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = starts.run(starts.dag())
    answers, failures = starts.pool.register_checked, iter([registrar.Unreachable("it is away")] * 2)

    def away(checked: Any) -> Any:
        for failure in failures:
            raise failure
        return answers(checked)

    monkeypatch.setattr(starts.pool, "register_checked", away)
    monkeypatch.setattr(trigger, "RETRY_AFTER", 0.01)
    assert starts.serve(starts.workload(run_id), lambda: starts.land(run_id)) is None
    assert list(failures) == [], "the fault has struck"
    assert len(starts.instances(run_id)) == 1


def test_a_start_that_takes_too_long(starts: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = starts.run(starts.dag())
    monkeypatch.setattr(trigger, "LIMIT", 0.05)

    async def never(_: Any) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(Notifier, "ready", never)
    goes_to_a_worker(starts, run_id, "could not be registered")


@pytest.mark.parametrize("has_ended", [True, False])
def test_the_run_that_was_made_again_under_its_name(starts: Starts, has_ended: bool) -> None:
    """It waits in the pool again, unless an instance of its earlier life still does."""
    run_id = starts.run(starts.dag())
    starts.serve(starts.workload(run_id), lambda: starts.land(run_id))
    with starts.pool.database.engine.begin() as connection:
        connection.execute(text("UPDATE sensor_instance SET external_id = '0' WHERE run_id = :run"), {"run": run_id})
        if not has_ended:
            connection.execute(
                text("UPDATE sensor_instance SET state = 'sensing' WHERE run_id = :run"), {"run": run_id}
            )
    starts.metadata.set_states("starts", run_id, {("wait", -1): None})
    with create_session() as session:
        session.execute(text("UPDATE task_instance SET try_number = 0 WHERE run_id = :run"), {"run": run_id})
    starts.schedule(starts.dag(), run_id)
    if has_ended:

        def land() -> None:
            until("its own instance", lambda: [each.state for each in starts.instances(run_id)] == ["sensing"])
            starts.land(run_id)

        assert starts.serve(starts.workload(run_id), land) is None
        return
    event = starts.serve(starts.workload(run_id))
    assert event is not None
    assert "the pool knows a task of the same name and run" in event[START_ON_WORKER]


@pytest.mark.parametrize("blueprint", [None, "", "[]", "{}", "{", "null", 3, '{"op_classpath": "os.system"}'], ids=str)
def test_an_odd_blueprint_ends_no_triggerer(starts: Starts, blueprint: Any) -> None:
    run_id = starts.run(starts.dag())
    with create_session() as session:
        row = session.get(Trigger, starts.task(run_id).trigger_id)
        assert row is not None
        row.encrypted_kwargs = Trigger.encrypt_kwargs({"blueprint": blueprint, "other": 1})
    goes_to_a_worker(starts, run_id, "cannot be read")


def test_one_of_many_that_is_refused_holds_up_no_other(starts: Starts, tmp_path: Path) -> None:
    dag = starts.dag(filepath="/data/{{ dag_run.conf.get('x', run_id) }}")
    runs = [starts.run(dag) for _ in range(5)]
    workloads = [starts.workload(run_id) for run_id in runs]
    odd = workloads[2]
    odd.dag_run_data["conf"] = {"x": str(tmp_path / "\0")}

    async def serve() -> None:
        runner = TriggerRunner()
        runner.to_create.extend(workloads)
        await runner.create_triggers()
        for run_id in (*runs[:2], *runs[3:]):
            await asyncio.to_thread(starts.land, run_id)
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(runner.triggers[each.id]["task"] for each in workloads))

    asyncio.run(serve())
    assert [len(starts.instances(run_id)) for run_id in runs] == [1, 1, 0, 1, 1]


def test_a_context_that_cannot_be_made_ends_no_triggerer(starts: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    """A serialized DAG of another version: Airflow's runner ends, with all of its triggers, at that error."""
    run_id = starts.run(starts.dag())
    cut = one_task.with_one_task
    monkeypatch.setattr(one_task, "with_one_task", lambda *arguments: {**cut(*arguments), "__version": 99})  # type: ignore[dict-item]
    workload = starts.workload(run_id)
    assert workload.dag_data is None
    goes_to_a_worker(starts, run_id, "no template context", workload)


@pytest.mark.parametrize("data", [{}, {"dag": {}}, {"dag": {"tasks": [{}]}}, {"dag": {"tasks": []}}], ids=str)
def test_an_odd_serialized_dag_ends_no_triggerer(
    starts: Starts, monkeypatch: pytest.MonkeyPatch, data: dict[str, Any]
) -> None:
    run_id = starts.run(starts.dag())
    cut = one_task.with_one_task
    monkeypatch.setattr(one_task, "with_one_task", lambda _, task_id: cut(data, task_id))
    goes_to_a_worker(starts, run_id, "no template context")


def test_a_triggerer_with_another_interface_is_left_as_it_is() -> None:
    class Supervisor:
        def _create_workload(self, row: Any) -> Any:
            """Take other arguments."""

    was = Supervisor._create_workload
    one_task.install(SimpleNamespace(TriggerRunnerSupervisor=Supervisor, TriggerRunner=TriggerRunner))
    assert Supervisor._create_workload is was
    one_task.install(SimpleNamespace())


def test_a_template_that_ends_its_thread_ends_no_triggerer(starts: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(*_: Any) -> Any:
        raise SystemExit("leave")

    for _ in range(6):  # more than there are threads
        with monkeypatch.context() as context:
            context.setattr(registration.templates, "render", leave)
            goes_to_a_worker(starts, starts.run(starts.dag()), "leave")


def test_a_secrets_backend_that_hangs_holds_up_no_other_sensor(starts: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those that ask for a Variable, the next gets a thread after a moment; those that ask for nothing at once."""
    answers, asked = threading.Event(), []
    render = registration.templates.render

    def ask(value: Any, context: Any) -> Any:
        if "hangs" in str(value):
            asked.append(value)
            answers.wait(PATIENCE)
        return render(value, context)

    monkeypatch.setattr(registration.templates, "render", ask)
    monkeypatch.setattr(renderers, "PATIENCE", 0.2)
    monkeypatch.setenv("AIRFLOW_VAR_PLACE", "here")
    hanging = [starts.run(starts.dag(filepath="/{{ var.value.get('hangs', run_id) }}")) for _ in range(6)]
    hung = [starts.workload(run_id) for run_id in hanging]
    others = []
    for filepath in ("/{{ var.value.place }}", "/data/{{ run_id }}"):
        others.append(starts.run(starts.dag(filepath=filepath)))
    workloads = [*hung, *map(starts.workload, others)]

    async def serve() -> None:
        runner = TriggerRunner()
        runner.to_create.extend(workloads)
        await runner.create_triggers()
        await asyncio.to_thread(until, "those that hang", lambda: len(asked) == len(hung))
        for run_id in others:
            await asyncio.to_thread(starts.land, run_id)
        answers.set()
        for run_id in hanging:
            await asyncio.to_thread(starts.land, run_id)
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(runner.triggers[each.id]["task"] for each in workloads))

    asyncio.run(serve())


def test_threads_for_rendering_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renderers, "PATIENCE", 0.01)
    monkeypatch.setattr(renderers, "AT_MOST", 6)
    monkeypatch.setattr(renderers, "_KEPT", 0.01)
    answers = threading.Event()
    pool = renderers.Renderers("limited")

    def names() -> list[str]:
        return [each.name for each in threading.enumerate() if each.name.startswith("sensorpool-start-limited-")]

    async def run() -> list[Any]:
        calls = [asyncio.ensure_future(pool.run(lambda: answers.wait(PATIENCE))) for _ in range(20)]
        await asyncio.sleep(0.2)
        assert len(names()) == 6
        calls.pop().cancel()
        answers.set()
        return await asyncio.gather(*calls)

    assert asyncio.run(run()) == [True] * 19
    until("the end of those that were added", lambda: len(names()) == renderers.AT_FIRST)


def test_a_round_of_triggers_reads_a_dag_once(starts: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bag lives for a round of the supervisor: the DAG of a run is the same for all of its triggers."""
    runs = [starts.run(starts.dag(filepath=f"/round/{number}")) for number in range(one_task._REMEMBERED + 1)]
    alone = [starts.workload(run_id) for run_id in runs]
    asked: list[Any] = []
    native = DBDagBag.get_serialized_dag_model_for_run
    monkeypatch.setattr(
        DBDagBag,
        "get_serialized_dag_model_for_run",
        lambda bag, dag_run, *, session: (asked.append(dag_run), native(bag, dag_run, session=session))[1],
    )
    bag = DBDagBag()
    with create_session() as session:
        rows = Trigger.bulk_fetch({starts.task(run_id).trigger_id for run_id in runs}, session=session)
        for run_id, expected in zip(runs, alone, strict=True):
            for _ in range(3):
                row = rows[starts.task(run_id).trigger_id]
                made = TriggerRunnerSupervisor._create_workload(
                    Supervisor(),
                    row,
                    bag,
                    lambda ti: f"{ti.run_id}.log",
                    session=session,  # type: ignore[arg-type]
                )
                assert json.loads(made.model_dump_json())["dag_data"] == expected.dag_data
    assert [dag_run.run_id for dag_run in asked] == runs
    assert len(bag.__dict__[one_task._MEMORY]) == one_task._REMEMBERED


def test_a_workload_does_not_grow_with_its_dag(starts: Starts) -> None:
    sizes = []
    for others in (1, 200):
        run_id = starts.run(starts.dag(others=others))
        workload = starts.workload(run_id)
        sizes.append(len(workload.model_dump_json()))
        assert starts.serve(workload, lambda run_id=run_id: starts.land(run_id)) is None
    assert sizes[1] < sizes[0] + 200
    assert sizes[0] < 6_000
