"""The pool as its clients see it: register, wait, cancel."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from sensorpool.client import register, validate, wait, wake
from sensorpool.config import allowlist
from sensorpool.config.settings import Settings
from sensorpool.errors import Refused, SensorpoolError, SettingsError
from sensorpool.instrumentation.logs import logger
from sensorpool.leases.child_deaths import ChildDeaths
from sensorpool.leases.lease import Leases, leases_of
from sensorpool.leases.roster import Roster
from sensorpool.leases.trouble import Trouble
from sensorpool.model.states import State
from sensorpool.model.terms import LiveWorker, Terms, disagreements
from sensorpool.model.values import Instance, Milliseconds, Registration, ShardRange, shard_ranges
from sensorpool.poke.classes import Classes
from sensorpool.publish.outbox import Outbox
from sensorpool.publish.publisher import Publisher
from sensorpool.settle.settler import Settler
from sensorpool.store.database import Database
from sensorpool.store.pool_id import PoolId

Told = TypeVar("Told")

_PATIENCE = 0.5  # seconds that a call waits for the broker; a broker that is away is no error of the call

log = logger(__name__)


class Pool:
    """A pool, by its settings. Safe to share between threads; a pool that was used before a fork works in the children.

    :param settings: default: the settings of the environment.
    :param clock: replaces the database's clock in tests: returns milliseconds.
    :raises SettingsError: when a setting is wrong.
    """

    def __init__(self, settings: Settings | None = None, *, clock: Callable[[], Milliseconds] | None = None) -> None:
        self.settings = settings or Settings.load()
        self.database = Database.of(self.settings, clock=clock)
        self.ranges = shard_ranges(self.settings.shards, self.settings.shard_code_upper_limit)
        self.pool_id = PoolId(self.database)
        self.publisher = Publisher(self.settings, self.pool_id.get)
        self.outbox = Outbox(self.settings, self.database, self.publisher, patience=_PATIENCE)
        self.settler = Settler(
            self.database,
            self.outbox.deliver,
            tick_ms=self.settings.tick_ms,
            window=self.settings.infra_failure_window,
        )
        self.classes = Classes(allowlist.of(self.settings.sensors_enabled))
        self._leases: Leases | None = None
        self._roster: Roster | None = None

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
        logical_date: datetime | None = None,
        family: str | None = None,
        backend: str | None = None,
        location: str | None = None,
    ) -> Instance:
        """Register one sensor. Spans are seconds.

        :param sensor: a class path, or a sensor object (see `Registration`).
        :param dag_id: with task_id and run_id the key of the waiter; without it a fresh key is made.
        :param logical_date: the date that the condition is of, if it is one of a series.
        :param family: the name of that series (see `Registration`).
        :param backend: the name of what its pokes ask (see `Registration`).
        :param location: the URL of what it waits for (see `Registration`).
        :raises Refused: with one line that says what is wrong; nothing is kept.
        :raises KeyConflict: when the key and try waits for another condition, or a higher try is registered.
        :raises Unreachable: when the database does not answer.
        """
        registration = Registration(
            sensor=sensor,
            poke_context=poke_context,
            key=validate.key_of(
                dag_id=dag_id, task_id=task_id, run_id=run_id, map_index=map_index, try_number=try_number
            ),
            poke_interval=poke_interval,
            timeout=timeout,
            execution_timeout=execution_timeout,
            soft_fail=soft_fail,
            silent_fail=silent_fail,
            never_fail=never_fail,
            exponential_backoff=exponential_backoff,
            max_wait=max_wait,
            on_settled=on_settled,
            external_id=external_id,
            logical_date=logical_date,
            family=family,
            backend=backend,
            location=location,
        )
        return self.register_many([registration])[0]

    def register_many(
        self, registrations: Iterable[Registration | Mapping[str, Any]], *, try_out: bool = True
    ) -> list[Instance]:
        """Register many sensors, a thousand a transaction. All are checked before the first is kept.

        :param registrations: `Registration` objects, or mappings with the arguments of `register`.
        :param try_out: construct each distinct condition once here, so that bad arguments are refused.
        :raises Refused: naming the place of the first bad one; nothing is kept.
        :raises KeyConflict: as `register`. After any error, earlier thousands are kept
            (`SensorpoolError.registered`), and a second registration finds them.
        """
        return self.register_checked(
            [self.check(each, place, try_out=try_out) for place, each in enumerate(registrations)]
        )

    def check(
        self, one: Registration | Mapping[str, Any], place: int = 0, *, try_out: bool = True
    ) -> validate.CheckedRegistration:
        """Check one registration without keeping it.

        :raises Refused: with one line that says what is wrong.
        """
        try:
            registration = one if isinstance(one, Registration) else validate.from_mapping(one)
            return validate.check(registration, self.settings, self.classes, try_out=try_out)
        except Refused as error:
            if place == 0:
                raise
            raise type(error)(f"registration {place}: {error}") from None

    def register_checked(self, checked: Sequence[validate.CheckedRegistration]) -> list[Instance]:
        """Register the results of `check`.

        :raises SettingsError: when the workers on our Redis serve another database: no group would ever be poked.
        """
        instances: list[Instance] = []
        for start in range(0, len(checked), register.AT_ONCE):
            try:
                done = register.register(self.settler, checked[start : start + register.AT_ONCE], self.settings)
            except SensorpoolError as error:
                error.registered = instances
                raise
            instances.extend(done.instances)
            if done.hurried:
                self._wake(done.hurried)
            if (opened := done.opened) and (problem := self._nudge(opened, is_late=done.is_late)):
                self._take_back(done.instances, problem)
                raise SettingsError(problem)
        return instances

    def wait(
        self, instance_ids: Iterable[int | Instance] | Instance, timeout: float | timedelta | None = None
    ) -> dict[int, State]:
        """Wait until all are settled or ``timeout`` seconds have passed; return the state of each by its id.

        :param instance_ids: ids, or instances as `register` returned them.
        :raises Refused: when an argument is neither, or the timeout is no number.
        :raises Unknown: when there is no such instance, or another has the id of an `Instance` since a restore.
        """
        return wait.wait(self.database, instance_ids, timeout)

    def cancel(self, instance_id: int | Instance, reason: str = "cancelled") -> State:
        """Cancel an instance; return its state (another one, if it had settled before).

        :param instance_id: its id, or the instance as `register` returned it.
        :raises Refused: when it is neither, or the reason is no text.
        :raises Unknown: when there is no such instance, or another has the id of an `Instance` since a restore.
        """
        return wait.cancel(self.settler, instance_id, reason)

    def wake(
        self,
        op_classpath: str | None = None,
        poke_context: Mapping[str, Any] | None = None,
        *,
        prefix: str | None = None,
        location: str | None = None,
    ) -> int:
        """Have conditions poked at once, because they may hold now; return how many there are, up to `wake.MOST`.

        :param op_classpath: with ``poke_context`` the condition, as it was registered.
        :param prefix: wakes all conditions whose location begins so.
        :param location: wakes all conditions at this location, and those at the folders that it lies in.
        :raises Refused: when not exactly one of these is named; with `sensorpool standalone`.
        :raises Unreachable: when the database or Redis does not answer.
        """
        return wake.wake(self, [wake.wake_up(op_classpath, poke_context, prefix=prefix, location=location)])

    @property
    def leases(self) -> Leases:
        """The leases; they connect at their first use."""
        if self._leases is None:
            self._leases = leases_of(self.settings)
        return self._leases

    def range_of(self, shardcode: int) -> ShardRange:
        """Return the range of a shardcode, also of a shardcode that rescue will fold (the limit was lowered)."""
        code = shardcode % self.ranges[-1].shard_max
        return next(r for r in self.ranges if r.shard_min <= code < r.shard_max)

    def close(self) -> None:
        """Send the queued messages, within a time limit, and close the connections."""
        self.outbox.close()
        self.database.dispose()

    @property
    def roster(self) -> Roster:
        """The roster of live workers."""
        if self._roster is None:
            self._roster = Roster(self.leases)
        return self._roster

    @property
    def trouble(self) -> Trouble:
        """The causes of failed jobs and chores, noted by workers."""
        return Trouble(self.leases)

    @property
    def child_deaths(self) -> ChildDeaths:
        """The deaths of the workers' child processes."""
        return ChildDeaths(self.leases)

    def workers(self) -> list[LiveWorker]:
        """Return the live workers on our Redis; from now on ``ranges`` are the ranges of these workers.

        :raises Unreachable: when Redis does not answer.
        """
        workers = self.roster.workers()
        self._learn_ranges(workers)
        return workers

    def disagreements(self, workers: Sequence[LiveWorker]) -> list[str]:
        """Return a line for each difference between live workers and our settings."""
        return disagreements(self._terms, workers) if self.pool_id.get() else []

    @property
    def _terms(self) -> Terms:
        return Terms(self.pool_id.get() or "", self.settings.shards, self.settings.shard_code_upper_limit)

    def _learn_ranges(self, workers: Sequence[LiveWorker]) -> None:
        """Take over the ranges of the workers: only their ranges are poked."""
        ours = [worker.terms.ranges for worker in workers if worker.terms.pool_id == self.pool_id.get()]
        if ours and self.ranges not in ours:
            self.ranges = ours[0]

    def _nudge(self, opened: Sequence[Instance], *, is_late: bool) -> str | None:
        """Send jobs for the ranges of new groups now. A hint: if it is lost, they wait for their tick.

        :returns: why no worker will ever look at them, or None.
        """
        try:
            raised, workers = self._tell(lambda: self._raise_dirty(opened, is_late))
            ours = self.pool_id.get() if workers else None
            if ours and all(worker.terms.pool_id != ours for worker in workers):
                return self.disagreements(workers)[0]
            for shard_range in raised:
                self.outbox.nudge(shard_range)
        except Exception as error:  # the instance is registered: no later error may hide that
            log.warning("new conditions wait for their tick", error=str(error))
        return None

    def _wake(self, hurried: Sequence[Instance]) -> None:
        """Have no tick of the ranges left out: groups of these instances may be due earlier than their marks say."""
        try:
            self._tell(lambda: (None, self.roster.wake({self.range_of(each.shardcode) for each in hurried})))
        except Exception as error:  # the instance is registered: no later error may hide that
            log.info("a quiet range was not woken; it is looked at within a minute", error=str(error))

    def _tell(self, tell: Callable[[], tuple[Told, list[LiveWorker]]]) -> tuple[Told, list[LiveWorker]]:
        """Tell ranges something; tell it again where the answer names workers with other ranges than ours."""
        before = self.ranges
        told, workers = tell()
        self._learn_ranges(workers)
        return (told, workers) if self.ranges == before else tell()

    def _raise_dirty(self, opened: Sequence[Instance], is_late: bool) -> tuple[list[ShardRange], list[LiveWorker]]:
        late: dict[ShardRange, list[int]] = defaultdict(list)
        for instance in opened:
            late[self.range_of(instance.shardcode)] += [instance.group_id] if is_late else []
        return self.roster.raise_dirty(late)

    def _take_back(self, instances: Sequence[Instance], why: str) -> None:
        """Cancel instances that were just registered and that no worker will poke."""
        try:
            self.settler.cancel({instance.id: why for instance in instances if instance.created})
        except SensorpoolError as error:
            log.warning("instances that no worker pokes were not cancelled", error=str(error))
