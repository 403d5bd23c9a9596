"""The record of what each job poked, for `show`: kept in Redis for a while, and no loss if it goes."""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from sensorpool.model import DueGroup, Milliseconds, Report
from sensorpool.states import Outcome

_CODES = {outcome: chr(ord("a") + i) for i, outcome in enumerate(Outcome)}
_OUTCOMES = {code: outcome for outcome, code in _CODES.items()}
_SHORTEST, _LONGEST = 60_000, 6 * 3_600_000  # milliseconds
_LONGEST_REASON = 300
_LATEST = 253_402_300_799_999  # milliseconds: the end of the year 9999
_MOST_REASONS = 1_000  # in one record


@dataclass(frozen=True, slots=True)
class Poked:
    """The last poke of a group."""

    at: Milliseconds
    outcome: Outcome
    reason: str | None = None


class Record:
    """What one job pokes."""

    __slots__ = ("_at", "_codes", "_ids", "_offsets", "_reasons")

    def __init__(self, at: Milliseconds) -> None:
        self._at = at
        self._ids: list[int] = []
        self._offsets: list[Milliseconds] = []
        self._codes: list[str] = []
        self._reasons: dict[int, str] = {}

    def add(self, reports: Sequence[Report], offsets: Sequence[Milliseconds]) -> None:
        """Note pokes, and when each began after the time of the record."""
        before = len(self._ids)
        self._ids += [report.group.id for report in reports]
        self._codes += [_CODES[report.outcome] for report in reports]
        self._offsets += offsets
        told = [(before + place, report.reason) for place, report in enumerate(reports) if report.reason is not None]
        for place, reason in told[: _MOST_REASONS - len(self._reasons)]:
            self._reasons[place] = reason[:_LONGEST_REASON]

    def expires(self, groups: Iterable[DueGroup]) -> Milliseconds:
        """Say until when it is of use: for two intervals of these groups, within limits."""
        longest = max((group.poke_interval for group in groups), default=0)
        return self._at + min(max(2 * longest, _SHORTEST), _LONGEST)

    def text(self) -> str:
        """Write it down."""
        fields: Sequence[object] = (self._at, "".join(self._codes), self._offsets, self._ids, self._reasons)
        return json.dumps(fields, separators=(",", ":"))

    def __len__(self) -> int:
        return len(self._ids)


def last_poke(records: Iterable[str], group_id: int) -> Poked | None:
    """Find the last poke of a group in the records of its range."""
    return latest_pokes(records, {group_id}).get(group_id)


def latest_pokes(records: Iterable[str], group_ids: Collection[int]) -> dict[int, Poked]:
    """Find the last poke of each of these groups in the records of their range."""
    latest: dict[int, Poked] = {}
    for text in records:
        try:
            for group_id, poked in _read(text, group_ids):
                known = latest.get(group_id)
                if known is None or poked.at > known.at:
                    latest[group_id] = poked
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError):
            continue  # garbled: it is for people, and no loss
    return latest


def _read(text: str, group_ids: Collection[int]) -> Iterator[tuple[int, Poked]]:
    at, codes, offsets, ids, *more = json.loads(text)  # an older version wrote no reasons
    reasons = more[0] if more else {}
    for index, group_id in enumerate(ids):
        if group_id in group_ids:
            reason, began = reasons.get(str(index)), int(at) + int(offsets[index])
            if not 0 <= began <= _LATEST:
                raise ValueError("no clock says so")
            yield group_id, Poked(began, _OUTCOMES[codes[index]], None if reason is None else str(reason))
