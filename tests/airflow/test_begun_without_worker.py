"""A sensor on its worker whose trigger could not start it in the pool, or has waited there without a worker before."""

import asyncio
import datetime as dt
import time
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import pytest

pytest.importorskip("airflow")

from airflow.sdk import Variable, get_parsing_context
from airflow.sdk.definitions.context import _AIRFLOW_PARSING_CONTEXT_TASK_ID as PARSED_FOR
from airflow.sdk.execution_time import task_runner

from harness.until import PATIENCE
from sensorpool import Pool
from sensorpool.airflow.compat import features, secrets_backends, task_runtime
from sensorpool.airflow.compat.exceptions import (
    AirflowException,
    AirflowRescheduleException,
    AirflowSensorTimeout,
    AirflowSkipException,
    TaskDeferred,
)
from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.proof.arguments import external_inputs
from sensorpool.airflow.result import START_ON_WORKER, START_ON_WORKER_KIND, STARTED, InstanceResult
from sensorpool.airflow.start import parse
from sensorpool.airflow.task import class_proof, deferral, patch
from sensorpool.airflow.task.saved_attributes import save
from sensorpool.airflow.trigger import PauseTrigger, PoolTrigger
from sensorpool.airflow.triggerer.notifier import Notifier
from sensorpool.errors import SettingsError
from sensorpool.model.states import Ending, State
from sensorpool.model.values import Registration
from sensorpool.store import inspecting
from tests.airflow.needs import needs
from tests.airflow.running import Flag, as_runner, context_of, in_dag, pool_of_process

FLAG = "tests.airflow.running.Flag"
TO_WORKER = {START_ON_WORKER: "the pool's database does not answer"}


