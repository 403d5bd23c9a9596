"""The lease: who may work on a shard range, and what one holder leaves to the next.

A holder takes the lease with a token of its own for ``lease_ttl``, renews it every ``heartbeat``, and gives it back
when its job ends::

    free ──acquire──▶ held ──extend──▶ held ──finish──▶ free
                       │ no renewal for lease_ttl
                       └──────────────▶ free (the next tick takes it)

A holder trusts itself until ``lease_ttl`` after the *start* of its last renewal that Redis confirmed, by its own
monotonic clock; then it stops poking, whatever Redis says. So two holders overlap only where Redis lost the lease or a
holder froze, and only until the next heartbeat.

The lease makes the pool efficient, not safe. What makes it safe is that facts carry the version of their group
(see `settle`): a holder that lost its lease can hand in what it saw, and harm nobody. Everything in Redis is
disposable. No lease, no poke: while Redis is away the pool waits.

Beside the lease of a range there are, all under one hash tag so that a script may touch them together:

``state``     what the last holder left: when it loaded, what it did not get round to, and figures for `status`
              (`range_state`)
``dirty``     raised by a registration that opened a group: look again at once (`dirty_flags`)
``late``      new groups whose registration took so long that the load would not take them for new
``note``      the groups in flight: they were handed to the poking threads; where the next holder finds them, the last
              one died with them in its hands, so they are suspects
``suspects``  groups that hung or were in a dead holder's hands: poked apart from the others until they are cleared
              (`suspects`)
``alone:N``   since when a process has had the suspect N in hand (`claims`)
``deaths``    how many processes that had poked a group died (`late_crashes`)
``overruns``  how many pokes in a row of a group overran their limit (`suspects`)
``unsettled`` groups whose result cannot be written: since when, and why not (`unsettled_groups`)
``poked``     groups that were left to other processes, and poked apart since: when (`poked_apart`)
``pokes``     what each job poked and saw, for `show`; expires, and never takes more than so much (``pokes_size``)
              (`poke_log`)

And one hash for all, ``sensorpool:{pool}:not_here``: which process cannot poke which classes (`complaints`).
"""

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sensorpool.config.settings import Settings
from sensorpool.errors import Unreachable
from sensorpool.leases.answers import pairs, read_ids
from sensorpool.leases.claims import Claims
from sensorpool.leases.connection import connect
from sensorpool.leases.dirty_flags import DirtyFlags
from sensorpool.leases.poke_log import PokeLog
from sensorpool.leases.poked_apart import PokedApart
from sensorpool.leases.range_state import RangeState, read_in_flight, read_state
from sensorpool.leases.redis_store import RedisStore
from sensorpool.leases.suspects import SuspectMarks, read_suspects
from sensorpool.leases.unsettled_groups import UnsettledGroups, read_unsettled
from sensorpool.model.suspicion import Suspicion
from sensorpool.model.values import ShardRange, Unsettled

_BY_ID = ("suspects", "overruns", "unsettled", "deaths", "poked")  # keys of a range that name groups by their ids


@dataclass(slots=True)
class Acquired:
    """A lease that was taken, and what the last holder left."""

    lease: "Lease"
    state: RangeState
    dirty: bool
    in_flight: list[int]  # groups that the last holder died with
    suspects: dict[int, Suspicion]
    lost_turn: list[int] = field(default_factory=list)  # suspects that are due whatever the time
    late: list[int] = field(default_factory=list)
    unsettled: dict[int, Unsettled] = field(default_factory=dict)


class Again(NamedTuple):
    """A range became dirty while it was worked on, so that its holder goes round once more."""

    late: list[int]


