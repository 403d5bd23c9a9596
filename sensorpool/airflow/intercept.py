"""Where tasks leave their worker slot: methods of three classes, patched once a process.

The classes are patched and not the instances: `prepare_for_execution` copies tasks and `unmap` makes new ones. Each
patch enters a module of ours that has ``execute(task, context, native)`` and ``resume(task, context, event, …)``; it is
imported only then, for what is imported here is paid for by every task of Airflow.
"""

import functools
import logging
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

RESUME = "sensorpool_resume"  # the method that Airflow calls when a task resumes
RESUMED = "_sensorpool_resumed"  # the attribute of a task that has resumed: what its module left for itself

Execute = Callable[[Any, Any], Any]

_PATCHES = (  # module, class and method of Airflow's, and our module
    ("airflow.sdk.bases.sensor", "BaseSensorOperator", "execute", "sensor_task"),
    ("airflow.sdk.bases.resumablejobmixin", "ResumableJobMixin", "execute_resumable", "resumable_job"),
    ("airflow.providers.standard.operators.trigger_dagrun", "TriggerDagRunOperator", "execute", "triggered_run"),
)


def install() -> None:
    """Patch the classes that somebody has imported. With ``enabled`` off they only serve tasks that wait already."""
    for module, name, method, ours in _PATCHES:
        cls = getattr(sys.modules.get(module), name, None)
        if cls is not None and not hasattr(cls, RESUME):
            setattr(cls, RESUME, _resuming(ours))
            setattr(cls, method, _entering(getattr(cls, method), ours))


def _entering(native: Execute, ours: str) -> Execute:
    @functools.wraps(native)
    def execute(self: Any, context: Any) -> Any:
        part = _part(ours) if RESUMED in vars(self) or is_enabled() else None
        return native(self, context) if part is None else part.execute(self, context, native)

    return execute


def _part(ours: str) -> Any:
    """Import a module of ours; None, with a line that says why, if it cannot be: then the task runs natively."""
    try:
        return import_module(f"sensorpool.airflow.{ours}")
    except Exception as error:
        logging.getLogger(__name__).warning("sensorpool is not in effect: %s: %s", type(error).__name__, error)
        return None


def _resuming(ours: str) -> Callable[..., Any]:
    def resume(self: Any, context: Any, event: Any = None, **left: Any) -> Any:
        """Go on where the task left its slot."""
        return import_module(f"sensorpool.airflow.{ours}").resume(self, context, event, **left)

    return resume


@cache
def is_enabled() -> bool:
    """Whether tasks leave their slots; not when a setting is wrong."""
    from sensorpool.airflow.configuration import AirflowSettings

    try:
        return AirflowSettings.load().enabled
    except Exception as error:
        why = " ".join(str(error).split())
        logging.getLogger(__name__).warning("sensorpool is not in effect: %s", why)
        return False
