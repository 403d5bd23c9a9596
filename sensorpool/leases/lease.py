"""The lease: who may work on a shard range, and what one holder leaves to the next.

A holder takes the lease with a token of its own for ``lease_ttl``, renews it every ``heartbeat``, and gives it back
when its job ends::

    free ──acquire──▶ held ──extend──▶ held ──finish──▶ free
                       │ no renewal for lease_ttl
                       └──────────────▶ free (the next tick takes it)

A holder trusts its lease until ``lease_ttl`` after the *start* of the last renewal that Redis confirmed, by its own
monotonic clock; then it stops poking, whatever Redis says. So two holders overlap only where Redis lost the lease or a
holder froze, and only until the next heartbeat.

The lease makes the pool efficient, not safe. The versions of groups make it safe (see `settle`): a holder that lost
its lease can still hand in its facts, and they do no harm. Everything in Redis is disposable. Without a lease no group
is poked: while Redis is away the pool waits.

Each range has these keys beside its lease, all under one hash tag so that one script may touch them together:

``state``     what the last holder left: when it loaded, which due groups it left over, and figures for `status`
              (`range_state`)
``dirty``     raised by a registration that opened a group: look again at once (`dirty_flags`)
``late``      new groups whose registration took so long that the load would not take them for new; and groups to
              be poked at once
``nudged``    a job was sent for wake-ups a moment ago (`wake_ups`)
``note``      the groups in flight: they were handed to the lanes; if the next holder finds them, the last holder died
              while it poked them, so they are suspects
``suspects``  groups that hung or were in a dead holder's hands: poked apart from the others until they are cleared
              (`suspects`)
``alone:N``   which process has the suspect N in hand, and since when (`claims`)
``overruns``  how many pokes of a group in a row overran their limit (`suspects`)
``unsettled`` groups whose result cannot be written: since when, and why not (`unsettled_groups`)
``failing``   groups whose pokes outside of jobs end in infrastructure failures, and since when; or answered after
              such failures, and when (`outside_failures`)
``poked``     groups that one process left to the others, and when another process poked them (`poked_apart`)
``pokes``     what each job poked and saw, for `show`; it expires, and its size is bounded (``pokes_size``)
              (`poke_log`)
``history``   the same of the pokes before, with a bound of its own (``history_size``)

A hash serves the whole pool: ``sensorpool:{pool}:not_here``, which process cannot poke which classes (`complaints`).
"""

import json
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from sensorpool.config.settings import Settings
from sensorpool.errors import Unreachable
from sensorpool.leases.answers import pairs, read_late
from sensorpool.leases.claims import Claims
from sensorpool.leases.connection import connect
from sensorpool.leases.dirty_flags import DirtyFlags
from sensorpool.leases.outside_failures import OutsideFailures, read_told, spell
from sensorpool.leases.poke_log import PokeLog
from sensorpool.leases.poked_apart import PokedApart
from sensorpool.leases.range_files import RangeFiles
from sensorpool.leases.range_state import RangeState, read_in_flight, read_state
from sensorpool.leases.redis_store import RedisStore
from sensorpool.leases.suspects import SuspectMarks, read_suspects
from sensorpool.leases.unsettled_groups import UnsettledGroups, read_unsettled
from sensorpool.leases.wake_ups import WakeUps
from sensorpool.model.suspicion import Suspicion
from sensorpool.model.values import NOTHING_TOLD, Failing, Milliseconds, ShardRange, Told, Unsettled

_BY_ID = (
    "suspects",
    "overruns",
    "unsettled",
    "failing",
    "poked",
)  # keys of a range that name groups by their ids


@dataclass(slots=True)
class Acquired:
    """A lease that was acquired, and what the last holder left."""

    lease: "Lease"
    state: RangeState
    dirty: bool
    in_flight: list[int]  # groups that the last holder poked when it died
    suspects: dict[int, Suspicion]
    lost_turn: list[int] = field(default_factory=list)  # suspects that are due whatever the time
    late: list[int] = field(default_factory=list)
    poked_apart: dict[int, Milliseconds] = field(default_factory=dict)  # stranded groups that others poked, and when
    unsettled: dict[int, Unsettled] = field(default_factory=dict)
    told: Told = NOTHING_TOLD  # of pokes outside of jobs


class Again(NamedTuple):
    """The range became dirty during the job, so its holder loads once more."""

    late: list[int]


