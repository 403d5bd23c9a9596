"""The record of what each job poked, for `show`. It is kept in Redis for a while, and its loss does no harm.

A job leaves a record for each span of intervals (up to one minute, four, sixteen, …). A record lives for twice the
longest interval in it. So a group is in a handful of records, whatever the intervals of other groups are.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sensorpool.leases.redis_store import Call, RedisStore
from sensorpool.model.not_landed import NotLanded
from sensorpool.model.states import Outcome
from sensorpool.model.values import Milliseconds, Report, ShardRange

_CODES = {outcome: chr(ord("a") + i) for i, outcome in enumerate(Outcome)}
_OUTCOMES = {code: outcome for outcome, code in _CODES.items()}
_SHORTEST, _LONGEST = 60_000, 2 * 86_400_000  # milliseconds that a record lives
_SPAN = 4  # beyond a minute, the longest interval of a record is at most so many times the shortest
_LONGEST_REASON = 300
_LATEST = 253_402_300_799_999  # milliseconds: the end of the year 9999
_MOST_REASONS = 1_000  # in one record
TRACEBACKS = 32_768  # characters of tracebacks in one record
RECORDS, RECORDS_BYTES = 10_000, 8 * 2**20  # the most that is kept for one range
HISTORY_BYTES = 2 * 2**20  # the most that is kept of the pokes before, for one range
HISTORY = 5  # so many times as long as a record lives, it is kept as history


@dataclass(frozen=True, slots=True)
class Poked:
    """A poke of a group."""

    at: Milliseconds
    outcome: Outcome
    reason: str | None = None
    seconds: float = 0.0
    traceback: str | None = None  # of its error; None also where the record had no room for it


class Record:
    """What one job pokes.

    :param at: the time from which the offsets of the pokes count.
    """

    __slots__ = ("_at", "_codes", "_ids", "_intervals", "_offsets", "_reasons", "_room", "_took", "_tracebacks")

    def __init__(self, at: Milliseconds) -> None:
        self._at = at
        self._ids: list[int] = []
        self._offsets: list[Milliseconds] = []
        self._codes: list[str] = []
        self._intervals: list[Milliseconds] = []
        self._took: list[Milliseconds] = []
        self._reasons: dict[int, str] = {}
        self._tracebacks: dict[int, str] = {}
        self._room = TRACEBACKS

    def add(self, reports: Sequence[Report], offsets: Sequence[Milliseconds]) -> None:
        """Add pokes; an offset is the time from the record's `at` to the begin of the poke."""
        before = len(self._ids)
        self._ids += [report.group.id for report in reports]
        self._codes += [_CODES[report.outcome] for report in reports]
        self._intervals += [report.group.poke_interval for report in reports]
        self._offsets += offsets
        self._took += [int(report.seconds * 1000) for report in reports]
        told = [(before + place, report.reason) for place, report in enumerate(reports) if report.reason is not None]
        for place, reason in told[: _MOST_REASONS - len(self._reasons)]:
            self._reasons[place] = reason[:_LONGEST_REASON]
            trace = reports[place - before].trace
            if trace is not None and trace.text is not None and len(trace.text) <= self._room:
                self._tracebacks[place] = trace.text
                self._room -= len(trace.text)

    def add_not_landed(self, each: NotLanded, offsets: Sequence[Milliseconds]) -> None:
        """Add pokes that found nothing."""
        number = len(each.ids)
        self._ids += each.ids
        self._codes += [_CODES[Outcome.NOT_LANDED]] * number
        alike = len(each.intervals) == 1
        self._intervals += [*each.intervals] * number if alike else [group.poke_interval for group in each.groups]
        self._offsets += offsets
        self._took += [int(each.seconds * 1000)] * number

    def texts(self) -> list[tuple[str, Milliseconds]]:
        """Return a text for each span of intervals, each with the time when it expires."""
        spans: dict[int, Milliseconds] = {}  # each span with its longest interval
        for interval in set(self._intervals):
            span = _span_of(interval)
            spans[span] = max(spans.get(span, 0), interval)
        if len(spans) == 1:
            return [(self._text(), self._expires(*spans.values()))]
        return [(self._of_span(span)._text(), self._expires(longest)) for span, longest in sorted(spans.items())]

    def _expires(self, longest: Milliseconds) -> Milliseconds:
        return self._at + min(max(2 * longest, _SHORTEST), _LONGEST)

    def _of_span(self, span: int) -> "Record":
        of_interval = {interval: _span_of(interval) == span for interval in set(self._intervals)}
        places = [place for place, interval in enumerate(self._intervals) if of_interval[interval]]
        part = Record(self._at)
        part._codes = [self._codes[place] for place in places]
        part._offsets, part._ids, part._took = (
            [values[place] for place in places] for values in (self._offsets, self._ids, self._took)
        )
        for new, place in enumerate(places):
            if place in self._reasons:
                part._reasons[new] = self._reasons[place]
            if place in self._tracebacks:
                part._tracebacks[new] = self._tracebacks[place]
        return part

    def _text(self) -> str:
        took = self._took if any(self._took) else ()  # a list that is too short goes on with zeros
        found = (self._at, "".join(self._codes), self._offsets, self._ids, self._reasons, took)
        return json.dumps((*found, self._tracebacks), separators=(",", ":"))

    def __len__(self) -> int:
        return len(self._ids)


