"""A shared call by an operator of the class: with its hook and its Connection, and watched as its pokes are."""

import threading
from collections import OrderedDict
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, ClassVar

from sensorpool.airflow.proof import known_sensors
from sensorpool.airflow.proof.arguments import external_inputs
from sensorpool.poke.shared_call import Question

_KEPT = 200  # operators


class ByOperator:
    """The base of shared calls. An operator is kept for each kin, as the pool keeps the operator of a group.

    :param found: what is poked in the place of the class (`adapters.sensor.RebuiltSensor`).
    :cvar shared: the arguments that sensors of one kin have in common, beside what `read` adds.
    :cvar known: all arguments that the call knows what to do with; a sensor with another one is poked by itself.
    :cvar structured: those that may be more than a text, a number, or a list of texts.
    """

    shared: ClassVar[Collection[str]] = ()
    known: ClassVar[Collection[str]] = ()
    structured: ClassVar[Collection[str]] = ()

    def __init__(self, found: Any) -> None:
        self._found = found
        self._contexts: OrderedDict[Hashable, Mapping[str, Any]] = OrderedDict()  # of the first sensor of each kin
        self._operators: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, arguments: Mapping[str, Any]) -> tuple[Hashable, Any] | None:
        """Return what more is common to the kin, and what is asked; None: the sensor is poked by itself."""
        raise NotImplementedError

    def answers(self, operator: Any, kin: Any, asked: Sequence[Any]) -> Sequence[bool]:
        """Ask the backend by an operator; return for each question whether it may hold.

        :param kin: what `read` has returned as common.
        """
        raise NotImplementedError

    def question(self, poke_context: Mapping[str, Any]) -> Question | None:
        """Return the question of a context, unless it has an argument that is not known, or is no plain JSON."""
        unknown = poke_context.keys() - set(self.known)
        if unknown and not (unknown == {external_inputs.NAME} and external_inputs.says_team_alone(poke_context)):
            return None
        if not all(name in self.structured or _is_plain(value) for name, value in poke_context.items()):
            return None
        if (read := self.read(poke_context)) is None:
            return None
        common = tuple(_hashable(poke_context.get(name)) for name in self.shared)
        kin = ((*common, external_inputs.team_of(poke_context)), read[0])
        with self._lock:
            _put(self._contexts, kin, poke_context)
        return Question(kin, read[1])

    def ask(self, kin: Any, asked: Sequence[Any]) -> Sequence[bool]:
        """Ask by the operator of a kin."""
        with self._lock:
            kept, context = self._operators.pop(kin, None), self._contexts.get(kin)
        if kept is None:
            if context is None:
                return [True] * len(asked)  # too many kins: each is poked by itself
            kept = self._found(**context)
        answers: Sequence[bool] = kept.share(lambda operator: self.answers(operator, kin[1], asked))
        with self._lock:
            _put(self._operators, kin, kept)
        return answers


def fits(cls: type, found: Any, native: type) -> bool:
    """Whether a class is a provider's own, and is poked as a provider's sensor."""
    return cls is native and hasattr(found, "share") and known_sensors.is_reviewed(cls)


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(each, str) for each in value)
    return value is None or isinstance(value, str | int | float | bool)


def _hashable(value: Any) -> Hashable:
    return tuple(value) if isinstance(value, list) else value


def _put(kept: OrderedDict[Any, Any], kin: Hashable, value: Any) -> None:
    if kin not in kept and len(kept) >= _KEPT:
        kept.popitem(last=False)
    kept.setdefault(kin, value)
