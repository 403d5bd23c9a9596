"""The result of an instance: from the notifier to a trigger, in the trigger's event, to the task that resumes.

A value for XCom is no part of an event. Airflow writes events into JSON columns and sends them between processes, and a
value that cannot pass (NUL, half a surrogate pair, an integer of 80 bits, a deep list) ends the whole triggerer. So an
event names the instance, and the worker on which the task resumes reads the value from the pool's database.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from sensorpool.model.states import Ending, State
from sensorpool.poke.answer import sanitised

_VALUE_OF = "value_of"
_AT_GATE = "at_gate"
# parts of the event of a sensor that began to wait without a worker: why it starts on one, as a text and for a metric,
# and when it began to wait
START_ON_WORKER, START_ON_WORKER_KIND, STARTED = "start_on_worker", "start_on_worker_kind", "started"
# why a task is handed back, where neither the pool nor its class is the cause
NEXT_POKE, TRIGGER_FAILED = "its next poke is due", "its trigger has failed in Airflow's triggerer"
_TYPE, _LANDING = "__type__", "landing"  # no encoded value for XCom has that type
_PARTS = ("value", "attributes", "lost")


@dataclass(frozen=True, slots=True)
class InstanceResult:
    """The result of an instance.

    :param xcom_value: encoded (`codec`), if it has been read.
    :param value_of: the id of the instance whose value is still to be read.
    """

    state: State
    ending: Ending
    reason: str | None = None
    xcom_value: Any = None
    value_of: int | None = None

    @classmethod
    def of(cls, row: Any) -> Self:
        """Return the result of an instance that has ended; handed back if the row has odd values.

        :param row: of `inspecting.waiters`.
        """
        try:
            state, ending = State(row.state), Ending(row.ending)
        except ValueError:
            return cls.handed_back(f"the row of instance {row.id} cannot be read")
        has_value = state is State.SUCCESS and row.has_value
        return cls(state, ending, row.reason, value_of=row.id if has_value else None)

    @classmethod
    def handed_back(cls, why: str) -> Self:
        """Return the result of a task that has to run natively, with the reason."""
        return cls(State.CANCELLED, Ending.HANDED_BACK, why)

    def as_payload(self, *, at_gate: bool = False) -> dict[str, Any]:
        """Return the payload of a trigger's event: short, and with values that every JSON column takes.

        :param at_gate: whether the task waits at a gate: its own poke makes the value.
        """
        if at_gate:
            return {_AT_GATE: replace(self, value_of=None).as_payload()}
        if self.value_of is not None:
            return {_VALUE_OF: self.value_of}
        reason = None if self.reason is None else sanitised(str(self.reason))
        return {"state": str(self.state), "ending": str(self.ending), "reason": reason}

    @classmethod
    def read(cls, event: Any, fetch: Callable[[int], Self] | None = None) -> Self:
        """Return the result in an event; for an end event, ``airflow dags test`` passes its state as a string.

        An unreadable event, from another version perhaps, counts as handed back: the task runs natively.

        :param fetch: reads the result of an instance, with its value, from the pool's database.
        """
        if str(event).rpartition(".")[2].lower() == State.SUCCESS:
            return cls(State.SUCCESS, Ending.LANDED)
        try:
            event = event.get(_AT_GATE, event)
            if _VALUE_OF in event and fetch is not None:
                return fetch(event[_VALUE_OF])
            return cls(State(event["state"]), Ending(event["ending"]), event.get("reason"))
        except (TypeError, KeyError, ValueError, AttributeError):
            return cls.handed_back(f"the trigger's event cannot be read: {str(event)[:100]}")


@dataclass(frozen=True, slots=True)
class Landing:
    """What a poke that lands gives its task, as JSON: a second poke may find nothing, for a poke may consume.

    :param value: for XCom.
    :param attributes: the attributes that the poke has set.
    :param lost: the attributes that could not be carried, each with the reason; under "" the value.
    """

    value: Any = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    lost: Mapping[str, str] = field(default_factory=dict)

    def as_xcom(self) -> Any:
        """Return the landing in the place of a value for XCom."""
        if not self.attributes and not self.lost:
            return self.value
        return {_TYPE: _LANDING, **{name: getattr(self, name) for name in _PARTS}}

    @classmethod
    def read(cls, xcom: Any) -> Self:
        """Return the landing of `as_xcom`, or one of a bare value."""
        if not isinstance(xcom, dict) or xcom.get(_TYPE) != _LANDING:
            return cls(xcom)
        return cls(xcom.get("value"), dict(xcom.get("attributes") or {}), dict(xcom.get("lost") or {}))