class PokeLog:
    """The records of a pool's ranges.

    :raises Unreachable: by every method, when Redis does not answer.
    """

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self._keep = store.script("keep")

    def keep(self, shard_range: ShardRange, records: Sequence[tuple[str, Milliseconds]], now: Milliseconds) -> None:
        """Keep the records of a job until each expires. Expired ones become history; what is over the bounds goes."""
        self._store.run(*self.keeping(shard_range, records, now))

    def keeping(self, shard_range: ShardRange, records: Sequence[tuple[str, Milliseconds]], now: Milliseconds) -> Call:
        """Return the call of `keep`, to be sent together with others."""
        keys = [self._store.key(shard_range, name) for name in ("pokes", "pokes_size", "history", "history_size")]
        more = [part for record in records for part in record]
        return self._keep, keys, [now, RECORDS_BYTES, RECORDS, HISTORY_BYTES, HISTORY, *more]

    def records(self, shard_range: ShardRange) -> list[str]:
        """Return the records of all jobs of a range."""
        return self._read(shard_range, "pokes")

    def history(self, shard_range: ShardRange) -> list[str]:
        """Return the records of all jobs of a range, those that are kept as history before the others."""
        return [*self._read(shard_range, "history"), *self._read(shard_range, "pokes")]

    def _read(self, shard_range: ShardRange, name: str) -> list[str]:
        return list(self._store.call(self._store.client.zrange, self._store.key(shard_range, name), 0, -1))


def _span_of(interval: Milliseconds) -> int:
    """Return the number of the span of an interval: 0 up to a minute, 1 up to four, …"""
    span, longest = 0, _SHORTEST
    while longest < interval:
        span, longest = span + 1, longest * _SPAN
    return span


def latest_pokes(records: Iterable[str], group_ids: Collection[int]) -> dict[int, Poked]:
    """Find the last poke of each of these groups in the records of their range."""
    latest: dict[int, Poked] = {}
    for group_id, poked in _read_all(records, group_ids):
        known = latest.get(group_id)
        if known is None or poked.at > known.at:
            latest[group_id] = poked
    return latest


def last_outcomes(records: Iterable[str]) -> dict[int, Outcome]:
    """Find what the last poke of each group saw, in the records of their range."""
    latest: dict[int, tuple[Milliseconds, str]] = {}
    for text in records:
        try:
            at, codes, offsets, ids, *_ = json.loads(text)
            for group_id, code, offset in zip(ids, codes, offsets, strict=True):
                began = at + offset
                known = latest.get(group_id)
                if known is None or began > known[0]:
                    latest[group_id] = (began, code)
        except (ValueError, TypeError, OverflowError, RecursionError):
            continue  # a garbled record is no loss: records are for people
    return {group_id: _OUTCOMES[code] for group_id, (_, code) in latest.items() if code in _OUTCOMES}


def pokes_of(records: Iterable[str], group_id: int, most: int) -> list[Poked]:
    """Find the last pokes of a group in the records of its range, the earliest first."""
    name = str(group_id)
    of_group = (text for text in records if name in text)  # most are of other groups, and large
    found = {poked.at: poked for _, poked in _read_all(of_group, {group_id})}
    return [found[at] for at in sorted(found)[-most:]]


def _read_all(records: Iterable[str], group_ids: Collection[int]) -> Iterator[tuple[int, Poked]]:
    for text in records:
        try:
            yield from list(_read(text, group_ids))
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError):
            continue  # a garbled record is no loss: records are for people


def _read(text: str, group_ids: Collection[int]) -> Iterator[tuple[int, Poked]]:
    at, codes, offsets, ids, reasons, took, tracebacks = json.loads(text)
    for index, group_id in enumerate(ids):
        if group_id in group_ids:
            began = int(at) + int(offsets[index])
            if not 0 <= began <= _LATEST:
                raise ValueError(f"{began} is not a time")
            if codes[index] in _OUTCOMES:  # a newer version may have more outcomes
                seconds = int(took[index]) / 1000 if index < len(took) else 0.0
                reason, traceback = (_text_or_none(texts.get(str(index))) for texts in (reasons, tracebacks))
                yield group_id, Poked(began, _OUTCOMES[codes[index]], reason, seconds, traceback)


def _text_or_none(value: Any) -> str | None:
    return None if value is None else str(value)
