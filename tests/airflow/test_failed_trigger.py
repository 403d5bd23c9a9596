"""A sensor whose trigger Airflow has given up: it ends as the native sensor, or goes on as it."""

import datetime as dt
import time
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("airflow")

from airflow.models.trigger import TRIGGER_FAIL_REPR, TriggerFailureReason
from sqlalchemy import text

from sensorpool import Pool
from sensorpool.airflow.compat.exceptions import (
    AirflowRescheduleException,
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTimeout,
    TaskDeferralError,
    TaskDeferred,
)
from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.task import class_proof, deferral, patch
from sensorpool.model.values import Registration
from tests.airflow.running import Flag, as_runner, context_of, in_dag, pool_of_process

FLAG = "tests.airflow.running.Flag"
FAILED: dict[str, Any] = {"error": TriggerFailureReason.TRIGGER_FAILURE.value, "traceback": ["Traceback", "it is dead"]}
OVER: dict[str, Any] = {"error": TriggerFailureReason.TRIGGER_TIMEOUT.value}
HOUR = dt.timedelta(hours=1)


class Own(Flag):
    """Defers by itself, once its base has waited."""

    def execute(self, context: Any) -> Any:
        """Wait, and then wait for something else."""
        found = super().execute(context)
        self.defer(trigger=object(), method_name="end")
        return found


