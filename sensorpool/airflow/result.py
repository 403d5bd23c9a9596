"""How an instance ended: told by the notifier to a trigger, in the trigger's event, and to the task that resumes.

A value for XCom is no part of an event. Airflow writes events into JSON columns and sends them between processes, and
what cannot be written so (NUL, half a surrogate pair, an integer of 80 bits, a deep list) ends the whole triggerer. So
an event names the instance, and the worker where the task resumes reads the value from the pool's database.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from sensorpool.model.states import Ending, State
from sensorpool.poke.answer import sanitised
from sensorpool.store import results

_VALUE_OF = "value_of"
_TYPE, _LANDING = "__type__", "landing"  # a value for XCom that is said as JSON never has that type
_PARTS = ("value", "attributes", "lost")


@dataclass(frozen=True, slots=True)
class InstanceResult:
    """How an instance ended.

    :param xcom_value: encoded (`codec`), where it has been read.
    :param value_of: the instance whose value is still to be read.
    """

    state: State
    ending: Ending
    reason: str | None = None
    xcom_value: Any = None
    value_of: int | None = None

    @classmethod
    def of(cls, row: Any) -> Self:
        """Say it of an instance that has ended, a row of `inspecting.waiters`. One written over is handed back."""
        try:
            state, ending = State(row.state), results.ending_of(row.ending, row.state)
        except ValueError:
            return cls.handed_back(f"the row of instance {row.id} cannot be read")
        has_value = state is State.SUCCESS and row.has_value
        return cls(state, ending, row.reason, value_of=row.id if has_value else None)

    @classmethod
    def handed_back(cls, why: str) -> Self:
        """Say that the task is to run natively."""
        return cls(State.CANCELLED, Ending.HANDED_BACK, why)

    def as_payload(self) -> dict[str, Any]:
        """Say it as the payload of a trigger's event: short, and of what every JSON column takes.

        A worker of a version that knows no ``value_of`` reads no state there, and runs the task natively.
        """
        if self.value_of is not None:
            return {_VALUE_OF: self.value_of}
        reason = None if self.reason is None else sanitised(str(self.reason))
        return {"state": str(self.state), "ending": str(self.ending), "reason": reason}

    @classmethod
    def read(cls, event: Any, fetch: Callable[[int], Self] | None = None) -> Self:
        """Read an event. ``airflow dags test`` hands over the payload of an end event: its state as a string.

        What cannot be read, of another version perhaps, counts as handed back: the task runs natively.

        :param fetch: reads how an instance ended, with its value, from the pool's database.
        """
        if str(event).rpartition(".")[2].lower() == State.SUCCESS:
            return cls(State.SUCCESS, Ending.LANDED)
        try:
            if _VALUE_OF in event and fetch is not None:
                return fetch(event[_VALUE_OF])
            return cls(State(event["state"]), Ending(event["ending"]), event.get("reason"), event.get("xcom_value"))
        except (TypeError, KeyError, ValueError, AttributeError):
            return cls.handed_back(f"the trigger's event cannot be read: {str(event)[:100]}")


@dataclass(frozen=True, slots=True)
class Landing:
    """What a poke that lands gives its task, as JSON: a second poke might not find it, for a poke may consume.

    :param value: for XCom.
    :param attributes: what the poke has set of its sensor.
    :param lost: the attributes that could not be carried, each with the reason; under "" the value.
    """

    value: Any = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    lost: Mapping[str, str] = field(default_factory=dict)

    def as_xcom(self) -> Any:
        """Say it in the place of a value for XCom. A version that does not know it has the task poke natively."""
        if not self.attributes and not self.lost:
            return self.value
        return {_TYPE: _LANDING, **{name: getattr(self, name) for name in _PARTS}}

    @classmethod
    def read(cls, xcom: Any) -> Self:
        """Read what `as_xcom` said, or a value."""
        if not isinstance(xcom, dict) or xcom.get(_TYPE) != _LANDING:
            return cls(xcom)
        return cls(xcom.get("value"), dict(xcom.get("attributes") or {}), dict(xcom.get("lost") or {}))
