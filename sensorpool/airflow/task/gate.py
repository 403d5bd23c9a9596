"""A task that waited at a gate (`proof.gates`): after a landing in the pool its own poke decides, on its worker.

It is a native poke within the sensor's own ``execute``, with its context. If it finds nothing, the task waits in the
pool again: registered anew, with the rest of its timeout and the start of its wait. A worker starts for each such
poke. So after a few of them, where the pool and the worker do not see the same, the task goes on natively.
"""

from typing import Any

from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.proof.gates import gate_of
from sensorpool.airflow.result import InstanceResult
from sensorpool.airflow.task import deferral
from sensorpool.airflow.task.native_continuation import Native, continue_natively
from sensorpool.airflow.task.wait import wait_again
from sensorpool.model.states import Ending, State

MOST_FLAPS = 3


def is_confirmed(sensor: Any, result: InstanceResult, flaps: Any) -> bool:
    """Whether the task's own poke follows a result of the pool.

    :param flaps: the argument of the resume method; None if the task has waited at no gate.
    """
    gate = gate_of(sensor)
    if gate is None and flaps is None:
        return False
    has_error = gate is not None and gate.confirms_errors and result.ending is Ending.POKE_ERROR
    return result.state is State.SUCCESS or has_error


def confirm(sensor: Any, context: Any, native: Native, began: float, flaps: int) -> Any:
    """Poke natively; end as that says, or wait in the pool again.

    :param began: when the task began to wait, in seconds since 1970.
    :param flaps: how often its own poke has found nothing.
    :raises BaseException: whatever BaseSensorOperator.execute raises.
    :raises TaskDeferred: when it waits in the pool again.
    """
    sensor.log.info("sensorpool: its poke landed in the pool, and is made once more on this worker")
    if flaps >= MOST_FLAPS:
        why = f"{flaps} times its poke has landed in the pool, and has found nothing on its worker"
        deferral.report_native(sensor, NotPoolable(why, "flaps"))
        return continue_natively(sensor, context, native, began)
    return wait_again(sensor, context, native, began, flaps + 1)
