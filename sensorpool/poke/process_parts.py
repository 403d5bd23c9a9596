"""What all jobs of one process poke with: the classes, their imports, their slots and their shared calls."""

from typing import Any

from sensorpool.config.settings import Settings
from sensorpool.model.values import Milliseconds
from sensorpool.poke.answer import Answers
from sensorpool.poke.classes import RETRY_AFTER, Classes, SensorClass, Way
from sensorpool.poke.imports import Imports
from sensorpool.poke.shared_call import SharedCalls
from sensorpool.poke.slots import Slots
from sensorpool.poke.tools import PokeTools
from sensorpool.poke.unit import PokeUnit


class ProcessParts:
    """The parts that the jobs of a process share, and how the groups of a class are asked by them."""

    def __init__(self, settings: Settings) -> None:
        self.classes = Classes(settings.sensors_enabled, retry_after=RETRY_AFTER)
        self.imports = Imports(self.classes)
        self.tools = PokeTools(self.classes, Answers(settings.infra_failures), {})
        self.shared_calls = SharedCalls()
        self.concurrency = settings.poke_concurrency
        self.poke_timeout = settings.poke_timeout  # seconds
        self._slots, self._loop_slots = Slots(self.concurrency, of_threads=True), Slots(self.concurrency)

    def slots_of(self, op_classpath: str) -> Slots:
        """Return the slots that a class shares with other classes."""
        found = self.classes.known(op_classpath)
        return self._loop_slots if found is not None and found.way is Way.ASYNC else self._slots

    def is_bulk(self, op_classpath: str) -> bool:
        """Whether one call is known to answer many contexts of a class."""
        found = self.classes.known(op_classpath)
        return found is not None and (found.way is Way.MANY or self.shares(found))

    def shares(self, sensor_class: SensorClass) -> bool:
        """Whether groups of a class are asked for by shared calls now; quick pokes cost less than that."""
        path = sensor_class.op_classpath
        return sensor_class.shared is not None and self.shared_calls.is_on(path) and not self.tools.is_quick(path)

    def call_of(self, unit: PokeUnit, now: Milliseconds = 0) -> Any:
        """Return what names the call by which a group is asked for together with others; None: it is asked alone.

        :param now: the database's time, for `PokeUnit.may_share`.
        """
        found = self.classes.known(unit.op_classpath)
        if found is None:
            return None
        if found.way is Way.MANY:
            return found.op_classpath
        if self.shares(found) and self.may_share(found, unit, now):
            return (found.op_classpath, unit.question.kin)
        return None

    def may_share(self, sensor_class: SensorClass, unit: PokeUnit, now: Milliseconds) -> bool:
        """Whether a group of a class with shared calls may be asked for by one.

        :param now: the database's time, for `PokeUnit.may_share`.
        """
        if not unit.may_share(sensor_class, now):
            return False
        return self.shared_calls.is_on(sensor_class.op_classpath, unit.question.kin)
