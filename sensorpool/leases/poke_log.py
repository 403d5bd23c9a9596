"""The record of what each job poked, for `show`. It is kept in Redis for a while, and its loss does no harm.

The pokes of groups with a short interval have a key of their own: there are many of them, and they must not push out
those of groups with a long interval.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter

from sensorpool.leases.redis_store import RedisStore
from sensorpool.model.not_landed import NotLanded
from sensorpool.model.states import Outcome
from sensorpool.model.values import Milliseconds, Report, ShardRange

_CODES = {outcome: chr(ord("a") + i) for i, outcome in enumerate(Outcome)}
_OUTCOMES = {code: outcome for outcome, code in _CODES.items()}
SHORT = 600_000  # milliseconds: a longer interval is a long one
KEPT = {"pokes": 6 * SHORT, "seldom": 12 * 86_400_000}  # the keys, and for how many milliseconds a record is kept
_LONGEST_REASON = 300
_MOST_REASONS = 1_000  # in one record
TRACEBACKS = 32_768  # characters of tracebacks in one record
RECORDS, RECORDS_BYTES = 10_000, 2 * 2**20  # the most that is kept under one key, about


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

    def __init__(self, at: Milliseconds) -> None:
        self._parts = {name: _Part(at) for name in KEPT}

    def add(self, reports: Sequence[Report], offsets: Sequence[Milliseconds]) -> None:
        """Add pokes; an offset is the time from the record's `at` to the begin of the poke."""
        for report, offset in zip(reports, offsets, strict=True):
            self._parts[_name_of(report.group.poke_interval)].add(report, offset)

    def add_not_landed(self, each: NotLanded, offsets: Sequence[Milliseconds]) -> None:
        """Add pokes that found nothing."""
        names = {_name_of(interval) for interval in each.intervals}
        for name in names:
            ids, own = each.ids, offsets
            if len(names) > 1:
                places = [place for place, group in enumerate(each.groups) if _name_of(group.poke_interval) == name]
                ids, own = [each.ids[place] for place in places], [offsets[place] for place in places]
            self._parts[name].add_not_landed(ids, own, each.seconds)

    def texts(self) -> dict[str, str]:
        """Return a text for the groups of short intervals, and one for those of long intervals, if there are any."""
        return {name: part.text() for name, part in self._parts.items() if len(part)}

    def __len__(self) -> int:
        return sum(map(len, self._parts.values()))


class _Part:
    """The pokes of a record that are kept under one key."""

    __slots__ = ("_at", "_codes", "_ids", "_offsets", "_reasons", "_room", "_took", "_tracebacks")

    def __init__(self, at: Milliseconds) -> None:
        self._at = at
        self._ids: list[int] = []
        self._offsets: list[Milliseconds] = []
        self._codes: list[str] = []
        self._took: list[Milliseconds] = []
        self._reasons: dict[int, str] = {}
        self._tracebacks: dict[int, str] = {}
        self._room = TRACEBACKS

    def add(self, report: Report, offset: Milliseconds) -> None:
        place, trace = len(self._ids), report.trace
        self._ids.append(report.group.id)
        self._codes.append(_CODES[report.outcome])
        self._offsets.append(offset)
        self._took.append(int(report.seconds * 1000))
        if report.reason is None or len(self._reasons) >= _MOST_REASONS:
            return
        self._reasons[place] = report.reason[:_LONGEST_REASON]
        if trace is not None and trace.text is not None and len(trace.text) <= self._room:
            self._tracebacks[place] = trace.text
            self._room -= len(trace.text)

    def add_not_landed(self, ids: Sequence[int], offsets: Sequence[Milliseconds], seconds: float) -> None:
        self._ids += ids
        self._codes += [_CODES[Outcome.NOT_LANDED]] * len(ids)
        self._offsets += offsets
        self._took += [int(seconds * 1000)] * len(ids)

    def text(self) -> str:
        took = self._took if any(self._took) else ()  # a list that is too short goes on with zeros
        found = (self._at, "".join(self._codes), self._offsets, self._ids, self._reasons, took, self._tracebacks)
        return json.dumps(found, separators=(",", ":"))

    def __len__(self) -> int:
        return len(self._ids)


def _name_of(interval: Milliseconds) -> str:
    """Return the name of the key that keeps the pokes of groups with this interval."""
    return "pokes" if interval <= SHORT else "seldom"


class PokeLog:
    """The records of a pool's ranges.

    :raises Unreachable: by every method, when Redis does not answer.
    """

    def __init__(self, store: RedisStore) -> None:
        self._store = store

    def keep(self, shard_range: ShardRange, record: Record, now: Milliseconds) -> None:
        """Keep the record of a job; drop records that are too old, and the oldest of those that are too many."""
        pipeline = self._store.pipeline()
        for what, text in record.texts().items():
            name = self._store.key(shard_range, what)
            most = max(1, min(RECORDS, RECORDS_BYTES // len(text)))  # as many as there is room for, were all as long
            pipeline.zadd(name, {text: now})
            pipeline.zremrangebyscore(name, "-inf", now - KEPT[what])
            pipeline.zremrangebyrank(name, 0, -most - 1)
            pipeline.pexpire(name, KEPT[what])
        self._store.call(pipeline.execute)

    def records(self, shard_range: ShardRange) -> list[str]:
        """Return the records of all jobs of a range."""
        pipeline = self._store.pipeline()
        for name in KEPT:
            pipeline.zrange(self._store.key(shard_range, name), 0, -1)
        return [text for texts in self._store.call(pipeline.execute) for text in texts]


def latest_pokes(records: Iterable[str], group_ids: Collection[int] | None = None) -> dict[int, Poked]:
    """Find the last poke of each of these groups, or of all groups, in the records of their range."""
    latest: dict[int, Poked] = {}
    for group_id, poked in _read_all(records, group_ids):
        known = latest.get(group_id)
        if known is None or poked.at > known.at:
            latest[group_id] = poked
    return latest


def pokes_of(records: Iterable[str], group_id: int, most: int) -> list[Poked]:
    """Find the last pokes of a group in the records of its range, the earliest first."""
    name = str(group_id)
    of_group = (text for text in records if name in text)  # most are of other groups, and large
    found = {poked.at: poked for _, poked in _read_all(of_group, {group_id})}
    return [found[at] for at in sorted(found)[-most:]]


def _read_all(records: Iterable[str], group_ids: Collection[int] | None) -> Iterator[tuple[int, Poked]]:
    for text in records:
        at, codes, offsets, ids, reasons, took, tracebacks = _read(text)
        for place, (group_id, code, offset) in enumerate(zip(ids, codes, offsets, strict=False)):
            is_wanted = group_ids is None or group_id in group_ids
            if is_wanted and code in _OUTCOMES:  # a newer version may have more outcomes
                seconds = took[place] / 1000 if place < len(took) else 0.0
                yield group_id, Poked(
                    at + offset, _OUTCOMES[code], reasons.get(place), seconds, tracebacks.get(place)
                )  # fmt: skip


_Fields = tuple[int, str, list[int], list[int], dict[int, str], list[int], dict[int, str]]
_RECORD: TypeAdapter[_Fields] = TypeAdapter(_Fields)


def _read(text: str) -> _Fields:
    """Read a record; one that is not ours has no pokes."""
    try:
        return _RECORD.validate_json(text)
    except ValueError:
        return 0, "", [], [], {}, [], {}