class Leases:
    """The leases of all ranges of a pool, and the keys beside them. Safe to share between threads.

    :param lease_ttl: seconds that a lease outlives its last renewal.
    :raises Unreachable: by every method, when Redis does not answer.
    """

    def __init__(self, store: RedisStore, *, lease_ttl: float) -> None:
        self.store = store
        self.ttl = lease_ttl
        self.ttl_ms = int(lease_ttl * 1000)
        self.dirty_flags = DirtyFlags(store, self.ttl_ms)
        self.wake_ups = WakeUps(store, self.ttl_ms)
        self.suspects = SuspectMarks(store)
        self.claims = Claims(store)
        self.unsettled = UnsettledGroups(store)
        self.outside_failures = OutsideFailures(store)
        self.poked_apart = PokedApart(store)
        self.poke_log = PokeLog(store)
        self._files: RangeFiles | None = None  # of a process whose keys end with it
        self._acquire = store.script("acquire")
        self._extend = store.script("extend")
        self._finish = store.script("finish")
        self._release = store.script("release")

    def acquire(self, shard_range: ShardRange, token: str) -> Acquired | str:
        """Acquire the lease of a range; return it with what the last holder left, or the present holder's token."""
        started = time.monotonic()
        names = ("lease", "state", "dirty", "note", "suspects", "unsettled", "late", "failing")
        answer = self.store.run(self._acquire, self._keys(shard_range, *names), [token, self.ttl_ms])
        return self._read(shard_range, answer, token, started)

    def _read(self, shard_range: ShardRange, answer: Any, token: str, started: float) -> Acquired | str:
        if not answer[0]:
            return str(answer[1])
        suspects, lost_turn = read_suspects(pairs(answer[4]))
        return Acquired(
            lease=Lease(self, shard_range, token, started + self.ttl),
            dirty=bool(answer[1]),
            late=read_late(answer[6]),
            state=read_state(answer[2]),
            in_flight=read_in_flight(answer[3]),
            suspects=suspects,
            lost_turn=lost_turn,
            unsettled=read_unsettled(pairs(answer[5])),
            told=read_told(pairs(answer[7])),
        )

    def extend(self, shard_range: ShardRange, token: str) -> bool:
        """Renew a lease; return whether the holder still has it."""
        return bool(self.store.run(self._extend, self._keys(shard_range, "lease"), [token, self.ttl_ms]))

    def put_in_flight(self, shard_range: ShardRange, group_ids: Sequence[int]) -> None:
        """Record which groups are about to be poked. If this holder dies, the next one reads them as suspects."""
        if self._files is not None:
            self._files.put_in_flight(shard_range, group_ids)
        self.store.call(self.store.client.set, self.store.key(shard_range, "note"), json.dumps(group_ids))

    def keep_in_files(self, files: RangeFiles, ranges: Collection[ShardRange]) -> int:
        """Record what is in flight, and the suspects, in files too; take up what the last process left there.

        :returns: how many groups that process had in flight when it died.
        """
        self._files = files
        self.suspects.keep_in_files(files, ranges)
        left = {shard_range: group_ids for shard_range in ranges if (group_ids := files.in_flight(shard_range))}
        for shard_range, group_ids in left.items():
            self.put_in_flight(shard_range, group_ids)
        return sum(map(len, left.values()))

    def finish(
        self,
        lease: "Lease",
        state: RangeState,
        *,
        again: bool,
        records: Sequence[tuple[str, Milliseconds]],
        taken: Mapping[int, Failing | Milliseconds],
    ) -> Again | None:
        """Leave the state of a range and give its lease back.

        :param again: keep the lease of a range that is dirty, and return `Again` for it.
        :param records: what was poked (`poke_log`), each with the time when it expires.
        :param taken: what the state has of what was told of pokes outside of jobs, by group id.
        """
        started, shard_range = time.monotonic(), lease.shard_range
        told = [text for group_id, each in taken.items() for text in (str(group_id), spell(each))]
        names = ("lease", "state", "dirty", "note", "late", "failing")
        arguments = [lease.token, state.text(), "1" if again else "0", self.ttl_ms, *told]
        calls = [self.poke_log.keeping(shard_range, records, state.last)] if records else []
        calls.append((self._finish, self._keys(shard_range, *names), arguments))
        answer = self.store.run_each(calls)[-1]
        if self._files is not None:
            self._files.put_in_flight(shard_range, [])
        if answer[0] != 2:
            return None
        lease.is_kept_since(started)
        return Again(read_late(answer[1]))

    def release(self, shard_range: ShardRange, token: str) -> None:
        """Give a lease back and leave no state. Its holder lives, so no group in flight is suspect."""
        self.store.run(self._release, self._keys(shard_range, "lease", "note"), [token])
        if self._files is not None:
            self._files.put_in_flight(shard_range, [])

    def free(self, shard_range: ShardRange, token: str) -> bool:
        """Give back the lease of a holder that is dead, or about to die; return whether that holder had it."""
        return bool(self.store.run(self._release, self._keys(shard_range, "lease"), [token]))

    def look(self, ranges: Sequence[ShardRange]) -> list[tuple[str | None, RangeState, int]]:
        """Return the holder's token (None: no holder), the state and the number of suspects of each range."""
        pipeline = self.store.pipeline()
        for shard_range in ranges:
            pipeline.get(self.store.key(shard_range, "lease"))
            pipeline.get(self.store.key(shard_range, "state"))
            pipeline.hlen(self.store.key(shard_range, "suspects"))
        answers = self.store.call(pipeline.execute)
        return [(answers[i], read_state(answers[i + 1] or ""), int(answers[i + 2])) for i in range(0, len(answers), 3)]

    def with_groups(self, ranges: Sequence[ShardRange]) -> list[ShardRange]:
        """Return the ranges that have suspects or unsettled groups, or keys of theirs that are not ours."""
        pipeline = self.store.pipeline()
        for shard_range in ranges:
            pipeline.exists(*self._keys(shard_range, "suspects", "unsettled"))
        return [each for each, found in zip(ranges, self.store.call(pipeline.execute), strict=True) if found]

    def forget_groups(self, shard_range: ShardRange) -> None:
        """Delete all keys of a range that name groups by their ids."""
        self.store.call(self.store.client.delete, *self._keys(shard_range, *_BY_ID))
        if self._files is not None:
            self._files.put_suspects(shard_range, {})

    def _keys(self, shard_range: ShardRange, *names: str) -> list[str]:
        return [self.store.key(shard_range, name) for name in names]


