"""Sensors that can be built again from their arguments."""

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from types import FunctionType
from typing import Any, ClassVar, NoReturn, Self, cast

from airflow.sdk.bases.sensor import BaseSensorOperator
from airflow.sdk.bases.sensor import PokeReturnValue as Returned

from sensorpool.airflow.compat import operators, server_process
from sensorpool.airflow.compat.exceptions import REQUESTS_OF_TASK
from sensorpool.airflow.errors import OnlyOnWorker
from sensorpool.airflow.pool.adapters.kept_operator import Answer, KeptOperator
from sensorpool.airflow.pool.adapters.landing import landing_of
from sensorpool.airflow.proof import gates, known_sensors, own_execute
from sensorpool.airflow.proof.arguments import callables
from sensorpool.airflow.proof.arguments.rebuild import build_in_pool
from sensorpool.airflow.proof.state.judged_class import judged_class
from sensorpool.airflow.proof.state.sensor_state import Baseline
from sensorpool.airflow.proof.state.shared_state import SharedState
from sensorpool.airflow.proof.watch import (
    callable_context,
    consumed_files,
    environment_reads,
    hooks_in_pool,
    process_state,
    pushed_xcoms,
    supervisor_requests,
    worker_only,
)
from sensorpool.airflow.proof.watch.denials import deny
from sensorpool.errors import HandBack
from sensorpool.instrumentation.redaction import one_line
from sensorpool.model.values import PokeReturnValue


class RebuiltSensor(KeptOperator):
    """Stands in for a sensor class in the pool; a class derived from it does for sensors that take certain functions.

    :raises CannotPoke: when this process has not a function that the poke_context names (`callables`).
    """

    __slots__ = ("_baseline", "_is_new")
    sensor_class: ClassVar[type[BaseSensorOperator]]
    judged_class: ClassVar[type]  # `judged_class`
    functions: ClassVar[callables.Found]
    pushes: ClassVar[bool]  # `gates.Gate.pushes`
    declares_fields: ClassVar[bool]  # `known_sensors.declares_fields`
    imported_state: ClassVar[SharedState | None]  # before a sensor of the class was built here; None if stateless
    shared_state: ClassVar[SharedState | None]  # after the first sensor of the class was built here
    is_untracked: ClassVar[bool]  # stateless, and nothing after the last poke reads what it has set

    def __new__(cls, /, **poke_context: Any) -> Self:
        """Return an object of the class for the functions among its arguments."""
        functions = callables.find(callables.names_in(poke_context))
        plain: Any = cls
        return cast(Self, object.__new__(_with_functions(plain, tuple(functions.items())) if functions else plain))

    def __init__(self, **poke_context: Any) -> None:
        super().__init__(poke_context)

    def build(self) -> BaseSensorOperator:
        """Build the sensor."""
        if names := process_state.pool_state().restore():
            server_process.logger.warning("Pokes have changed %s of this process; it is restored.", ", ".join(names))
        sensor = build_in_pool(self.sensor_class, self._arguments, self.functions)
        self.check_shared_state()
        if self.pushes:
            vars(sensor).update(dict.fromkeys(pushed_xcoms.READS, False))
        self._baseline = None if self.is_untracked else Baseline(sensor)
        self._is_new = True
        return sensor

    def changed_attribute(self, sensor: Any) -> str | None:
        """Return the name of an attribute that a poke has changed."""
        if self.is_stateless or self._baseline is None:
            return None
        return min(self._baseline.changes(sensor), default=None)

    def check_shared_state(self) -> None:
        """Check the state that all sensors of the class share in this process.

        :raises HandBack: when it has changed since the first sensor of the class was built here, or when a constructor
            makes or changes a client that all of them share.
        """
        if self.is_stateless:
            return
        cls = type(self)
        if cls.shared_state is None:
            state = SharedState(self.judged_class)  # comes first: another thread may be building one
            if cls.imported_state is not None and (name := cls.imported_state.made_client()) is not None:
                raise HandBack(f"its constructor makes or changes {name}, which all sensors of a process share")
            cls.shared_state = state
        elif (name := cls.shared_state.changed()) is not None:
            raise HandBack(f"pokes in the pool have changed {name}")
        else:
            cls.shared_state.extend()

    def poke(self, _: Mapping[str, Any]) -> Any:
        """Poke the sensor; return its answer, with the value for XCom encoded."""
        try:
            found = self.use(self._poke, REQUESTS_OF_TASK)
        except REQUESTS_OF_TASK as error:
            raise HandBack(f"its poke raised {type(error).__name__}, which only a worker can follow") from None
        except OnlyOnWorker as error:
            raise HandBack(str(error)) from None
        except Exception as error:
            if (missed := worker_only.missed_by(error)) is not None:
                raise HandBack(missed) from None
            _restore_process()  # the error may come from a change of the process
            raise
        if found is not True and found is not False:
            _check_truth(found)
        changed = self._changed_by_poke(bool(found))
        is_returned = isinstance(found, Returned)  # Airflow takes a value from no other result
        value = found.xcom_value if is_returned and found else None
        if value is None and not changed:
            return bool(found) if hasattr(found, "xcom_value") else found
        return PokeReturnValue(True, landing_of(value, self._operator, changed).as_xcom())

    def share(self, ask: Callable[[Any], Answer]) -> Answer:
        """Ask for others as well, by the sensor that is kept here; what a poke may not do, this may not do either.

        :raises Exception: whatever ``ask`` raises.
        """

        def watched(sensor: BaseSensorOperator) -> Answer:
            with self.raising_denials(sensor):
                return ask(sensor)

        return self.use(watched, REQUESTS_OF_TASK)

    def _poke(self, sensor: BaseSensorOperator) -> Any:
        hooks = None if self.declares_fields else self.hooks
        why = hooks_in_pool.reason_before(sensor, hooks) if hooks and (self._is_new or hooks.states) else None
        if why is not None:
            raise OnlyOnWorker(why)
        with self.raising_denials(sensor, hooks) as denied:
            if not self.functions:
                return sensor.poke(self.context(denied))
            before = dict(vars(sensor))
            try:
                return sensor.poke(callable_context.CallableContext(self.context(denied)))
            finally:
                callable_context.put_back(sensor, before)

    def context(self, denied: list[str]) -> "NoContext":
        """Return the template context of a poke.

        :param denied: as `NoContext` takes it.
        """
        return PushingContext(denied) if self.pushes else NoContext(denied)

    def _changed_by_poke(self, landed: bool) -> Collection[str]:
        """Return the names of the attributes that a poke has set; a poke that does not land must set none.

        :raises HandBack: when a poke that does not land has changed the sensor, or when shared or process state has
            changed.
        """
        was_new, self._is_new = self._is_new, False
        if self._operator is None or self._baseline is None or (self.is_stateless and not landed):
            return ()
        names = self._baseline.changes(self._operator)
        if names and not landed:
            raise HandBack(f"its poke changes its attribute {min(names)}, which only its worker can keep")
        if landed or was_new:
            self.check_shared_state()
            _restore_process()
        return names


