"""The patches by which tasks leave their worker slot: methods of three classes, and of deferrable sensors' classes.

The classes are patched and not the instances: `prepare_for_execution` copies tasks and `unmap` makes new ones. Each
patch enters a module of this package that has ``execute(task, context, native)`` and ``resume(task, context, event,
…)``. That module is imported only then, for every task of Airflow pays for the imports of this one.
"""

import functools
import logging
import os
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

RESUME = "sensorpool_resume"  # the method that Airflow calls when a task resumes
RESUMED = "_sensorpool_resumed"  # an attribute of a task that has resumed: its module's own data
# an attribute of a task: flags that Airflow's resume method must not see, and callbacks must
SET_ASIDE = "_sensorpool_set_aside"
_RESUMING = "resume_execution"
_OWN = "_sensorpool_execute"  # an attribute of a class with deferrable sensors: its execute without the patch
_GIVEN_UP = "__fail__"  # Airflow's name for the method of a task whose trigger it has given up
# by DAG and task, in a worker's process: why its sensor begins here, where others begin without a worker, as a text and
# for a metric; None for a sensor that begins without one
begins_on_worker: dict[tuple[str, str], tuple[str, str] | None] = {}
# by DAG and task: what the first poke of a company's sensor proves, in this worker's process (`class_proof`)
proved_by_first_poke: dict[tuple[str, str], str] = {}

Execute = Callable[[Any, Any], Any]

_RESCHEDULED = "native_continuation"  # the module for tasks that were in the pool before ``enabled`` was off

_PATCHES = (  # module, class and method of Airflow's, and the module of this package
    ("airflow.sdk.bases.sensor", "BaseSensorOperator", "execute", "sensor_task"),
    ("airflow.sdk.bases.resumablejobmixin", "ResumableJobMixin", "execute_resumable", "resumable_job"),
    ("airflow.providers.standard.operators.trigger_dagrun", "TriggerDagRunOperator", "execute", "triggered_run"),
)


def install() -> None:
    """Patch the classes that are imported. With ``enabled`` off the patches serve only tasks that wait already."""
    for module, name, method, ours in _PATCHES:
        cls = getattr(sys.modules.get(module), name, None)
        if cls is not None and not hasattr(cls, RESUME):
            setattr(cls, RESUME, _resuming(ours))
            setattr(cls, method, _entering(getattr(cls, method), ours))
            if _RESUMING in vars(cls):
                setattr(cls, _RESUMING, _resuming_by_airflow(vars(cls)[_RESUMING]))


def install_for(task: Any) -> None:
    """Patch the class of a task, if its sensors may be deferrable and wait in the pool all the same."""
    from sensorpool.airflow.proof import known_sensors

    cls = getattr(task, "operator_class", type(task))  # that of a mapped task
    if isinstance(cls, type) and known_sensors.reason_to_defer(cls) is None and _OWN not in vars(cls):
        native: Any = getattr(cls, "execute")  # noqa: B009  # mypy knows no such attribute of a type
        setattr(cls, _OWN, native)
        setattr(cls, "execute", _entering_own(native))  # noqa: B010


def _entering_own(native: Execute) -> Execute:
    @functools.wraps(native)
    def execute(self: Any, context: Any, **named: Any) -> Any:
        is_deferrable = getattr(self, "deferrable", False) is True and takes_deferrable()
        part = _part("own_deferral") if is_deferrable and _is_running_task(self, context) else None
        own = functools.partial(native, **named)
        return own(self, context) if part is None else part.execute(self, context, own)

    return execute


def _entering(native: Execute, ours: str) -> Execute:
    @functools.wraps(native)
    def execute(self: Any, context: Any) -> Any:
        if not _is_running_task(self, context):
            return native(self, context)
        name = (
            ours if RESUMED in vars(self) or is_enabled() else _RESCHEDULED if _was_rescheduled(self, context) else ""
        )
        part = _part(name) if name else None
        return native(self, context) if part is None else part.execute(self, context, native)

    return execute


def _resuming_by_airflow(native: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(native)
    def resume_execution(self: Any, next_method: Any, next_kwargs: Any, context: Any) -> Any:
        call = functools.partial(native, self, next_method, next_kwargs, context)
        try:
            if next_method != _GIVEN_UP or not _is_configured() or (part := _part("failed_trigger")) is None:
                return call()
            return part.resume(self, context, next_kwargs, call)
        finally:
            vars(self).update(vars(self).pop(SET_ASIDE, {}))

    return resume_execution


def _is_running_task(operator: Any, context: Any) -> bool:
    """Whether an operator is the task that runs, and not one that the task's own code executes.

    An inner operator must not free the slot: Airflow would defer the outer task, whose code would not go on.
    """
    try:
        return context["ti"].task is operator
    except (AttributeError, KeyError, TypeError):  # executed with a context of the caller's own
        return False


def _was_rescheduled(task: Any, context: Any) -> bool:
    """Whether a task may have been handed back by the pool, and rescheduled by Airflow since."""
    return bool(getattr(task, "reschedule", False) and context.get("task_reschedule_count") and _is_configured())


def _part(ours: str) -> Any:
    """Import a module of this package; if that fails, log why and return None: then the task runs natively."""
    try:
        return import_module(f"sensorpool.airflow.task.{ours}")
    except Exception as error:
        logging.getLogger(__name__).warning("sensorpool is not in effect: %s: %s", type(error).__name__, error)
        return None


def _resuming(ours: str) -> Callable[..., Any]:
    def resume(self: Any, context: Any, event: Any = None, **left: Any) -> Any:
        """Go on where the task left its slot."""
        return import_module(f"sensorpool.airflow.task.{ours}").resume(self, context, event, **left)

    return resume


@cache
def _is_configured() -> bool:
    """Whether there is, or was, a pool: without one no database is asked."""
    from sensorpool.airflow.configuration import section
    from sensorpool.config.defaults import PREFIX

    try:
        return "database_url" in section() or bool(os.environ.get(f"{PREFIX}DATABASE_URL"))
    except Exception:  # `is_enabled` logs it
        return False


@cache
def starts_without_worker() -> bool:
    """Whether sensors may start from a trigger, without a worker; not when a setting is wrong."""
    return _says(lambda ours: ours.enabled and ours.start == "scheduler")


@cache
def takes_deferrable() -> bool:
    """Whether sensors with ``deferrable=True`` may wait in the pool; not when a setting is wrong."""
    return _says(lambda ours: ours.enabled and ours.deferrable == "pool")


def _says(what: Callable[[Any], bool]) -> bool:
    from sensorpool.airflow.configuration import AirflowSettings

    try:
        return what(AirflowSettings.load())
    except Exception:  # `is_enabled` logs it
        return False


@cache
def is_enabled() -> bool:
    """Whether tasks leave their slots; not when a setting is wrong."""
    from sensorpool.airflow.configuration import AirflowSettings
    from sensorpool.instrumentation.redaction import error_text

    try:
        return AirflowSettings.load().enabled
    except Exception as error:
        logging.getLogger(__name__).warning("sensorpool is not in effect: %s", error_text(error))
        return False
