"""What the pool saw of an instance: from the hub to a trigger, in the trigger's event, and to the task that resumes."""

from dataclasses import asdict, dataclass
from typing import Any, Self

from sensorpool.model import Settled
from sensorpool.publish import result_of
from sensorpool.states import Ending, State


@dataclass(frozen=True, slots=True)
class Saw:
    """How an instance ended. ``xcom_value`` is encoded (`codec`)."""

    state: State
    ending: Ending
    reason: str | None = None
    xcom_value: Any = None

    @classmethod
    def of(cls, settled: Settled) -> Self:
        """Say it of a settled instance."""
        said = result_of(settled)
        return cls(settled.state, settled.ending, settled.reason, said["xcom_value"])

    def as_payload(self) -> dict[str, Any]:
        """Say it as the payload of a trigger's event."""
        return asdict(self) | {"state": str(self.state), "ending": str(self.ending)}

    @classmethod
    def read(cls, event: Any) -> Self:
        """Read an event. ``airflow dags test`` hands over the payload of an end event: its state as a string.

        What cannot be read, of another version perhaps, counts as handed back: the task runs natively.
        """
        if str(event).rpartition(".")[2].lower() == State.SUCCESS:
            return cls(State.SUCCESS, Ending.LANDED)
        try:
            return cls(State(event["state"]), Ending(event["ending"]), event.get("reason"), event.get("xcom_value"))
        except (TypeError, KeyError, ValueError, AttributeError):
            why = f"the trigger's event cannot be read: {str(event)[:100]}"
            return cls(State.CANCELLED, Ending.HANDED_BACK, why)
