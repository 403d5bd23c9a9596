"""Any sensor that can be built again from its arguments."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, ClassVar, NoReturn

from airflow.sdk.bases.sensor import BaseSensorOperator
from airflow.sdk.bases.sensor import PokeReturnValue as Returned
from airflow.sdk.exceptions import (
    AirflowRescheduleException,
    AirflowTaskTerminated,
    DagRunTriggerException,
    DownstreamTasksSkipped,
    TaskAwaitingInput,
    TaskDeferred,
)

from sensorpool.airflow import compat
from sensorpool.airflow.errors import OnlyOnWorker, refuse
from sensorpool.airflow.pool.adapters.kept import Kept
from sensorpool.airflow.pool.adapters.landed import landing_of
from sensorpool.airflow.proof import (
    environment,
    known_sensors,
    left,
    own_execute,
    shared,
    supervisor,
    switches,
    taken_files,
    task_reads,
    worker_only,
)
from sensorpool.airflow.proof.rebuild import build
from sensorpool.errors import HandBack
from sensorpool.instrumentation.redaction import one_line
from sensorpool.model.values import PokeReturnValue

# what a task asks its task runner for by raising it
_FOR_A_WORKER = (
    *(AirflowRescheduleException, AirflowTaskTerminated, DagRunTriggerException),
    *(DownstreamTasksSkipped, TaskAwaitingInput, TaskDeferred),
)


class RebuiltSensor(Kept):
    """Stands in for a sensor class in the pool."""

    __slots__ = ("_built", "_is_new")
    sensor_class: ClassVar[type[BaseSensorOperator]]
    answers_alone: ClassVar[bool]  # whether it is known that its answers do not build on one another
    shared: ClassVar[shared.Picture | None]  # what the class shared when its first sensor had been built here
    ends_alone: ClassVar[bool]  # and whether nothing works with what the last one left

    def __init__(self, **poke_context: Any) -> None:
        super().__init__(poke_context)

    def build(self) -> BaseSensorOperator:
        """Build the sensor."""
        if names := switches.of_pool().put_back():
            compat.logger.warning("Pokes have changed %s of this process; it is put back.", ", ".join(names))
        sensor = build(self.sensor_class, self._arguments)
        self.look_around()
        self._built = None if self.ends_alone else left.Baseline(sensor)
        self._is_new = True
        return sensor

    def changed(self, sensor: Any) -> str | None:
        """Name an attribute that a poke has changed."""
        return None if self.answers_alone or self._built is None else min(self._built.changes(sensor), default=None)

    def look_around(self) -> None:
        """Look for a change of what the class shares: this process has it for all its sensors.

        :raises HandBack: when it has changed since the first sensor of the class was built here.
        """
        if self.answers_alone:
            return
        cls = type(self)
        if cls.shared is None:
            cls.shared = shared.Picture(self.sensor_class)
        elif (name := cls.shared.changed()) is not None:
            raise HandBack(f"pokes in the pool have changed {name}")
        else:
            cls.shared.grow()

    def poke(self, _: Mapping[str, Any]) -> Any:
        """Poke the sensor; what it returns for XCom is encoded."""
        try:
            found = self.use(self._poke, _FOR_A_WORKER)
        except _FOR_A_WORKER as error:
            raise HandBack(f"its poke raised {type(error).__name__}, which only a worker can follow") from None
        except OnlyOnWorker as error:
            raise HandBack(str(error)) from None
        except Exception as error:
            if (missed := worker_only.missed_by(error)) is not None:
                raise HandBack(missed) from None
            _look_at_switches()  # it may be an error by one of them
            raise
        if found is not True and found is not False:
            _refuse_without_truth(found)
        changed = self._changed_by_poke(bool(found))
        is_returned = isinstance(found, Returned)  # from no other result Airflow takes a value
        value = found.xcom_value if is_returned and found else None
        if value is None and not changed:
            return bool(found) if hasattr(found, "xcom_value") else found
        return PokeReturnValue(True, landing_of(value, self._operator, changed).as_xcom())

    def _poke(self, sensor: BaseSensorOperator) -> Any:
        with task_reads.insisting(sensor, self.may_miss, self.of_environment) as refused:
            return sensor.poke(NoContext(refused))

    def _changed_by_poke(self, landed: bool) -> Collection[str]:
        """Name the attributes that a poke has set which lands: each before it left the sensor as it was.

        :raises HandBack: when it finds nothing and has changed the sensor; or when a class or process is another one.
        """
        was_new, self._is_new = self._is_new, False
        if self._operator is None or self._built is None or (self.answers_alone and not landed):
            return ()
        names = self._built.changes(self._operator)
        if names and not landed:
            raise HandBack(f"its poke changes its attribute {min(names)}, which only its worker can keep")
        if landed or was_new:
            self.look_around()
            _look_at_switches()
        return names


def _look_at_switches() -> None:
    """Put back what pokes have changed of this process.

    :raises HandBack: if there was something: the answer may be another one by that.
    """
    if names := switches.of_pool().put_back():
        raise HandBack(f"pokes in the pool have changed {names[0]} of their process, which all of them share")


def _refuse_without_truth(found: Any) -> None:
    """Refuse a result of which it cannot be said whether it is true (a DataFrame): Airflow fails the task at once.

    :raises HandBack: then.
    """
    try:
        bool(found)
    except (Exception, OnlyOnWorker) as error:
        raise HandBack(f"its poke's result is neither true nor false: {one_line(error)}") from None


def adapt(cls: type[BaseSensorOperator]) -> type[RebuiltSensor]:
    """Return what is poked in the place of a sensor class."""
    compat.become_server()
    environment.refuse_names()
    worker_only.refuse_changes()
    taken_files.refuse()
    switches.of_pool()
    supervisor.stand_in()
    answers_alone = known_sensors.vouches_for_itself(cls)
    ends_alone = known_sensors.was_read(cls) or (
        answers_alone and not own_execute.goes_on(cls) and not compat.class_has_own(cls, "post_execute")
    )
    attributes = {"sensor_class": cls, "answers_alone": answers_alone, "ends_alone": ends_alone, "shared": None}
    return type(f"Rebuilt{cls.__name__}", (RebuiltSensor,), {"__slots__": (), **attributes})


class NoContext(dict[str, Any]):
    """The template context in the pool: there is none. A sensor that reads it goes back to its worker.

    :param refused: where that is remembered.
    """

    def __init__(self, refused: list[str]) -> None:
        super().__init__()
        self._refused = refused

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise refuse("its poke reads the template context, which only a worker has", self._refused)

    def __iter__(self) -> Iterator[str]:
        self._refuse()

    __getitem__ = get = __contains__ = keys = values = items = _refuse
    __len__ = _refuse  # bool() comes this way too
    __setitem__ = __delitem__ = __or__ = __ror__ = __ior__ = _refuse
    copy = pop = popitem = setdefault = update = clear = _refuse
