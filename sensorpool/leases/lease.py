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
``dirty``       raised by a registration that opened a group, and by a wake-up: look again at once (`waking`)
``woken``       groups to be poked at once
``nudged``      a job was sent for wake-ups a moment ago
``note``        the groups in flight: they were handed to the lanes; if the next holder finds them, the last holder died
                while it poked them
``background``  what each process pokes outside of jobs (`background_notes`)
``pokes``       what each job poked and saw, for `show`; it expires, and its size is bounded (`poke_log`)
``seldom``      the same of groups with a long interval

The pool has these keys to itself. Where a value is not ours, all keys of its range are deleted, and the next job finds
nothing.

What decides how a group is poked next, as a failure or a strike, is in the database (`store.troubles`).
"""

import json
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import uuid4

from sensorpool.config.settings import Settings
from sensorpool.errors import Unreachable
from sensorpool.instrumentation.logs import logger
from sensorpool.leases.background_notes import InBackground, Isolated, read_background, read_isolated, spell_note
from sensorpool.leases.poke_log import KEPT, PokeLog
from sensorpool.leases.range_state import RangeState, read_ids, read_state
from sensorpool.leases.redis_store import RedisStore, connect
from sensorpool.leases.standalone_files import InFlightFiles
from sensorpool.leases.waking import Waking
from sensorpool.model.values import ShardRange

_NAMES_GROUPS = ("note", "background", "woken", "state")  # keys of a range that name groups by their ids
_NAMES = (*_NAMES_GROUPS, "lease", "dirty", "nudged", *KEPT)

Value = TypeVar("Value")

log = logger(__name__)


@dataclass(slots=True)
class Acquired:
    """A lease that was acquired, and what the last holder left.

    :ivar woken: groups to be poked at once.
    :ivar struck: groups whose process died with their poke in hand.
    """

    lease: "Lease"
    state: RangeState
    dirty: bool
    woken: list[int] = field(default_factory=list)
    struck: list[int] = field(default_factory=list)
    background: InBackground = field(default_factory=InBackground)


class Leases:
    """The leases of all ranges of a pool, and the keys beside them. Safe to share between threads.

    :param lease_ttl: seconds that a lease outlives its last renewal.
    :ivar files: the files of a process whose keys end with it.
    :raises Unreachable: by every method, when Redis does not answer.
    """

    def __init__(self, store: RedisStore, *, lease_ttl: float) -> None:
        self.store = store
        self.ttl = lease_ttl
        self.ttl_ms = int(lease_ttl * 1000)
        self.waking = Waking(store, self.ttl_ms)
        self.poke_log = PokeLog(store)
        self.files: InFlightFiles | None = None
        self._owner = uuid4().hex  # this process, in notes on what it pokes outside of jobs

    def acquire(self, shard_range: ShardRange, token: str) -> Acquired | str:
        """Acquire the lease of a range; return it with what the last holder left, or the present holder's token."""
        began = time.monotonic()
        keys = self._keys(shard_range, "lease", "state", "dirty", "note", "background", "woken")
        try:
            answer = self.store.run("acquire", keys, [token, self.ttl_ms])
            if not answer[0]:
                return str(answer[1])
            _, dirty, state, note, notes, woken, now = answer
            background = read_background(dict(zip(notes[::2], notes[1::2], strict=True)), int(now))
            return Acquired(
                lease=Lease(self, shard_range, token, began + self.ttl),
                state=read_state(state),
                dirty=bool(dirty),
                woken=read_ids(woken),
                struck=[*read_ids(note), *background.struck],
                background=background,
            )
        except (Unreachable, ValueError) as error:
            if isinstance(error, Unreachable) and "WRONGTYPE" not in str(error):
                raise
            log.error("a key of ours has a value that is not ours; the range begins anew", shard_range=str(shard_range))
            self.store.call(self.store.client.delete, *self._keys(shard_range, *_NAMES))
            raise Unreachable(f"Redis had values of others for range {shard_range}: they are deleted") from error

    def take_up(self, files: InFlightFiles, ranges: Collection[ShardRange]) -> int:
        """Record what is in flight in files too, and take up what the last process left there.

        :returns: how many groups that process had in flight when it died.
        """
        self.files = files
        left = {shard_range: group_ids for shard_range in ranges if (group_ids := files.take(shard_range))}
        for shard_range, group_ids in left.items():
            self.put_in_flight(shard_range, group_ids)
        return sum(map(len, left.values()))

    def put_in_flight(self, shard_range: ShardRange, group_ids: Sequence[int]) -> None:
        """Record which groups are about to be poked. If the holder dies, the next one strikes them."""
        if self.files is not None:
            self.files.put_in_flight(shard_range, group_ids)
        self.store.call(self.store.client.set, self.store.key(shard_range, "note"), json.dumps(group_ids))

    def free(self, shard_range: ShardRange, token: str) -> bool:
        """Give back the lease of a holder that is dead, or about to die; return whether that holder had it."""
        return bool(self.store.run("release", self._keys(shard_range, "lease"), [token]))

    def look(self, ranges: Sequence[ShardRange]) -> list[tuple[str | None, RangeState]]:
        """Return the holder's token (None: no holder) and the state of each range."""
        pipeline = self.store.pipeline()
        for shard_range in ranges:
            pipeline.get(self.store.key(shard_range, "lease"))
            pipeline.get(self.store.key(shard_range, "state"))
        answers = self.store.call(pipeline.execute)
        return [(answers[i], _read(read_state, answers[i + 1] or "", RangeState())) for i in range(0, len(answers), 2)]

    def note_background(self, shard_range: ShardRange, slow: Sequence[int], isolated: Isolated, span: float) -> None:
        """Record what this process pokes outside of jobs from now on: see `background_notes`.

        :param slow: groups that it pokes itself.
        :param span: seconds for which the note holds.
        """
        if self.files is not None:
            self.files.put_background(shard_range, slow)
        text = spell_note(slow, isolated) if slow or isolated.ids else ""
        self.store.run("note", self._keys(shard_range, "background"), [self._owner, round(span * 1000), text])

    def isolated(self, ranges: Sequence[ShardRange]) -> list[list[Isolated]]:
        """Return what processes have noted of groups that they poke in child processes, for each range."""
        pipeline = self.store.pipeline()
        for shard_range in ranges:
            pipeline.hvals(self.store.key(shard_range, "background"))
        return [_read(read_isolated, notes, []) for notes in self.store.call(pipeline.execute)]

    def forget_groups(self, shard_range: ShardRange) -> None:
        """Delete all keys of a range that name groups by their ids."""
        self.store.call(self.store.client.delete, *self._keys(shard_range, *_NAMES_GROUPS))

    def _keys(self, shard_range: ShardRange, *names: str) -> list[str]:
        return [self.store.key(shard_range, name) for name in names]


