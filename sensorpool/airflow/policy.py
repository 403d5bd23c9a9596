"""The entry point ``airflow.policy``: called for every task that a process parses, in the dag processor and on workers.

A module that Airflow loads here imports no airflow at its top, does no I/O and never raises: a load error would be
fatal to every Airflow process.
"""

import logging
from typing import Any

import pluggy

from sensorpool.airflow.proof.watch import process_start

hookimpl = pluggy.HookimplMarker("airflow.policy")

_failed = False
process_start.watch()


@hookimpl
def task_policy(task: Any) -> None:  # noqa: ARG001  # the hook's signature
    """Patch the sensor classes, once a process; tasks stay as they are."""
    global _failed
    if _failed:
        return
    try:
        from sensorpool.airflow.task.patch import install

        install()
    except Exception:
        _failed = True
        logging.getLogger(__name__).warning("sensorpool is not in effect: it could not be installed", exc_info=True)