@pytest.fixture(autouse=True)
def pool(postgres_database: str, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    settings = AirflowSettings(enabled=True, start="scheduler")
    monkeypatch.setattr(Notifier, "of_this_process", classmethod(lambda _: _no_pool()))
    patch.begins_on_worker.clear()
    with pool_of_process(
        monkeypatch, postgres_database, redis_url, f"{FLAG},{__name__}.NeedsDay", lambda: settings
    ) as made:
        yield made


def _no_pool() -> Any:
    raise SettingsError("a pause needs no pool")


class Lines(list[str]):
    """The log of a task."""

    def info(self, message: str, *arguments: Any) -> None:
        """Keep a line."""
        self.append(message % arguments)

    warning = error = exception = info


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Lines:
    kept = Lines()
    monkeypatch.setattr(Flag, "log", kept)
    return kept


def resume(sensor: Any, event: Any) -> Any:
    """Resume as Airflow's task runner does."""
    return as_runner(sensor, "resume_execution", patch.RESUME, {"event": event}, context_of(sensor))


def test_starts_as_on_any_worker(monkeypatch: pytest.MonkeyPatch, lines: Lines) -> None:
    with pytest.raises(TaskDeferred) as deferred:
        resume(in_dag(Flag, flag="later"), TO_WORKER)
    assert deferred.value.method_name == patch.RESUME
    monkeypatch.setattr(Flag, "answers", {"there": True})
    assert resume(in_dag(Flag, flag="there"), TO_WORKER) is None
    assert "sensorpool: starts on this worker: the pool's database does not answer" in lines


def test_starts_natively_with_sensorpool_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that was deferred before `enabled` was off: the method by which it resumes is there all the same."""
    monkeypatch.setattr(patch, "is_enabled", lambda: False)
    monkeypatch.setattr(Flag, "answers", {"there": True})
    assert resume(in_dag(Flag, flag="there"), TO_WORKER) is None


@pytest.mark.parametrize("soft_fail", [False, True])
@pytest.mark.parametrize(
    ("answer", "natively"), [(AirflowException("x"), AirflowException), (False, AirflowSensorTimeout)], ids=str
)
def test_ends_as_natively(answer: Any, natively: type[Exception], soft_fail: bool, monkeypatch: Any) -> None:
    monkeypatch.setattr(Flag, "answers", {"flag": answer})
    monkeypatch.setattr(patch, "is_enabled", lambda: False)
    ends = []
    for method, arguments in (("execute", ()), ("resume_execution", (patch.RESUME, {"event": TO_WORKER}))):
        sensor = in_dag(Flag, flag="flag", timeout=0, poke_interval=0.001, soft_fail=soft_fail)
        with pytest.raises(AirflowException) as raised:
            as_runner(sensor, method, *arguments, context_of(sensor))
        ends.append(type(raised.value))
        assert sensor.soft_fail is soft_fail
    assert ends == [ends[0]] * 2
    assert issubclass(ends[0], AirflowSkipException if soft_fail and natively is AirflowSensorTimeout else natively)


def test_the_end_of_a_wait_without_a_worker() -> None:
    sensor = in_dag(Flag, flag="now", timeout=60)
    saved = save(in_dag(Flag, flag="then"))
    late = InstanceResult(State.FAILED, Ending.TIMEOUT, "late").as_payload()
    with pytest.raises(AirflowSensorTimeout, match="late"):
        resume(sensor, {**late, STARTED: 1.0, **saved})
    assert sensor.flag == "then"


RESCHEDULED = {"mode": "reschedule", "poke_interval": 120.0, "timeout": 600.0}


def resume_deferred(sensor: Any, deferred: TaskDeferred) -> Any:
    """Resume a task that was deferred, as its trigger's event and Airflow's task runner do."""
    (event,) = asyncio.run(events_of(deferred.trigger))
    resumed = {**(deferred.kwargs or {}), "event": event.payload}
    return as_runner(sensor, "resume_execution", deferred.method_name, resumed, context_of(sensor))


async def events_of(trigger: Any) -> list[Any]:
    trigger.due = 0.0
    return [event async for event in trigger.run()]


@pytest.mark.parametrize("soft_fail", [False, True])
@pytest.mark.parametrize(
    "event",
    [TO_WORKER, {**InstanceResult.handed_back("drained").as_payload(), STARTED: 0.0}],
    ids=["starts here", "handed back"],
)
def test_a_native_reschedule_becomes_a_deferral(
    event: dict[str, Any], soft_fail: bool, monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    """Airflow would give the task to its trigger again, in the same try."""
    began = time.time()
    if STARTED in event:
        event = {**event, STARTED: began - 500}
    monkeypatch.setattr(patch, "is_enabled", lambda: False)
    with pytest.raises(TaskDeferred) as first:
        resume(in_dag(Flag, flag="later", soft_fail=soft_fail, **RESCHEDULED), event)
    started = first.value.kwargs["started"]
    assert started == pytest.approx(event.get(STARTED, began), abs=PATIENCE)
    assert isinstance(first.value.trigger, PauseTrigger)
    assert first.value.trigger.due == pytest.approx(began + 120, abs=PATIENCE)
    assert first.value.timeout.total_seconds() >= 3600
    with pytest.raises(TaskDeferred) as second:
        resume_deferred(in_dag(Flag, flag="later", soft_fail=soft_fail, **RESCHEDULED), first.value)
    assert second.value.kwargs == first.value.kwargs
    monkeypatch.setattr(Flag, "answers", {"later": True})
    assert resume_deferred(in_dag(Flag, flag="later", **RESCHEDULED), second.value) is None
    assert any("pokes on a worker again at" in line for line in lines)


@pytest.mark.parametrize(("soft_fail", "end"), [(False, AirflowSensorTimeout), (True, AirflowSkipException)])
def test_its_timeout_counts_from_its_begin(soft_fail: bool, end: type[Exception]) -> None:
    event = {**InstanceResult.handed_back("drained").as_payload(), STARTED: time.time() - 595}
    sensor = in_dag(Flag, flag="later", soft_fail=soft_fail, **RESCHEDULED)
    with pytest.raises(TaskDeferred) as deferred:
        resume(sensor, event)
    deferred.value.kwargs["started"] -= 10
    with pytest.raises(end):
        resume_deferred(in_dag(Flag, flag="later", soft_fail=soft_fail, **RESCHEDULED), deferred.value)


def test_only_what_the_pool_hands_back_withdraws_the_proof_of_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    withdrawn: list[Any] = []
    monkeypatch.setattr(class_proof, "withdraw", withdrawn.append)
    event = {**InstanceResult.handed_back("its poke changes the process").as_payload(), STARTED: time.time()}
    with pytest.raises(TaskDeferred) as deferred:
        resume(in_dag(Flag, flag="later", **RESCHEDULED), event)
    assert len(withdrawn) == 1
    with pytest.raises(TaskDeferred):
        resume_deferred(in_dag(Flag, flag="later", **RESCHEDULED), deferred.value)
    assert len(withdrawn) == 1


def test_a_wrong_setting_fails_no_task_that_is_handed_back(monkeypatch: pytest.MonkeyPatch, lines: Lines) -> None:
    def wrong() -> Any:
        raise SettingsError("database_url_cmd: it ends with 1")

    monkeypatch.setattr(deferral, "airflow_settings", wrong)
    monkeypatch.setattr(Flag, "answers", {"there": True})
    event = InstanceResult.handed_back("the pool is dead").as_payload()
    assert resume(in_dag(Flag, flag="there"), event) is None
    assert [line for line in lines if "it ends with 1" in line]


def test_a_wrong_setting_leaves_it_to_airflow(monkeypatch: pytest.MonkeyPatch, lines: Lines) -> None:
    def wrong() -> Any:
        raise SettingsError("resume_hold: no number")

    monkeypatch.setattr(deferral, "airflow_settings", wrong)
    monkeypatch.setattr(patch, "is_enabled", lambda: False)
    with pytest.raises(AirflowRescheduleException):
        resume(in_dag(Flag, flag="later", **RESCHEDULED), TO_WORKER)
    assert any("Airflow reschedules it: resume_hold" in line for line in lines)


def test_a_timeout_without_end_is_bounded() -> None:
    """Airflow adds it to a date."""
    event = {**InstanceResult.handed_back("drained").as_payload(), STARTED: time.time()}
    with pytest.raises(TaskDeferred) as deferred:
        resume(in_dag(Flag, flag="later", **(RESCHEDULED | {"timeout": 8e13})), event)
    assert dt.datetime.now(dt.UTC) + deferred.value.timeout


def test_no_poke_follows_another_within_the_hold() -> None:
    before = time.time()
    with pytest.raises(TaskDeferred) as deferred:
        resume(
            in_dag(Flag, flag="later", mode="reschedule", poke_interval=1, timeout=600),
            {**InstanceResult.handed_back("drained").as_payload(), STARTED: before},
        )
    assert deferred.value.trigger.due >= before + deferral.airflow_settings().resume_hold


def test_what_registers_on_its_worker_remembers_that_it_began_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is handed back later, perhaps, and then rescheduled."""
    with pytest.raises(TaskDeferred) as deferred:
        resume(in_dag(Flag, flag="later", **RESCHEDULED), TO_WORKER)
    assert isinstance(deferred.value.trigger, PoolTrigger)
    monkeypatch.setattr(patch, "is_enabled", lambda: False)
    sensor = in_dag(Flag, flag="later", **RESCHEDULED)
    resumed = {**(deferred.value.kwargs or {}), "event": InstanceResult.handed_back("drained").as_payload()}
    with pytest.raises(TaskDeferred) as paused:
        as_runner(sensor, "resume_execution", patch.RESUME, resumed, context_of(sensor))
    assert isinstance(paused.value.trigger, PauseTrigger)
    assert paused.value.kwargs["started"] == (deferred.value.kwargs or {})["started"]


class NothingThere:
    """Stands for the supervisor of a task, where Airflow has no Connection and no Variable."""

    def send(self, msg: Any) -> Any:
        """Answer as the supervisor does."""
        return None if secrets_backends.lookup_name(msg) is None else secrets_backends.not_found(msg)


class NeedsDay(Flag):
    """Looks for a Variable that may be missing."""

    def poke(self, context: Any) -> Any:
        assert type(vars(self).get("poke")) is not FunctionType  # it may send itself to another process
        return Variable.get("day", default=None) is not None and super().poke(context)


@pytest.fixture
def handed_back(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], dict[str, Any]]:
    """A task that has waited in the pool without a worker: its context, and the event by which it comes back."""
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", NothingThere(), raising=False)
    context = context_of(in_dag(NeedsDay, flag="x"))
    key, external_id = deferral.key_of(context["ti"]), str(context["ti"].id)
    waiting = Registration(sensor=FLAG, poke_context={"flag": "x"}, key=key, external_id=external_id)
    instance = pool.register_many([waiting], try_out=False)[0]
    why = "its poke needs the Variable day, which the pool does not find"
    assert pool.settler.hand_back({instance.id: why}) == 1
    return context, {**InstanceResult.handed_back(why).as_payload(), STARTED: time.time() - 100}


