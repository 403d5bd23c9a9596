"""The pool as those see it who wait: register, wait, cancel. The functions use the settings of the environment."""

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sensorpool import plan as planning
from sensorpool import registration, waiting
from sensorpool.errors import Refused
from sensorpool.failpoint import failpoint
from sensorpool.lease import Leases, connect
from sensorpool.logs import logger
from sensorpool.model import Instance, Milliseconds, Registration, ShardRange, shard_ranges
from sensorpool.poke.classes import Classes
from sensorpool.publish import Publisher, deliver
from sensorpool.settings import Settings
from sensorpool.states import State
from sensorpool.store.database import Database

log = logger(__name__)


class Pool:
    """A pool, by its settings. Safe to share between threads, not between processes.

    :param settings: those of the environment, unless given.
    :param clock: stands in for the database's clock in tests (milliseconds).
    :raises SettingsError: when a setting is wrong.
    """

    def __init__(self, settings: Settings | None = None, *, clock: Callable[[], Milliseconds] | None = None) -> None:
        self.settings = settings or Settings.load()
        self.database = Database(self.settings.database_url, schema=self.settings.database_schema, clock=clock)
        self.ranges = shard_ranges(self.settings.shards, self.settings.shard_code_upper_limit)
        self.publisher = Publisher(self.settings)
        self._classes = Classes(self.settings.sensors_enabled)
        self._leases: Leases | None = None

    def register(
        self,
        sensor: object,
        poke_context: Mapping[str, Any] | None = None,
        *,
        dag_id: str | None = None,
        task_id: str | None = None,
        run_id: str | None = None,
        map_index: int = -1,
        try_number: int = 1,
        poke_interval: float | None = None,
        timeout: float | None = None,
        execution_timeout: float | None = None,
        soft_fail: bool = False,
        silent_fail: bool = False,
        never_fail: bool = False,
        exponential_backoff: bool = False,
        max_wait: float | None = None,
        on_settled: Mapping[str, Any] | None = None,
        external_id: str | None = None,
    ) -> Instance:
        """Register one sensor. Spans are seconds.

        :param sensor: a class path, or a sensor object (see `Registration`).
        :param dag_id: with task_id and run_id the key of who waits; left out, a fresh key is made.
        :raises Refused: with one line that says what is wrong; nothing is kept.
        :raises KeyConflict: when the key and try waits for something else, or a higher try is there.
        :raises Unreachable: when the database does not answer.
        """
        named = {name: value for name, value in locals().items() if name != "self"}
        return self.register_many([named])[0]

    def register_many(
        self, registrations: Iterable[Registration | Mapping[str, Any]], *, try_out: bool = True
    ) -> list[Instance]:
        """Register many sensors, a thousand a transaction. All are checked before the first is kept.

        :param registrations: `Registration` objects, or mappings with the arguments of `register`.
        :param try_out: construct each distinct condition once here, so that bad arguments are refused.
        :raises Refused: naming the place of the first bad one; nothing is kept.
        :raises KeyConflict: as `register`; earlier thousands are kept, and registering them again finds them.
        """
        plans = [self.plan(each, place, try_out=try_out) for place, each in enumerate(registrations)]
        return self.register_plans(plans)

    def plan(
        self, one: Registration | Mapping[str, Any], place: int | None = None, *, try_out: bool = True
    ) -> planning.Plan:
        """Check one registration without keeping it.

        :raises Refused: with one line that says what is wrong.
        """
        try:
            checked = one if isinstance(one, Registration) else planning.from_mapping(one)
            return planning.plan(checked, self.settings, self._classes, try_out=try_out)
        except Refused as error:
            if place is None or place == 0:
                raise
            raise type(error)(f"registration {place}: {error}") from None

    def register_plans(self, plans: Sequence[planning.Plan]) -> list[Instance]:
        """Register what `plan` has checked."""
        instances: list[Instance] = []
        for start in range(0, len(plans), registration.AT_ONCE):
            done = registration.register(self.database, plans[start : start + registration.AT_ONCE], self.settings)
            failpoint("register.after_commit")
            instances.extend(done.instances)
            for flushed in done.superseded:
                deliver(self.database, self.publisher, flushed)
            self._nudge(done.opened)
        return instances

    def wait(self, instance_ids: Iterable[int], timeout: float | None = None) -> dict[int, State]:
        """Wait until all are settled or ``timeout`` seconds have passed; return the state of each.

        :raises Unknown: when there is no such instance.
        """
        return waiting.wait(self.database, instance_ids, timeout)

    def cancel(self, instance_id: int, reason: str = "cancelled") -> State:
        """Call an instance off; return its state (another one, if it had settled before).

        :raises Unknown: when there is no such instance.
        """
        state, flushed = waiting.cancel(self.database, instance_id, reason)
        deliver(self.database, self.publisher, flushed)
        return state

    @property
    def leases(self) -> Leases:
        """The leases, connected when first needed."""
        if self._leases is None:
            url = self.settings.redis_url
            self._leases = Leases(connect(url), lease_ttl=self.settings.lease_ttl, url=url)
        return self._leases

    def range_of(self, shardcode: int) -> ShardRange:
        """Return the range that a shardcode lies in, or will when rescue has folded it (the limit was lowered)."""
        code = shardcode % self.settings.shard_code_upper_limit
        return next(r for r in self.ranges if r.shard_min <= code < r.shard_max)

    def close(self) -> None:
        """Close the connections."""
        self.publisher.close()
        self.database.dispose()

    def _nudge(self, shardcodes: Iterable[int]) -> None:
        """Have the ranges of new groups looked at now. A hint: without it they wait for their tick."""
        try:
            for shard_range in {self.range_of(shardcode) for shardcode in shardcodes}:
                if self.leases.raise_dirty(shard_range):
                    self.publisher.nudge(shard_range)
        except Exception as error:  # it is registered: nothing may make it look as if it were not
            log.warning("new conditions wait for their tick", error=str(error))


_pool: tuple[int, Pool] | None = None
_lock = threading.Lock()


def default_pool() -> Pool:
    """Return this process's pool by the environment; a child after a fork gets its own."""
    global _pool
    with _lock:
        if _pool is None or _pool[0] != os.getpid():
            _pool = (os.getpid(), Pool())
        return _pool[1]


def register(sensor: object, poke_context: Mapping[str, Any] | None = None, **options: Any) -> Instance:
    """Register one sensor with the pool of the environment: see `Pool.register`."""
    return default_pool().register(sensor, poke_context, **options)


def register_many(registrations: Iterable[Registration | Mapping[str, Any]], **options: Any) -> list[Instance]:
    """Register many sensors with the pool of the environment: see `Pool.register_many`."""
    return default_pool().register_many(registrations, **options)


def wait(instance_ids: Iterable[int], timeout: float | None = None) -> dict[int, State]:
    """Wait for instances of the pool of the environment: see `Pool.wait`."""
    return default_pool().wait(instance_ids, timeout)


def cancel(instance_id: int, reason: str = "cancelled") -> State:
    """Call off an instance of the pool of the environment: see `Pool.cancel`."""
    return default_pool().cancel(instance_id, reason)
