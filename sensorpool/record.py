"""The record of what each job poked, for `show`: kept in Redis for a while, and no loss if it goes."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sensorpool.model import Milliseconds
from sensorpool.states import Outcome

_CODES = {outcome: chr(ord("a") + i) for i, outcome in enumerate(Outcome)}
_OUTCOMES = {code: outcome for outcome, code in _CODES.items()}


@dataclass(frozen=True, slots=True)
class Poked:
    """The last poke of a group."""

    at: Milliseconds
    outcome: Outcome


class Record:
    """What one job pokes."""

    __slots__ = ("_at", "_codes", "_ids", "_offsets")

    def __init__(self, at: Milliseconds) -> None:
        self._at = at
        self._ids: list[int] = []
        self._offsets: list[int] = []
        self._codes: list[str] = []

    def add(self, group_id: int, began_at: Milliseconds, outcome: Outcome) -> None:
        """Note one poke."""
        self._ids.append(group_id)
        self._offsets.append(began_at - self._at)
        self._codes.append(_CODES[outcome])

    def text(self) -> str:
        """Write it down."""
        fields: Sequence[object] = (self._at, "".join(self._codes), self._offsets, self._ids)
        return json.dumps(fields, separators=(",", ":"))

    def __len__(self) -> int:
        return len(self._ids)


def last_poke(records: Iterable[str], group_id: int) -> Poked | None:
    """Find the last poke of a group in the records of its range."""
    latest: Poked | None = None
    for text in records:
        try:
            at, codes, offsets, ids = json.loads(text)
            index = ids.index(group_id)
            poked = Poked(at + offsets[index], _OUTCOMES[codes[index]])
        except (ValueError, KeyError, TypeError, IndexError):
            continue
        if latest is None or poked.at > latest.at:
            latest = poked
    return latest