@pytest.mark.parametrize("mode", [{}, RESCHEDULED], ids=["poke", "reschedule"])
@pytest.mark.parametrize("first_poke", ["worker", "pool"])
def test_what_misses_a_variable_in_the_pool_begins_on_its_worker(
    first_poke: str, mode: dict[str, Any], handed_back: Any, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An AWS sensor without a Connection, for example: it does without, as the first poke on its worker shows."""
    context, event = handed_back
    settings = AirflowSettings(enabled=True, start="scheduler", first_poke=first_poke)
    monkeypatch.setattr(deferral, "airflow_settings", lambda: settings)
    sensor = in_dag(NeedsDay, flag="x", **{"timeout": 160, "poke_interval": 0.01, **mode})
    with pytest.raises(TaskDeferred) as deferred:
        as_runner(sensor, "resume_execution", patch.RESUME, {"event": event}, context)
    assert isinstance(deferred.value.trigger, PoolTrigger)
    assert deferred.value.kwargs["started"] == event[STARTED]
    key = deferral.key_of(context["ti"])
    again = pool.database.read(inspecting.of_key, key)
    assert State(again.state) is State.SENSING
    assert deferred.value.timeout.total_seconds() == pytest.approx(
        sensor.timeout - 100 + deferral.airflow_settings().deferral_grace, abs=PATIENCE
    )
    assert external_inputs.missing_lookups_of(deferral.registered_condition(key)) not in (None, frozenset())
    # what comes back once more goes on natively
    monkeypatch.setattr(patch, "is_enabled", lambda: False)
    resumed = {**deferred.value.kwargs, "event": {name: event[name] for name in event if name != STARTED}}
    sensor = in_dag(NeedsDay, flag="x", **{"timeout": 101, "poke_interval": 0.01, **mode})
    with pytest.raises(AirflowSensorTimeout if not mode else TaskDeferred) as end:
        as_runner(sensor, "resume_execution", patch.RESUME, resumed, context)
    assert not isinstance(getattr(end.value, "trigger", None), PoolTrigger)


def test_another_reason_keeps_it_on_its_worker(handed_back: Any, lines: Lines) -> None:
    context, event = handed_back
    sensor = in_dag(NeedsDay, flag="x", timeout=100.5, poke_interval=0.01)
    with pytest.raises(AirflowSensorTimeout):
        as_runner(
            sensor, "resume_execution", patch.RESUME, {"event": {**event, "reason": "its pool is drained"}}, context
        )
    assert "sensorpool: handed back, runs natively from here: its pool is drained" in lines


def test_what_began_on_a_worker_is_rescheduled_by_airflow(monkeypatch: pytest.MonkeyPatch) -> None:
    sensor = in_dag(Flag, flag="later", **RESCHEDULED)
    with pytest.raises(TaskDeferred) as deferred:
        as_runner(sensor, "execute", context_of(sensor))
    monkeypatch.setattr(patch, "is_enabled", lambda: False)
    resumed = {**(deferred.value.kwargs or {}), "event": InstanceResult.handed_back("drained").as_payload()}
    sensor = in_dag(Flag, flag="later", **RESCHEDULED)
    with pytest.raises(AirflowRescheduleException):
        as_runner(sensor, "resume_execution", patch.RESUME, resumed, context_of(sensor))


@pytest.mark.parametrize("until", [None, "x", float("nan"), float("inf"), -1.0, 2**70], ids=str)
def test_an_odd_pause_is_over_at_once(until: Any) -> None:
    trigger = PauseTrigger(due=until, other=1)
    assert trigger.due <= 0.0
    assert PauseTrigger(**trigger.serialize()[1]).due == trigger.due


@pytest.mark.parametrize(
    "odd", [{STARTED: "x"}, {STARTED: None}, {START_ON_WORKER: None}, {"as_started": 3}, {"reason": 7}], ids=str
)
def test_odd_parts_of_an_event_do_not_matter(odd: dict[str, Any]) -> None:
    payload = InstanceResult(State.SUCCESS, Ending.LANDED).as_payload()
    assert resume(in_dag(Flag, flag="x"), {**payload, **odd}) is None


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is counted in Airflow's metrics."""
    kept: list[Any] = []
    monkeypatch.setattr(task_runtime, "count_metric", lambda *arguments: kept.append(arguments))
    return kept


@needs(features.START_FROM_TRIGGER)
def test_its_log_says_why_it_begins_on_a_worker(
    monkeypatch: pytest.MonkeyPatch, lines: Lines, counted: list[Any]
) -> None:
    monkeypatch.setenv(PARSED_FOR, "wait")
    assert get_parsing_context().task_id == "wait"
    sensor = in_dag(Flag, flag="later", max_active_tis_per_dag=1)
    parse.give_blueprint(sensor)
    assert not sensor.start_from_trigger
    with pytest.raises(TaskDeferred):
        as_runner(sensor, "execute", context_of(sensor))
    assert any("it begins on a worker: its max_active_tis_per_dag" in line for line in lines)
    assert ("begins_on_worker", {"reason": "limit"}) in counted


@pytest.mark.parametrize("kind", ["rendering", "no such reason", None, 3, ["x"]], ids=str)
def test_its_metric_has_few_reasons(kind: Any, counted: list[Any]) -> None:
    with pytest.raises(TaskDeferred):
        resume(in_dag(Flag, flag="later"), {**TO_WORKER, START_ON_WORKER_KIND: kind})
    expected = kind if kind == "rendering" else "not_poolable"
    assert counted[0] == ("begins_on_worker", {"reason": expected})
