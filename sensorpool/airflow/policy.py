"""The entry point ``airflow.policy``: called for every task that a process parses, in the dag processor and on workers.

A module that Airflow loads here imports no airflow at its top, does no I/O and never raises: a load error would be
fatal to every Airflow process.
"""

import importlib.util
import logging
import sys
from collections.abc import Callable, Generator
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pluggy

from sensorpool.airflow.proof.watch import process_start

hookimpl = pluggy.HookimplMarker("airflow.policy")

_failed = False
_TRIGGERER = "airflow.jobs.triggerer_job_runner"


class _OnImport(MetaPathFinder):
    """Has the triggerer patched once its module is imported, which happens in the triggerer alone."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:  # noqa: ARG002
        """Find the module as the other finders do."""
        if name != _TRIGGERER or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                _patch_triggerer(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _patch_triggerer(module: ModuleType) -> None:
    try:
        from sensorpool.airflow.compat import start_from_trigger
        from sensorpool.airflow.start import one_task
        from sensorpool.airflow.task.patch import RESUME
        from sensorpool.airflow.triggerer import direct_success, supervisor_reading

        supervisor_reading.install(module)
        direct_success.install(RESUME)
        if start_from_trigger.is_offered():
            one_task.install(module)
    except Exception:
        logging.getLogger(__name__).warning("sensorpool: the triggerer could not be patched", exc_info=True)


process_start.watch()
sys.meta_path.insert(0, _OnImport())


@hookimpl(wrapper=True, tryfirst=True)
def task_policy(task: Any) -> Generator[None, Any, Any]:
    """Patch the sensor classes, once a process; give a blueprint to a sensor that can begin without a worker.

    It is around the policies of the company, wherever they are installed, for a blueprint keeps what they change. What
    they return or raise passes through.
    """
    _unless_failed(lambda: _patch(task))
    result = yield
    _unless_failed(lambda: _give_blueprint(task))
    return result


def _patch(task: Any) -> None:
    from sensorpool.airflow.task import patch

    patch.install()
    if patch.takes_deferrable():
        patch.install_for(task)


def _give_blueprint(task: Any) -> None:
    from sensorpool.airflow.task import patch

    if patch.starts_without_worker():
        from sensorpool.airflow.start.parse import give_blueprint

        give_blueprint(task)


def _unless_failed(step: Callable[[], None]) -> None:
    """Take a step; after one that failed, which is logged, this process takes no more."""
    global _failed
    if _failed:
        return
    try:
        step()
    except Exception:
        _failed = True
        logging.getLogger(__name__).warning("sensorpool is not in effect: it could not be installed", exc_info=True)