def leases_of(settings: Settings, *, patience: float | None = None) -> Leases:
    """Return the leases of a pool.

    :param patience: seconds after which a call without an answer ends; None: as is usual.
    :raises SettingsError: when the URL is malformed or the embedded Redis is not installed.
    """
    url = settings.redis_url
    store = RedisStore(connect(url, patience=patience), url=url, namespace=settings.namespace)
    return Leases(store, lease_ttl=settings.lease_ttl)


class Lease:
    """One held lease. A job asks `is_ours` before it hands pokes to its lanes; it costs a comparison."""

    def __init__(self, leases: Leases, shard_range: ShardRange, token: str, deadline: float) -> None:
        self.shard_range = shard_range
        self.token = token
        self._leases = leases
        self._deadline = deadline
        self._lost = threading.Event()

    def is_ours(self) -> bool:
        """Whether the holder still has the lease, by its own clock."""
        return not self._lost.is_set() and time.monotonic() < self._deadline

    def extend(self) -> bool:
        """Renew the lease; return `is_ours`. If Redis does not answer, the lease keeps its deadline."""
        started = time.monotonic()
        try:
            ours = self._leases.extend(self.shard_range, self.token)
        except Unreachable:
            return self.is_ours()
        if ours:
            self._deadline = started + self._leases.ttl
        else:
            self._lost.set()
        return self.is_ours()

    def put_in_flight(self, group_ids: Sequence[int]) -> None:
        """Record which groups are about to be poked.

        :raises Unreachable: when Redis does not answer.
        """
        self._leases.put_in_flight(self.shard_range, group_ids)

    def finish(
        self,
        state: RangeState,
        *,
        again: bool = False,
        records: Sequence[tuple[str, Milliseconds]] = (),
        taken: Mapping[int, Failing | Milliseconds] = MappingProxyType({}),
    ) -> Again | None:
        """Leave the state and give the lease back: see `Leases.finish`.

        :raises Unreachable: when Redis does not answer.
        """
        return self._leases.finish(self, state, again=again, records=records, taken=taken)

    def is_kept_since(self, started: float) -> None:
        """Note that Redis has renewed the lease; its question began then, by the monotonic clock."""
        self._deadline = started + self._leases.ttl

    def release(self) -> None:
        """Give the lease back and leave no state: this job's groups are due again. While Redis is away, it expires."""
        try:
            self._leases.release(self.shard_range, self.token)
        except Unreachable:
            self._lost.set()

    def give_up(self) -> None:
        """Give the lease back as of a dead holder: what is in flight is suspect. While Redis is away, it expires."""
        try:
            self._leases.free(self.shard_range, self.token)
        except Unreachable:
            self._lost.set()