def _restore_process() -> None:
    """Restore the state of this process.

    :raises HandBack: if pokes have changed it: the answer may depend on that.
    """
    if names := process_state.pool_state().restore():
        raise HandBack(f"pokes in the pool have changed {names[0]} of their process, which all of them share")


def _check_truth(found: Any) -> None:
    """Check that a result is true or false; a DataFrame is neither, and Airflow fails its task at once.

    :raises HandBack: when it is neither.
    """
    try:
        bool(found)
    except (Exception, OnlyOnWorker) as error:
        raise HandBack(f"its poke's result is neither true nor false: {one_line(error)}") from None


def adapt(cls: type[BaseSensorOperator]) -> type[RebuiltSensor]:
    """Return what is poked in the place of a sensor class."""
    server_process.become_server()
    watch_process()
    supervisor_requests.stand_in()
    made: type[RebuiltSensor] = derived(RebuiltSensor, cls, {})
    return made


def watch_process() -> None:
    """Watch this process, one of the pool's, for what pokes may not do there."""
    environment_reads.deny_names()
    worker_only.deny_changes()
    consumed_files.deny_consumption()
    process_state.pool_state()
    hooks_in_pool.watch()


def derived(base: type[RebuiltSensor], cls: type[BaseSensorOperator], functions: callables.Found) -> Any:
    """Return a class derived from a stand-in, for the sensors of a class that take these functions."""
    plain: Any = cls
    judged = judged_class(plain, tuple(functions.values()))
    is_stateless = known_sensors.is_stateless(judged)
    is_untracked = known_sensors.is_reviewed(judged) or (
        is_stateless
        and not own_execute.continues_after_wait(cls)
        and not operators.class_overrides(cls, "post_execute")
    )
    gate = gates.known_gate(cls)
    attributes = {
        "sensor_class": cls,
        "pushes": gate is not None and gate.pushes,
        "judged_class": judged,
        "functions": functions,
        "is_stateless": is_stateless,
        "declares_fields": known_sensors.declares_fields(cls),
        "is_untracked": is_untracked,
        "imported_state": None if is_stateless else SharedState(judged, clients=True),
        "shared_state": None,
    }
    return type(f"Rebuilt{cls.__name__}", (base,), {"__slots__": (), **attributes})


@lru_cache(1_000)
def _with_functions(cls: Any, functions: tuple[tuple[str, FunctionType], ...]) -> Any:
    """Return the class for the sensors of a class that take these functions, given with their names."""
    return derived(cls, cls.sensor_class, dict(functions))


class NoContext(dict[str, Any]):
    """The template context in the pool, which has none: a sensor that reads it goes back to its worker.

    :param denied: notes the reason of a denial.
    """

    def __init__(self, denied: list[str]) -> None:
        super().__init__()
        self._denied = denied

    def _deny(self, *_: Any, **__: Any) -> NoReturn:
        raise deny("its poke reads the template context, which only a worker has", self._denied)

    def __iter__(self) -> Iterator[str]:
        self._deny()

    __getitem__ = get = __contains__ = keys = values = items = _deny
    __len__ = _deny  # bool() comes this way too
    __setitem__ = __delitem__ = __or__ = __ror__ = __ior__ = _deny
    copy = pop = popitem = setdefault = update = clear = _deny


class PushingContext(NoContext):
    """The template context in the pool for a poke that pushes XComs (`gates`): it has a ``ti`` that pushes nothing."""

    def __getitem__(self, name: str) -> Any:
        """Return the ``ti``, and deny all else."""
        return pushed_xcoms.SilentTi(self._denied) if name == pushed_xcoms.TI else self._deny()
