"""A sensor for a moment."""

import time
from datetime import datetime
from typing import Any, ClassVar

from sensorpool.sensors import arguments


class TimeSensor:
    """Holds from a moment on.

    The clock is the worker's. Airflow's DateTimeSensor, which also takes ``target_time``, holds only after
    it.

    :param target_time: ISO 8601 with an offset: ``2030-01-31T06:00:00+01:00`` or ``2030-01-31T05:00:00Z``.
        A datetime with a time zone will do.
    :raises TypeError: when it is neither.
    :raises ValueError: when it is no ISO 8601 time, or has no offset.
    """

    __module__ = "sensorpool.sensors"  # one spelling of the class path, wherever the class is reached from
    poke_context_fields: ClassVar[tuple[str, ...]] = ("target_time",)

    def __init__(self, target_time: str | datetime) -> None:
        if isinstance(target_time, datetime):
            target_time = target_time.isoformat()
        self.target_time = arguments.text("target_time", target_time)
        try:
            moment = datetime.fromisoformat(target_time.strip())
        except ValueError:
            raise ValueError(
                f"target_time {target_time[:80]!r} is not an ISO 8601 time like 2030-01-31T06:00:00+01:00"
            ) from None
        if moment.utcoffset() is None:
            raise ValueError(f"target_time {target_time!r} has no offset: append Z for UTC or +01:00")
        self._timestamp = moment.timestamp()

    def poke(self, context: Any = None) -> bool:  # noqa: ARG002  # every sensor's poke takes one
        """Return whether the moment has come."""
        return time.time() >= self._timestamp
