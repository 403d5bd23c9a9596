"""What one holder of a range leaves to the next, as text in Redis: lost at any time, or written over by anybody."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from sensorpool.model import Milliseconds

_HIGHEST = 253_402_300_799_999  # milliseconds: the end of the year 9999, far more than there will be ids
_GARBLED = (ValueError, TypeError, AttributeError, OverflowError, RecursionError)


@dataclass(slots=True)
class RangeState:
    """What a holder leaves to the next one. Times in milliseconds by the database's clock."""

    last: Milliseconds = 0  # the last load; 0: not known
    recent: list[int] = field(default_factory=list)  # new groups that were poked already and will be loaded again
    left: list[int] = field(default_factory=list)  # due groups that the last job did not get round to
    infra: dict[str, Milliseconds] = field(default_factory=dict)  # group id: infrastructure failures since
    holder: str = ""
    groups: int = 0
    pokes: int = 0
    lag_ms: Milliseconds = 0
    seconds: float = 0.0

    def text(self) -> str:
        """Return it as `read_state` reads it."""
        return json.dumps(asdict(self), separators=(",", ":"))


def read_state(text: str) -> RangeState:
    """Read what a holder left; a state that cannot be read counts as lost, whole."""
    try:
        found = json.loads(text) if text else {}
        return RangeState(
            last=_whole(found.get("last", 0)),
            recent=[_whole(group_id) for group_id in found.get("recent", ())],
            left=[_whole(group_id) for group_id in found.get("left", ())],
            infra={str(group_id): _whole(since) for group_id, since in found.get("infra", {}).items()},
            holder=str(found.get("holder", "")),
            groups=_whole(found.get("groups", 0)),
            pokes=_whole(found.get("pokes", 0)),
            lag_ms=_whole(found.get("lag_ms", 0)),
            seconds=float(found.get("seconds", 0.0)),
        )
    except _GARBLED:
        return RangeState()


def read_note(text: str) -> list[int]:
    """Read the ids of a note; one that cannot be read names nobody."""
    try:
        return [_whole(group_id) for group_id in json.loads(text)] if text else []
    except _GARBLED:
        return []


def _whole(value: Any) -> int:
    """Read an id or a time.

    :raises ValueError: when it is none that a database can be asked with, or a clock can say.
    """
    number = int(value)
    if not 0 <= number <= _HIGHEST:
        raise ValueError(f"{number} is no id, and no time")
    return number
