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

``state``       what the last holder left: when it loaded, which due groups it left over, and figures for `status`
                (`range_state`)
``dirty``       raised by a registration that opened a group: look again at once (`dirty_flags`)
``late``        new groups whose registration took so long that the load would not take them for new; and groups to
                be poked at once
``nudged``      a job was sent for wake-ups a moment ago (`wake_ups`)
``note``        the groups in flight: they were handed to the lanes; if the next holder finds them, the last holder died
                while it poked them
``background``  what each process pokes outside of jobs (`background_notes`)
``pokes``       what each job poked and saw, for `show`; it expires, and its size is bounded (``pokes_size``)
                (`poke_log`)
``history``     the same of the pokes before, with a bound of its own (``history_size``)

What decides how a group is poked next, as a failure or a strike, is in the database (`store.troubles`).
"""

import json
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import uuid4

from sensorpool.config.settings import Settings
from sensorpool.errors import Unreachable
from sensorpool.leases.answers import pairs, read_late
from sensorpool.leases.background_notes import InBackground, Isolated, isolated, read_background, spell_background
from sensorpool.leases.connection import connect
from sensorpool.leases.dirty_flags import DirtyFlags
from sensorpool.leases.poke_log import PokeLog
from sensorpool.leases.range_files import RangeFiles
from sensorpool.leases.range_state import RangeState, read_in_flight, read_state
from sensorpool.leases.redis_store import RedisStore
from sensorpool.leases.wake_ups import WakeUps
from sensorpool.model.values import Milliseconds, ShardRange

_NAMES = ("lease", "state", "dirty", "late", "nudged", "note", "background", "pokes", "pokes_size", "history")
_NAMES_GROUPS = ("note", "background", "late", "state")  # keys of a range that name groups by their ids


@dataclass(slots=True)
class Acquired:
    """A lease that was acquired, and what the last holder left.

    :ivar struck: groups whose process died with their poke in hand.
    """

    lease: "Lease"
    state: RangeState
    dirty: bool
    late: list[int] = field(default_factory=list)
    struck: list[int] = field(default_factory=list)
    background: InBackground = field(default_factory=InBackground)


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
        self.poke_log = PokeLog(store)
        self._files: RangeFiles | None = None  # of a process whose keys end with it
        self._acquire = store.script("acquire")
        self._extend = store.script("extend")
        self._finish = store.script("finish")
        self._release = store.script("release")
        self._note = store.script("note")
        self._owner = uuid4().hex  # this process, in notes on what it pokes outside of jobs

    def acquire(self, shard_range: ShardRange, token: str) -> Acquired | str:
        """Acquire the lease of a range; return it with what the last holder left, or the present holder's token."""
        started = time.monotonic()
        names = ("lease", "state", "dirty", "note", "background", "late")
        try:
            answer = self.store.run(self._acquire, self._keys(shard_range, *names), [token, self.ttl_ms])
        except Unreachable as error:
            if "WRONGTYPE" in str(error):  # another program wrote there: the next job finds nothing
                self.store.call(self.store.client.delete, *self._keys(shard_range, *_NAMES))
            raise
        if not answer[0]:
            return str(answer[1])
        background = read_background(pairs(answer[4]), int(answer[6]))
        return Acquired(
            lease=Lease(self, shard_range, token, started + self.ttl),
            dirty=bool(answer[1]),
            state=read_state(answer[2]),
            late=read_late(answer[5]),
            struck=[*read_in_flight(answer[3]), *background.struck],
            background=background,
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
        """Record what is in flight in files too; take up what the last process left there.

        :returns: how many groups that process had in flight when it died.
        """
        self._files = files
        left = {shard_range: group_ids for shard_range in ranges if (group_ids := files.take(shard_range))}
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
        dead: Sequence[str],
    ) -> Again | None:
        """Leave the state of a range and give its lease back.

        :param again: keep the lease of a range that is dirty, and return `Again` for it.
        :param records: what was poked (`poke_log`), each with the time when it expires.
        :param dead: processes whose notes have been dealt with.
        """
        started, shard_range = time.monotonic(), lease.shard_range
        names = ("lease", "state", "dirty", "note", "late", "background")
        arguments = [lease.token, state.text(), "1" if again else "0", self.ttl_ms, *dead]
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

    def look(self, ranges: Sequence[ShardRange]) -> list[tuple[str | None, RangeState]]:
        """Return the holder's token (None: no holder) and the state of each range."""
        pipeline = self.store.pipeline()
        for shard_range in ranges:
            pipeline.get(self.store.key(shard_range, "lease"))
            pipeline.get(self.store.key(shard_range, "state"))
        answers = self.store.call(pipeline.execute)
        return [(answers[i], read_state(answers[i + 1] or "")) for i in range(0, len(answers), 2)]

    def note_background(self, shard_range: ShardRange, slow: Sequence[int], isolated: Isolated, span: float) -> None:
        """Record what this process pokes outside of jobs from now on: see `background_notes`.

        :param slow: groups that it pokes itself.
        :param span: seconds for which the note holds.
        """
        if self._files is not None:
            self._files.put_background(shard_range, slow)
        text = spell_background(slow, isolated) if slow or isolated.ids else ""
        arguments = [self._owner, round(span * 1000), text]
        self.store.run(self._note, self._keys(shard_range, "background"), arguments)

    def isolated(self, ranges: Sequence[ShardRange]) -> list[list[Isolated]]:
        """Return what processes have noted of groups that they poke in child processes, for each range."""
        return isolated(self.store, ranges)

    def forget_groups(self, shard_range: ShardRange) -> None:
        """Delete all keys of a range that name groups by their ids."""
        self.store.call(self.store.client.delete, *self._keys(shard_range, *_NAMES_GROUPS))

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
        dead: Sequence[str] = (),
    ) -> Again | None:
        """Leave the state and give the lease back: see `Leases.finish`.

        :raises Unreachable: when Redis does not answer.
        """
        return self._leases.finish(self, state, again=again, records=records, dead=dead)

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
