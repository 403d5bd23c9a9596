"""How an instance waits: AIP-17's execution_context, as one value and as its text in the row of the instance. Pure."""

import json
from typing import Any, NamedTuple, Self

from sensorpool.model.json_text import read_json
from sensorpool.model.values import LONGEST_SPAN

_PLAIN_INTERVAL = 60.0  # seconds


class ExecutionContext(NamedTuple):
    """How to wait. Spans in seconds. Never part of the identity.

    ``timeout`` counts from registration, and one poke always comes before it takes effect. ``exponential_backoff``
    doubles the interval after each poke, up to ``max_wait``. ``soft_fail``, ``silent_fail`` and ``never_fail`` mean the
    same as in Airflow's BaseSensorOperator.
    """

    poke_interval: float
    timeout: float
    execution_timeout: float | None = None
    exponential_backoff: bool = False
    max_wait: float | None = None
    soft_fail: bool = False
    silent_fail: bool = False
    never_fail: bool = False

    @classmethod
    def from_text(cls, text: str, waits_for: float) -> Self:
        """Read the text of a row. A value that was edited by hand reads as the default: it must not stop the flush.

        :param waits_for: seconds from the start of the instance to its deadline: the timeout if the text has none.
        """
        said = read_json(text)
        if not isinstance(said, dict):
            said = {}
        poke_interval, timeout = _span(said, "poke_interval"), _span(said, "timeout")
        return cls(
            poke_interval=_PLAIN_INTERVAL if poke_interval is None else poke_interval,
            timeout=waits_for if timeout is None else timeout,
            execution_timeout=_span(said, "execution_timeout"),
            exponential_backoff=bool(said.get("exponential_backoff")),
            max_wait=_span(said, "max_wait"),
            soft_fail=bool(said.get("soft_fail")),
            silent_fail=bool(said.get("silent_fail")),
            never_fail=bool(said.get("never_fail")),
        )

    def as_text(self) -> str:
        """Return the values that are set, as JSON."""
        return json.dumps({name: v for name, v in self._asdict().items() if v is not None and v is not False})

    @property
    def ends_execution(self) -> bool:
        """Whether the execution_timeout ends the wait, rather than the timeout."""
        return self.execution_timeout is not None and self.execution_timeout < self.timeout

    @property
    def limit(self) -> float:
        """Seconds after which the wait ends."""
        return self.timeout if self.execution_timeout is None else min(self.timeout, self.execution_timeout)


def _span(said: dict[str, Any], name: str) -> float | None:
    value = said.get(name)
    is_span = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LONGEST_SPAN
    return value if is_span else None
