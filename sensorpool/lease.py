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
``dirty``     raised by a registration that opened a group: look again at once
``note``      the groups that were handed to the poking threads; found by the next holder, it means that the last one
              died with them in its hands, so they are suspects
``suspects``  groups that hung or were in a dead holder's hands: poked apart from the others until they are cleared
``pokes``     what each job poked and saw, for `show`; expires
"""

import json
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import redis
from redis.exceptions import RedisError

from sensorpool.errors import SettingsError, Unreachable
from sensorpool.model import Milliseconds, ShardRange
from sensorpool.range_state import RangeState, read_note, read_state
from sensorpool.redaction import hide_password
from sensorpool.settings import MEMORY

PREFIX = "sensorpool:"
SUSPECTS_KEPT = 86_400  # seconds


@dataclass(slots=True)
class Held:
    """A lease that was taken, and what the last holder left."""

    lease: "Lease"
    state: RangeState
    dirty: bool
    note: list[int]
    suspects: dict[int, str]


def connect(url: str) -> Any:
    """Make a Redis client: every call has a time limit, for half-open connections hang for ever without one.

    :raises SettingsError: when the URL is malformed or the embedded Redis is not installed.
    """
    if url == MEMORY:
        return _embedded()
    try:
        return redis.Redis.from_url(
            url,
            decode_responses=True,
            encoding_errors="replace",  # what somebody else wrote may be no text; it must not stop the range
            socket_timeout=10,
            socket_connect_timeout=5,
            socket_keepalive=True,
            health_check_interval=10,
        )
    except ValueError as error:
        raise SettingsError(f"SENSORPOOL_REDIS_URL: {hide_password(str(error))}") from None


_embedded_server: Any = None


def _embedded() -> Any:
    """Return a client of the one in-process Redis."""
    global _embedded_server
    try:
        import fakeredis
        import lupa  # noqa: F401  # fakeredis runs our scripts with it
    except ModuleNotFoundError:
        raise SettingsError(
            'SENSORPOOL_REDIS_URL is memory://, which needs `pip install "sensorpool[embedded]"`; '
            "or name a Redis like redis://localhost:6379/0"
        ) from None
    if _embedded_server is None:
        _embedded_server = fakeredis.FakeServer()
    return fakeredis.FakeRedis(server=_embedded_server, decode_responses=True)


class Leases:
    """The leases of all ranges on one Redis. Safe to share between threads.

    :raises Unreachable: by every method, when Redis does not answer.
    """

    def __init__(self, client: Any, *, lease_ttl: float, url: str = MEMORY) -> None:
        self.client = client
        self.ttl = lease_ttl
        self._url = hide_password(url)
        self._acquire = self._script("acquire")
        self._extend = self._script("extend")
        self._finish = self._script("finish")
        self._release = self._script("release")
        self._keep = self._script("keep")

    def acquire(self, shard_range: ShardRange, token: str) -> Held | str:
        """Take the lease of a range; return it with what was left behind, or the token of who holds it."""
        started = time.monotonic()
        keys = [key(shard_range, name) for name in ("lease", "state", "dirty", "note", "suspects")]
        answer = self._ask(self._acquire, keys, [token, self._ttl_ms])
        if not answer[0]:
            return str(answer[1])
        pairs = answer[4]
        return Held(
            lease=Lease(self, shard_range, token, started + self.ttl),
            dirty=bool(answer[1]),
            state=read_state(answer[2]),
            note=read_note(answer[3]),
            suspects={int(pairs[i]): str(pairs[i + 1]) for i in range(0, len(pairs), 2) if _is_id(pairs[i])},
        )

    def raise_dirty(self, shard_range: ShardRange) -> bool:
        """Raise the dirty flag of a range; return whether it was down, so that somebody should send a job."""
        return bool(self._call(self.client.set, key(shard_range, "dirty"), "1", nx=True, px=self._ttl_ms))

    def free(self, shard_range: ShardRange, token: str) -> bool:
        """Give back the lease of a holder that is known to be dead."""
        return bool(self._ask(self._release, [key(shard_range, "lease")], [token]))

    def suspect(self, shard_range: ShardRange, group_ids: Iterable[int], why: str) -> None:
        """Have these groups poked apart from the others."""
        if marked := {str(group_id): why for group_id in group_ids}:
            name = key(shard_range, "suspects")
            self._call(self.client.hset, name, mapping=marked)
            self._call(self.client.expire, name, SUSPECTS_KEPT)

    def clear_suspects(self, shard_range: ShardRange, group_ids: Iterable[int]) -> None:
        """Take these groups back among the others."""
        if cleared := [str(group_id) for group_id in group_ids]:
            self._call(self.client.hdel, key(shard_range, "suspects"), *cleared)

    def claim(self, shard_range: ShardRange, group_ids: Sequence[int], seconds: float) -> list[int]:
        """Claim groups that are poked outside of a job, so that no two processes poke one at once; return whose."""
        span = max(1, int(seconds * 1000))
        pipeline = self.client.pipeline(transaction=False)
        for group_id in group_ids:
            pipeline.set(_claim(shard_range, group_id), "1", nx=True, px=span)
            pipeline.pttl(_claim(shard_range, group_id))
        answers = self._call(pipeline.execute) if group_ids else []
        endless = [g for g, left in zip(group_ids, answers[1::2], strict=True) if not -1 < left <= span]
        if endless:  # nobody of ours claims for ever
            self.renew_claims([(shard_range, group_id) for group_id in endless], seconds)
        return [group_id for group_id, answer in zip(group_ids, answers[::2], strict=True) if answer]

    def renew_claims(self, claims: Iterable[tuple[ShardRange, int]], seconds: float) -> None:
        """Keep claims."""
        pipeline = self.client.pipeline(transaction=False)
        for shard_range, group_id in claims:
            pipeline.pexpire(_claim(shard_range, group_id), max(1, int(seconds * 1000)))
        self._call(pipeline.execute)

    def unclaim(self, shard_range: ShardRange, group_ids: Iterable[int]) -> None:
        """Let go of groups."""
        if names := [_claim(shard_range, group_id) for group_id in group_ids]:
            self._call(self.client.delete, *names)

    def look(self, ranges: Sequence[ShardRange]) -> list[tuple[str | None, RangeState, int]]:
        """Return holder, state and number of suspects of each range."""
        pipeline = self.client.pipeline(transaction=False)
        for shard_range in ranges:
            pipeline.get(key(shard_range, "lease"))
            pipeline.get(key(shard_range, "state"))
            pipeline.hlen(key(shard_range, "suspects"))
        answers = self._call(pipeline.execute)
        return [(answers[i], read_state(answers[i + 1] or ""), int(answers[i + 2])) for i in range(0, len(answers), 3)]

    def suspects(self, shard_range: ShardRange) -> list[int]:
        """Return the groups of a range that are poked apart from the others."""
        return [int(field) for field in self._call(self.client.hgetall, key(shard_range, "suspects")) if _is_id(field)]

    def why_suspect(self, shard_range: ShardRange, group_id: int) -> str | None:
        """Return why a group is poked apart from the others, if it is."""
        found = self._call(self.client.hget, key(shard_range, "suspects"), str(group_id))
        return None if found is None else str(found)

    def keep_record(self, shard_range: ShardRange, record: str, expires: Milliseconds, now: Milliseconds) -> None:
        """Keep what a job poked until ``expires``, and drop the records that have expired."""
        self._ask(self._keep, [key(shard_range, "pokes")], [record, expires, now])

    def records(self, shard_range: ShardRange) -> list[str]:
        """Return the records of what the jobs of a range poked."""
        return list(self._call(self.client.zrange, key(shard_range, "pokes"), 0, -1))

    def ping(self) -> None:
        """Ask Redis whether it is there."""
        self._call(self.client.ping)

    def eviction_policy(self) -> str | None:
        """Return Redis's ``maxmemory-policy``, or None where it does not say."""
        try:
            return str(self.client.config_get("maxmemory-policy").get("maxmemory-policy", "")) or None
        except RedisError:
            return None

    @property
    def _ttl_ms(self) -> int:
        return int(self.ttl * 1000)

    def _script(self, name: str) -> Any:
        return self.client.register_script(files("sensorpool").joinpath("lua", f"{name}.lua").read_text())

    def _ask(self, script: Any, keys: list[str], arguments: list[Any]) -> Any:
        return self._call(script, keys=keys, args=arguments)

    def _call(self, function: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return function(*arguments, **named)
        except RedisError as error:
            raise Unreachable(f"Redis {self._url} does not answer: {hide_password(str(error))[:200]}") from error


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
        leases = self._leases
        try:
            ours = leases._ask(leases._extend, [key(self.shard_range, "lease")], [self.token, leases._ttl_ms])
        except Unreachable:
            return self.is_ours()
        if ours:
            self._deadline = started + leases.ttl
        else:
            self._lost.set()
        return self.is_ours()

    def write_note(self, group_ids: Sequence[int]) -> None:
        """Note which groups are about to be poked: whoever finds this note knows who was poked when we died."""
        name = key(self.shard_range, "note")
        self._leases._call(self._leases.client.set, name, json.dumps(list(group_ids)))

    def finish(self, state: RangeState, *, again: bool = False) -> bool:
        """Leave the state and give the lease back; return true if the range is dirty and the lease was kept for it."""
        started = time.monotonic()
        leases = self._leases
        keys = [key(self.shard_range, name) for name in ("lease", "state", "dirty", "note")]
        text = state.text()
        answer = leases._ask(leases._finish, keys, [self.token, text, "1" if again else "0", leases._ttl_ms])
        if answer == 2:
            self._deadline = started + leases.ttl
        return bool(answer == 2)

    def release(self) -> None:
        """Give the lease back and leave no state: what this job poked is due again. With Redis away it expires."""
        try:
            # we live, so nobody in our note is suspect
            keys = [key(self.shard_range, "lease"), key(self.shard_range, "note")]
            self._leases._ask(self._leases._release, keys, [self.token])
        except Unreachable:
            self._lost.set()


def key(shard_range: ShardRange, name: str) -> str:
    """Return the Redis key of something of a range; the braces keep a range's keys in one slot of a cluster."""
    return f"{PREFIX}{{{shard_range}}}:{name}"


def _is_id(text: str) -> bool:
    """Whether a field that anybody may have written is an id."""
    return text.isdecimal() and len(text) < 20 and int(text) < 2**63


def _claim(shard_range: ShardRange, group_id: int) -> str:
    return key(shard_range, f"alone:{group_id}")