@pytest.fixture(autouse=True)
def pool(postgres_database: str, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    monkeypatch.setenv("SENSORPOOL_DATABASE_URL", postgres_database)
    settings = AirflowSettings(enabled=True, start="scheduler")
    patch._is_configured.cache_clear()
    patch.begins_on_worker.clear()
    with pool_of_process(monkeypatch, postgres_database, redis_url, FLAG, lambda: settings) as made:
        yield made
    patch._is_configured.cache_clear()


def give_up(sensor: Any, context: Any, given: dict[str, Any]) -> Any:
    """Resume a task as Airflow's task runner does whose trigger Airflow has given up."""
    return as_runner(sensor, "resume_execution", next_method=TRIGGER_FAIL_REPR, next_kwargs=given, context=context)


def registered(pool: Pool, sensor: Any, context: Any, waited: float = 0.0) -> int:
    """Register a sensor, some seconds ago."""
    ti = context["ti"]
    waits = Registration(
        sensor=FLAG, poke_context={"flag": "x"}, key=deferral.key_of(ti), external_id=str(ti.id), timeout=sensor.timeout
    )
    (instance,) = pool.register_many([waits], try_out=False)
    with pool.database.engine.begin() as connection:
        connection.execute(text("UPDATE sensor_instance SET start_date = start_date - :ms"), {"ms": waited * 1000})
    return instance.id


def end(pool: Pool, **columns: Any) -> None:
    ended = {"state": "success", "ending": "landed", "settled_at": 1} | columns
    with pool.database.engine.begin() as connection:
        connection.execute(
            text(f"UPDATE sensor_instance SET {', '.join(f'{name} = :{name}' for name in ended)}"), ended
        )


@pytest.mark.parametrize("is_registered", [True, False], ids=["registered", "never registered"])
def test_a_dead_trigger_hands_its_task_to_its_worker(
    is_registered: bool, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sensor = in_dag(Flag, flag="x", poke_interval=0.01)
    context = context_of(sensor)
    patch.begins_on_worker["dag", "wait"] = None
    instance_id = registered(pool, sensor, context) if is_registered else None
    monkeypatch.setattr(Flag, "answers", {"x": True})
    assert give_up(sensor, context, FAILED) is None
    if instance_id is not None:
        with pool.database.engine.begin() as connection:
            assert connection.execute(text("SELECT ending FROM sensor_instance")).scalar_one() == "handed_back"


def test_a_dead_trigger_of_a_sensor_that_began_on_its_worker(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool knows its try; a dead trigger says nothing of its class."""
    monkeypatch.setattr(class_proof, "withdraw", lambda _: pytest.fail("it withdraws the proof"))
    sensor = in_dag(Flag, flag="x", poke_interval=0.01)
    context = context_of(sensor)
    registered(pool, sensor, context)
    monkeypatch.setattr(Flag, "answers", {"x": True})
    assert give_up(sensor, context, FAILED) is None


def test_it_does_not_go_back_to_the_pool(pool: Pool) -> None:
    """Its next trigger would die as well."""
    sensor = in_dag(Flag, flag="x", poke_interval=0.01, timeout=0.1)
    context = context_of(sensor)
    registered(pool, sensor, context)
    with pytest.raises(AirflowSensorTimeout):
        give_up(sensor, context, FAILED)


def test_its_timeout_counts_from_its_begin(pool: Pool) -> None:
    sensor = in_dag(Flag, flag="x", poke_interval=60, timeout=600)
    context = context_of(sensor)
    registered(pool, sensor, context, waited=601)
    with pytest.raises(AirflowSensorTimeout):
        give_up(sensor, context, FAILED)


def test_in_reschedule_mode_airflow_paces_its_pokes(pool: Pool) -> None:
    """It comes to its trigger again: not within seconds, which Airflow would take for a loss of the task."""
    sensor = in_dag(Flag, flag="x", poke_interval=1, timeout=600, mode="reschedule", soft_fail=True)
    context = context_of(sensor)
    registered(pool, sensor, context)
    before = time.time()
    with pytest.raises(AirflowRescheduleException) as raised:
        give_up(sensor, context, FAILED)
    assert raised.value.reschedule_date.timestamp() >= before + deferral.airflow_settings().resume_hold


@pytest.mark.parametrize("given", [FAILED, OVER], ids=["failed", "over"])
@pytest.mark.parametrize(
    ("columns", "natively"),
    [
        ({}, None),
        ({"state": "failed", "ending": "timeout", "reason": "late"}, AirflowSensorTimeout),
        ({"state": "failed", "ending": "execution_timeout", "reason": "late"}, AirflowTaskTimeout),
        ({"state": "skipped", "ending": "skip", "reason": "none"}, AirflowSkipException),
    ],
    ids=str,
)
def test_what_the_pool_has_seen_counts(
    pool: Pool, given: dict[str, Any], columns: dict[str, Any], natively: type[BaseException] | None
) -> None:
    """The event of its trigger came too late."""
    sensor = in_dag(Flag, flag="x", execution_timeout=HOUR)
    context = context_of(sensor)
    registered(pool, sensor, context)
    end(pool, **columns)
    if natively is None:
        assert give_up(sensor, context, given) is None
    else:
        with pytest.raises(natively):
            give_up(sensor, context, given)


@pytest.mark.parametrize("soft_fail", [False, True])
def test_the_execution_timeout_ends_a_try_and_airflow_retries(soft_fail: bool, pool: Pool) -> None:
    sensor = in_dag(Flag, flag="x", execution_timeout=HOUR, soft_fail=soft_fail)
    context = context_of(sensor)
    patch.begins_on_worker["dag", "wait"] = None
    registered(pool, sensor, context)
    with pytest.raises(AirflowTaskTimeout, match="execution_timeout of 3600 s"):
        give_up(sensor, context, OVER)


@pytest.mark.parametrize(
    "arguments",
    [{}, {"execution_timeout": HOUR, "timeout": 60}, {"execution_timeout": HOUR, "mode": "reschedule"}],
    ids=str,
)
@pytest.mark.parametrize(("soft_fail", "natively"), [(False, AirflowSensorTimeout), (True, AirflowSkipException)])
def test_any_other_end_of_its_time_is_the_sensors_timeout(
    pool: Pool, arguments: dict[str, Any], soft_fail: bool, natively: type[Exception]
) -> None:
    sensor = in_dag(Flag, flag="x", soft_fail=soft_fail, **arguments)
    context = context_of(sensor)
    registered(pool, sensor, context)
    with pytest.raises(natively):
        give_up(sensor, context, OVER)


@pytest.mark.parametrize(
    ("cls", "given", "natively"),
    [(Flag, FAILED, TaskDeferralError), (Flag, OVER, AirflowSensorTimeout), (Own, FAILED, TaskDeferralError)],
    ids=str,
)
def test_a_trigger_that_may_be_its_own_is_left_to_airflow(
    pool: Pool, cls: Any, given: dict[str, Any], natively: type[Exception]
) -> None:
    sensor = in_dag(cls, flag="x", execution_timeout=HOUR)
    context = context_of(sensor)
    if cls is Own:
        registered(pool, sensor, context)
    with pytest.raises(natively):
        give_up(sensor, context, given)


@pytest.mark.parametrize("arguments", [{}, {"execution_timeout": HOUR}, {"mode": "reschedule"}], ids=str)
@pytest.mark.parametrize("has_landed", [True, False])
def test_one_that_no_triggerer_has_taken_up_begins_on_its_worker(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any], has_landed: bool
) -> None:
    """It has not been poked: no triggerer has run, or none has had room."""
    sensor = in_dag(Flag, flag="x", timeout=600, **arguments)
    context = context_of(sensor)
    patch.begins_on_worker["dag", "wait"] = None
    monkeypatch.setattr(Flag, "answers", {"x": has_landed})
    if has_landed:
        assert give_up(sensor, context, OVER) is None
    else:
        with pytest.raises(TaskDeferred) as raised:
            give_up(sensor, context, OVER)
        assert raised.value.kwargs["begun"] is True
        assert raised.value.kwargs["started"] == pytest.approx(time.time(), abs=60)
        with pool.database.engine.begin() as connection:
            assert connection.execute(text("SELECT state FROM sensor_instance")).scalar_one() == "sensing"


def test_one_whose_wait_cannot_be_read_times_out(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    sensor = in_dag(Flag, flag="x")
    patch.begins_on_worker["dag", "wait"] = None
    monkeypatch.setattr(deferral, "pool", lambda: 1 / 0)
    with pytest.raises(AirflowSensorTimeout):
        give_up(sensor, context_of(sensor), OVER)


def test_another_try_is_not_taken_for_this_one(pool: Pool) -> None:
    sensor = in_dag(Flag, flag="x")
    registered(pool, sensor, context_of(sensor))
    with pytest.raises(TaskDeferralError):
        give_up(sensor, context_of(sensor), FAILED)


def test_a_pool_that_does_not_answer(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    sensor = in_dag(Flag, flag="x", poke_interval=0.01)
    monkeypatch.setattr(deferral, "pool", lambda: 1 / 0)
    with pytest.raises(TaskDeferralError):
        give_up(sensor, context_of(sensor), FAILED)
    patch.begins_on_worker["dag", "wait"] = None
    monkeypatch.setattr(Flag, "answers", {"x": True})
    assert give_up(sensor, context_of(sensor), FAILED) is None


@pytest.mark.parametrize("given", [None, {}, {"error": None}, {"error": 3, "traceback": "x"}], ids=str)
def test_an_odd_reason_goes_on_natively_too(given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    patch.begins_on_worker["dag", "wait"] = None
    monkeypatch.setattr(Flag, "answers", {"x": True})
    sensor = in_dag(Flag, flag="x")
    assert give_up(sensor, context_of(sensor), given) is None


def test_nothing_is_asked_where_there_is_no_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SENSORPOOL_DATABASE_URL")
    monkeypatch.setattr(deferral, "pool", lambda: pytest.fail("it asks"))
    sensor = in_dag(Flag, flag="x")
    with pytest.raises(TaskDeferralError):
        give_up(sensor, context_of(sensor), FAILED)