class Leases:
    """The leases of all ranges of a pool, and what lies beside them. Safe to share between threads.

    :param lease_ttl: seconds that a lease outlives its last renewal.
    :raises Unreachable: by every method, when Redis does not answer.
    """

    def __init__(self, store: RedisStore, *, lease_ttl: float) -> None:
        self.store = store
        self.ttl = lease_ttl
        self.ttl_ms = int(lease_ttl * 1000)
        self.dirty_flags = DirtyFlags(store, self.ttl_ms)
        self.suspects = SuspectMarks(store)
        self.claims = Claims(store)
        self.unsettled = UnsettledGroups(store)
        self.poked_apart = PokedApart(store)
        self.poke_log = PokeLog(store)
        self._acquire = store.script("acquire")
        self._extend = store.script("extend")
        self._finish = store.script("finish")
        self._release = store.script("release")

    def acquire(self, shard_range: ShardRange, token: str) -> Acquired | str:
        """Take the lease of a range; return it with what was left behind, or the token of who holds it."""
        started = time.monotonic()
        names = ("lease", "state", "dirty", "note", "suspects", "unsettled", "late")
        answer = self.store.run(self._acquire, self._keys(shard_range, *names), [token, self.ttl_ms])
        if not answer[0]:
            return str(answer[1])
        suspects, lost_turn = read_suspects(pairs(answer[4]))
        return Acquired(
            lease=Lease(self, shard_range, token, started + self.ttl),
            dirty=bool(answer[1]),
            late=read_ids(answer[6]),
            state=read_state(answer[2]),
            in_flight=read_in_flight(answer[3]),
            suspects=suspects,
            lost_turn=lost_turn,
            unsettled=read_unsettled(pairs(answer[5])),
        )

    def extend(self, shard_range: ShardRange, token: str) -> bool:
        """Renew a lease; return whether it is the holder's still."""
        return bool(self.store.run(self._extend, self._keys(shard_range, "lease"), [token, self.ttl_ms]))

    def put_in_flight(self, shard_range: ShardRange, group_ids: Sequence[int]) -> None:
        """Write down which groups are about to be poked: the next holder learns from it who was, when this one died."""
        self.store.call(self.store.client.set, self.store.key(shard_range, "note"), json.dumps(list(group_ids)))

    def finish(self, shard_range: ShardRange, token: str, state: RangeState, *, again: bool) -> Again | None:
        """Leave the state and give a lease back; if ``again`` and the range is dirty, keep the lease and say so."""
        keys = self._keys(shard_range, "lease", "state", "dirty", "note", "late")
        answer = self.store.run(self._finish, keys, [token, state.text(), "1" if again else "0", self.ttl_ms])
        return Again(read_ids(answer[1])) if answer[0] == 2 else None

    def release(self, shard_range: ShardRange, token: str) -> None:
        """Give a lease back, with no state. Its holder lives, so no group in flight is suspect."""
        self.store.run(self._release, self._keys(shard_range, "lease", "note"), [token])

    def free(self, shard_range: ShardRange, token: str) -> bool:
        """Give back the lease of a holder that is known to be dead; return whether it held it."""
        return bool(self.store.run(self._release, self._keys(shard_range, "lease"), [token]))

    def look(self, ranges: Sequence[ShardRange]) -> list[tuple[str | None, RangeState, int]]:
        """Return holder, state and number of suspects of each range."""
        pipeline = self.store.pipeline()
        for shard_range in ranges:
            pipeline.get(self.store.key(shard_range, "lease"))
            pipeline.get(self.store.key(shard_range, "state"))
            pipeline.hlen(self.store.key(shard_range, "suspects"))
        answers = self.store.call(pipeline.execute)
        return [(answers[i], read_state(answers[i + 1] or ""), int(answers[i + 2])) for i in range(0, len(answers), 3)]

    def forget_groups(self, shard_range: ShardRange) -> None:
        """Forget what is known of a range's groups by their ids."""
        self.store.call(self.store.client.delete, *self._keys(shard_range, *_BY_ID))

    def _keys(self, shard_range: ShardRange, *names: str) -> list[str]:
        return [self.store.key(shard_range, name) for name in names]


def leases_of(settings: Settings) -> Leases:
    """Return the leases of a pool.

    :raises SettingsError: when the URL is malformed or the embedded Redis is not installed.
    """
    url = settings.redis_url
    store = RedisStore(connect(url), url=url, namespace=settings.namespace)
    return Leases(store, lease_ttl=settings.lease_ttl)


class Lease:
    """One held lease. ``is_ours`` is what a poking thread asks; it costs a comparison."""

    def __init__(self, leases: Leases, shard_range: ShardRange, token: str, deadline: float) -> None:
        self.shard_range = shard_range
        self.token = token
        self._leases = leases
        self._deadline = deadline
        self._lost = threading.Event()

    def is_ours(self) -> bool:
        """Whether the holder may trust itself still."""
        return not self._lost.is_set() and time.monotonic() < self._deadline

    def extend(self) -> bool:
        """Renew the lease. A Redis that does not answer leaves us the time that we had."""
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
        """Write down which groups are about to be poked.

        :raises Unreachable: when Redis does not answer.
        """
        self._leases.put_in_flight(self.shard_range, group_ids)

    def finish(self, state: RangeState, *, again: bool = False) -> Again | None:
        """Leave the state and give the lease back; if ``again`` and the range is dirty, keep the lease and say so.

        :raises Unreachable: when Redis does not answer.
        """
        started = time.monotonic()
        goes_on = self._leases.finish(self.shard_range, self.token, state, again=again)
        if goes_on is not None:
            self._deadline = started + self._leases.ttl
        return goes_on

    def release(self) -> None:
        """Give the lease back and leave no state: what this job poked is due again. With Redis away it expires."""
        try:
            self._leases.release(self.shard_range, self.token)
        except Unreachable:
            self._lost.set()
