"""A task leaves its worker slot, or keeps it with a line in its log."""

import json
import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cache
from typing import Any, NoReturn

from sensorpool.airflow.compat import secrets_masker, task_runtime
from sensorpool.airflow.compat.exceptions import TaskDeferred
from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.errors import NotPoolable, reason_for
from sensorpool.airflow.task.patch import RESUME
from sensorpool.airflow.trigger import PauseTrigger, PoolTrigger
from sensorpool.client.pool import Pool
from sensorpool.config.settings import Settings
from sensorpool.errors import KeyConflict
from sensorpool.model.states import State
from sensorpool.model.values import LONGEST_SPAN, Key, Registered, Registration
from sensorpool.store import inspecting, pruning


@cache
def airflow_settings() -> AirflowSettings:
    """Return the settings of Airflow's side.

    :raises SettingsError: when one is wrong.
    """
    return AirflowSettings.load()


@cache
def pool() -> Pool:
    """Return this process's pool.

    :raises SettingsError: when a setting is wrong.
    """
    settings = Settings.load()
    if settings.embedded or "database_url" not in settings.model_fields_set:
        raise NotPoolable("[sensorpool] redis_url and database_url do not name a pool", "not_configured")
    return Pool(settings)


def register(registration: Registration) -> Registered:
    """Register what a task of this worker waits for.

    :raises NotPoolable: when this try was in the pool already, or there is a secret among its arguments.
    :raises SensorpoolError: as `Pool.register`.
    """
    check_secrets(registration.poke_context)
    try:
        instance = pool().register_many([registration], try_out=False)[0]
    except KeyConflict:
        if not _forget_earlier_life(registration):
            raise
    else:
        if instance.state is State.SENSING or not _forget_earlier_life(registration):
            return sensing(instance)
    return sensing(pool().register_many([registration], try_out=False)[0])


def registered_condition(key: Key) -> Mapping[str, Any] | None:
    """Return the poke_context with which a try is in the pool; None if it is not.

    :raises SensorpoolError: when the database does not answer.
    """
    known = pool().database.read(inspecting.of_key, key)
    found: Mapping[str, Any] | None = None if known is None else json.loads(known.poke_context)
    return found


def forget(key: Key) -> None:
    """Have the pool forget an instance of a try that has ended, so that the try can register again.

    :raises SensorpoolError: when the database does not answer.
    """
    pool().database.run(pruning.forget, key)


def _forget_earlier_life(registration: Registration) -> bool:
    """Have the pool forget what ended in an earlier life of the task's run; return whether there was anything."""
    if registration.key is None or registration.external_id is None:
        return False
    return pool().database.run(pruning.forget_earlier_lives, registration.key, registration.external_id) > 0


def check_secrets(poke_context: Any) -> None:
    """Check that there is no secret among the arguments of a sensor.

    :raises NotPoolable: when there is one.
    """
    if secrets_masker.holds_secret(poke_context):
        raise NotPoolable("one of its arguments holds a secret, and the pool keeps arguments", "secret")


def sensing(instance: Registered) -> Registered:
    """Return an instance that was just registered, if it waits.

    :raises NotPoolable: when this try was in the pool already, and has ended there.
    """
    if instance.state is not State.SENSING:
        raise NotPoolable(f"this try was in the pool already (instance {instance.id}: {instance.state})", "again")
    return instance


def waits_of(sensor: Any) -> dict[str, Any]:
    """Return how a sensor waits, but its limits in time: arguments of a `Registration`."""
    return {
        "poke_interval": sensor.poke_interval or 1.0,
        "soft_fail": bool(sensor.soft_fail),
        "silent_fail": bool(sensor.silent_fail),
        "never_fail": bool(sensor.never_fail),
        "exponential_backoff": bool(sensor.exponential_backoff),
        "max_wait": sensor.max_wait.total_seconds() if sensor.max_wait else None,
    }


def defer(
    task: Any,
    instance: Registered,
    *,
    direct: bool,
    timeout: float | None,
    started: float,
    at_gate: bool = False,
    **more: Any,
) -> NoReturn:
    """Free the slot.

    :param direct: whether a success may be written without a worker.
    :param timeout: seconds that the pool waits; Airflow itself ends the task some time later. None: without end.
    :param started: when the task began to wait, in seconds since 1970.
    :param at_gate: whether the task's own poke follows a landing.
    :param more: further arguments of the resume method, as JSON.
    :raises TaskDeferred: always; Airflow takes it up.
    """
    task_runtime.count_metric("registered")
    others = "" if instance.opened else ", where others wait for the same"
    task.log.info("sensorpool: waits in the pool as instance %s%s; its worker slot is free.", instance.id, others)
    raise TaskDeferred(
        trigger=PoolTrigger(instance_id=instance.id, direct=direct, registered_at=time.time(), at_gate=at_gate),
        method_name=RESUME,
        kwargs={"started": started, **more},
        timeout=None if timeout is None else timedelta(seconds=timeout + airflow_settings().deferral_grace),
    )


def next_poke_at(due: datetime) -> float:
    """Return when a sensor may poke on a worker again: when it is due, and not within `resume_hold` from now.

    :return: seconds since 1970.
    """
    return max(due.timestamp(), time.time() + airflow_settings().resume_hold)


def pause(task: Any, due: datetime, started: float, **more: Any) -> TaskDeferred:
    """Return what frees the slot, when it is raised, until a sensor pokes on a worker again.

    :param started: when the task began to wait, in seconds since 1970.
    :param more: further arguments of the resume method, as JSON.
    :raises SettingsError: when a setting is wrong.
    """
    until = next_poke_at(due)
    left = min(LONGEST_SPAN, max(0.0, started + task.timeout - time.time(), until - time.time()))
    task.log.info("sensorpool: pokes on a worker again at %s", datetime.fromtimestamp(until).astimezone())
    return TaskDeferred(
        trigger=PauseTrigger(due=until),
        method_name=RESUME,
        kwargs={"started": started, **more},
        timeout=timedelta(seconds=left + airflow_settings().deferral_grace),
    )


def report_native(task: Any, error: Exception) -> None:
    """Log why a task keeps its slot and runs natively, and count it: once a try, and not after each reschedule."""
    why = reason_for(error)
    if isinstance(error, NotPoolable):
        if task_runtime.was_rescheduled():
            return
        kind = error.kind
        task.log.info("sensorpool: runs natively: %s", why)
    else:
        kind = "registration_failed"
        task.log.warning("sensorpool: runs natively: %s", why)
    task_runtime.count_metric("native", {"reason": kind})


def key_of(ti: Any) -> Key:
    """Return the key of a try of a task instance: AIP-17's key, and the number of the try."""
    return Key(ti.dag_id, ti.task_id, ti.run_id, -1 if ti.map_index is None else ti.map_index, ti.try_number)
