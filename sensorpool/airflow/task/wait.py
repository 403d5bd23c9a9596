"""A sensor's way into the pool: its condition is proved, it pokes once on its worker, registers and leaves its slot."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow.sdk.bases.sensor import BaseSensorOperator

from sensorpool.airflow.compat import task_runtime
from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.proof.arguments import dag_file, external_inputs
from sensorpool.airflow.proof.arguments.rebuild import with_first_poke
from sensorpool.airflow.proof.gates import Gate, gate_of
from sensorpool.airflow.task import (
    class_proof,
    deferral,
    own_deferral,
    poolable,
    reschedule_condition,
    reschedule_limits,
)
from sensorpool.airflow.task.backend import backend_of
from sensorpool.airflow.task.first_poke import FirstPoke
from sensorpool.airflow.task.location import location_of
from sensorpool.airflow.task.native_continuation import continue_natively
from sensorpool.airflow.task.patch import Execute, begins_on_worker
from sensorpool.airflow.task.poolable import Condition
from sensorpool.airflow.task.saved_attributes import save
from sensorpool.airflow.task.series import series_of
from sensorpool.model.values import Registered, Registration

FLAPS = "flaps"  # the argument of the resume method: how often the task's own poke has found nothing


@dataclass(frozen=True, slots=True)
class Wait:
    """A sensor that may wait in the pool.

    :param resume_arguments: for the resume method.
    :param gate: at which it waits; None if it needs none.
    :param began: when the try began to wait, in seconds since 1970; None if it has not waited yet.
    :param flaps: how often its own poke has found nothing after a landing in the pool.
    :param is_first: whether no poke of the try was made on a worker yet.
    """

    condition: Condition
    resume_arguments: Mapping[str, Any]
    gate: Gate | None
    began: float | None = None
    flaps: int = 0
    is_first: bool = True

    @classmethod
    def of(
        cls,
        sensor: BaseSensorOperator,
        context: Any,
        began: float | None = None,
        flaps: int = 0,
        *,
        is_first: bool = True,
    ) -> "Wait":
        """Return the wait of a poolable sensor that has not poked in this process.

        :raises NotPoolable: with the reason why it runs natively.
        """
        ours = deferral.airflow_settings()
        condition = poolable.condition_of(sensor, context, deferral.pool().settings, ours)
        resume_arguments: dict[str, Any] = (
            reschedule_condition.resume_arguments(condition) | reschedule_limits.resume_arguments(sensor)
            if sensor.reschedule
            else save(sensor)
        )
        gate = gate_of(sensor, ours.gates_enabled)
        if gate is not None:
            resume_arguments[FLAPS] = flaps
        return cls(condition, resume_arguments, gate, began, flaps, is_first)

    def enter(self, sensor: BaseSensorOperator, context: Any, native: Execute) -> Any:
        """Poke once, register and defer; or run natively, with the reason in the log.

        :raises TaskDeferred: when it waits in the pool.
        """
        waits: list[tuple[Registered, bool, float]] = []  # the instance, whether it ends directly, and its timeout

        def register() -> None:
            waits.append(self._register(sensor, context, first))

        # a poke that follows a landing is not watched: the sensor's first one was
        is_watched = not self.condition.adapted and self.is_first
        limit = deferral.pool().settings.poke_timeout if is_watched else None
        given = dag_file.names_given(self.condition.poke_context) if self.condition.of_dag_file else frozenset[str]()
        first = FirstPoke(sensor, native, limit, register, given, self.gate)
        if self.began is not None or deferral.airflow_settings().first_poke == "worker":
            result = first.poke(context)
            if first.ended:
                return result
            if first.refused:
                return own_deferral.natively(sensor, native)(sensor, context)
        else:
            try:
                register()
            except Exception as error:
                deferral.report_native(sensor, error)
                return own_deferral.natively(sensor, native)(sensor, context)
        instance, direct, timeout = waits[0]
        deferral.defer(
            sensor,
            instance,
            direct=direct,
            timeout=timeout,
            started=self.began or first.began,
            at_gate=self.gate is not None,
            **self.resume_arguments,
        )

    def _register(self, sensor: BaseSensorOperator, context: Any, first: FirstPoke) -> tuple[Registered, bool, float]:
        timeout = max(0.0, sensor.timeout - first.waited)
        waited = first.waited if self.began is None else time.time() - self.began
        key = deferral.key_of(context["ti"])
        poke_context = self._poke_context(sensor, context, first)
        registration = Registration(
            sensor=self.condition.op_classpath,
            poke_context=poke_context,
            key=key,
            timeout=timeout,
            execution_timeout=_execution_timeout(sensor, waited),
            external_id=str(context["ti"].id),
            backend=backend_of(sensor, poke_context),
            location=location_of(sensor, poke_context),
            **series_of(poke_context, context),
            **deferral.waits_of(sensor),
        )
        direct = (
            self.gate is None
            and poolable.ends_directly(sensor, context)
            and not (sensor.reschedule and reschedule_condition.may_change(sensor, self.condition))
        )
        deferral.check_secrets(poke_context)
        if self.began is not None:
            deferral.forget(key)
        instance = deferral.register(registration)
        if first.hears_lookups and self.gate is None and not self.condition.of_dag_file:
            class_proof.note(sensor, self.condition.op_classpath, poke_context)
        return instance, direct, timeout

    def _poke_context(self, sensor: BaseSensorOperator, context: Any, first: FirstPoke) -> Mapping[str, Any]:
        if self.condition.adapted:
            return self.condition.poke_context
        missing = first.missing if first.is_watched else None
        if self.condition.of_dag_file:
            found = (missing, first.of_environment, first.hooks)
            return dag_file.with_first_poke(sensor, context, self.condition.poke_context, *found)
        if not self.is_first:
            earlier = deferral.registered_condition(deferral.key_of(context["ti"]))
            if earlier is not None:  # its first poke was watched, and this one is not
                return external_inputs.with_first_poke_of(self.condition.poke_context, earlier)
        poked = self.condition.poked
        again = external_inputs.with_current_shared_state(poked, self.condition.poke_context)
        return with_first_poke(type(poked), again, missing, first.of_environment, first.hooks)


def wait_in_pool(sensor: BaseSensorOperator, context: Any, native: Execute) -> Any:
    """Have a sensor wait in the pool; or run it natively, with the reason in the log.

    :raises TaskDeferred: when it waits in the pool.
    """
    try:
        wait = Wait.of(sensor, context)
    except Exception as error:
        deferral.report_native(sensor, error)
        return own_deferral.natively(sensor, native)(sensor, context)
    if (reason := begins_on_worker.get((sensor.dag_id, sensor.task_id))) is not None:
        sensor.log.info("sensorpool: it begins on a worker: %s", reason[0])
        task_runtime.count_metric("begins_on_worker", {"reason": reason[1]})
    return wait.enter(sensor, context, native)


def wait_anew(sensor: BaseSensorOperator, context: Any, native: Execute, began: float) -> Any:
    """Have a sensor that began in the pool without a worker wait there anew, with a first poke on this worker.

    The pool did not find a Connection or Variable, and only a poke on a worker tells whether the sensor may do without.

    :param began: when the sensor began to wait, in seconds since 1970.
    :raises TaskDeferred: when it waits in the pool.
    """
    task_runtime.count_metric("begins_on_worker", {"reason": "missing"})
    return wait_again(sensor, context, native, began, is_first=True)


def wait_again(
    sensor: BaseSensorOperator, context: Any, native: Execute, began: float, flaps: int = 0, *, is_first: bool = False
) -> Any:
    """Have a sensor that has waited in the pool wait there again; or go on natively, with the reason in the log.

    :param began: when it began to wait, in seconds since 1970.
    :param flaps: as `Wait` has it, like ``is_first``.
    :raises TaskDeferred: when it waits in the pool.
    """
    try:
        if not deferral.airflow_settings().enabled:
            raise NotPoolable("[sensorpool] enabled is off", "disabled")
        if own_deferral.is_aside(sensor) and deferral.airflow_settings().deferrable != "pool":
            raise NotPoolable("it defers by itself", "own_work")
        wait = Wait.of(sensor, context, began, flaps, is_first=is_first)
    except Exception as error:
        deferral.report_native(sensor, error)
        return continue_natively(sensor, context, own_deferral.natively(sensor, native), began)
    return continue_natively(sensor, context, lambda *_: wait.enter(sensor, context, native), began)


def _execution_timeout(sensor: BaseSensorOperator, waited: float) -> float | None:
    """Return the seconds left of the execution_timeout; in reschedule mode the time between pokes does not count."""
    if sensor.execution_timeout is None or sensor.reschedule:
        return None
    seconds: float = sensor.execution_timeout.total_seconds()
    return max(0.0, seconds - waited)