def _read(read: Callable[[Any], Value], found: Any, otherwise: Value) -> Value:
    """Read for somebody who only looks; what is not ours is left to the next job."""
    try:
        return read(found)
    except ValueError:
        return otherwise


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
        self._asked_at = deadline - leases.ttl  # when it was to be renewed last
        self._lost = threading.Event()

    def is_ours(self) -> bool:
        """Whether the holder still has the lease, by its own clock."""
        return not self._lost.is_set() and time.monotonic() < self._deadline

    def keep(self, heartbeat: float) -> bool:
        """Renew the lease if a heartbeat (seconds) has passed since the last time; return `is_ours`."""
        return self.extend() if time.monotonic() - self._asked_at >= heartbeat else self.is_ours()

    def extend(self) -> bool:
        """Renew the lease; return `is_ours`. If Redis does not answer, the lease keeps its deadline."""
        self._asked_at = began = time.monotonic()
        try:
            ours = self._run("extend", ("lease",), self._leases.ttl_ms)
        except Unreachable:
            return self.is_ours()
        if ours:
            self._deadline = began + self._leases.ttl
        else:
            self._lost.set()
        return self.is_ours()

    def put_in_flight(self, group_ids: Sequence[int]) -> None:
        """Record which groups are about to be poked.

        :raises Unreachable: when Redis does not answer.
        """
        self._leases.put_in_flight(self.shard_range, group_ids)

    def finish(self, state: RangeState, *, again: bool = False, dead: Sequence[str] = ()) -> list[int] | None:
        """Leave the state to the next holder, and give the lease back.

        :param again: keep the lease of a range that is dirty, and return which groups are to be poked at once.
        :param dead: processes whose notes have been dealt with.
        :raises Unreachable: when Redis does not answer.
        """
        began, names = time.monotonic(), ("lease", "state", "dirty", "note", "woken", "background")
        answer = self._run("finish", names, state.text(), "1" if again else "0", self._leases.ttl_ms, *dead)
        self._nothing_in_flight()
        if answer[0] != 2:
            return None
        self._deadline = began + self._leases.ttl
        return read_ids(answer[1])

    def release(self) -> None:
        """Give the lease back and leave no state: this job's groups are due again. While Redis is away, it expires."""
        self._give_back("lease", "note")  # its holder lives, so no group in flight is suspect
        self._nothing_in_flight()

    def give_up(self) -> None:
        """Give the lease back as of a dead holder: what is in flight is suspect. While Redis is away, it expires."""
        self._give_back("lease")

    def _give_back(self, *names: str) -> None:
        try:
            self._run("release", names)
        except Unreachable:
            self._lost.set()

    def _nothing_in_flight(self) -> None:
        if self._leases.files is not None:
            self._leases.files.put_in_flight(self.shard_range, [])

    def _run(self, script: str, names: Sequence[str], *arguments: object) -> Any:
        return self._leases.store.run(script, self._leases._keys(self.shard_range, *names), [self.token, *arguments])
