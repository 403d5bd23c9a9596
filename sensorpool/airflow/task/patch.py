"""The patches by which tasks leave their worker slot: methods of three classes, once a process.

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
# by DAG and task: why a sensor of this worker's process begins here, where others begin without a worker
begins_on_worker: dict[tuple[str, str], str] = {}

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
                setattr(cls, _RESUMING, _putting_back(vars(cls)[_RESUMING]))


def _entering(native: Execute, ours: str) -> Execute:
    @functools.wraps(native)
    def execute(self: Any, context: Any) -> Any:
        name = (
            ours if RESUMED in vars(self) or is_enabled() else _RESCHEDULED if _was_rescheduled(self, context) else ""
        )
        part = _part(name) if name else None
        return native(self, context) if part is None else part.execute(self, context, native)

    return execute


def _putting_back(native: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(native)
    def resume_execution(self: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return native(self, *arguments, **named)
        finally:
            vars(self).update(vars(self).pop(SET_ASIDE, {}))

    return resume_execution


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
    from sensorpool.airflow.configuration import AirflowSettings

    try:
        ours = AirflowSettings.load()
    except Exception:  # `is_enabled` logs it
        return False
    return ours.enabled and ours.start == "scheduler"


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
