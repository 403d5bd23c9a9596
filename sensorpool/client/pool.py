"""The pool as its clients see it: register, wait, cancel."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sensorpool.client import register, validate, wait
from sensorpool.client.instance import Instance
from sensorpool.client.nudger import Nudger
from sensorpool.client.pool_view import PoolView
from sensorpool.client.wait import Named, Wait
from sensorpool.client.wake import WakeUp, conditions_of, wake_up
from sensorpool.config.settings import Settings
from sensorpool.errors import Refused, SensorpoolError, SettingsError
from sensorpool.model.states import State
from sensorpool.model.values import LONGEST_SPAN, Milliseconds, Registered, Registration, Result, Span
from sensorpool.poke.classes import ALL_OF, ANY_OF, Classes
from sensorpool.publish.outbox import Outbox
from sensorpool.publish.publisher import Publisher
from sensorpool.settle.settler import Settler

MOST_JOINED = 3_000  # instances of one join: so many ids have room in a context, however long they are
_PATIENCE = 0.5  # seconds that a call waits for the broker; a broker that is away is no error of the call


class Pool(PoolView):
    """A pool, by its settings. Safe to share between threads; a pool that was used before a fork works in the children.

    :param settings: default: the settings of the environment.
    :param clock: replaces the database's clock in tests: returns milliseconds.
    :raises SettingsError: when a setting is wrong.
    """

    def __init__(self, settings: Settings | None = None, *, clock: Callable[[], Milliseconds] | None = None) -> None:
        super().__init__(settings, clock=clock)
        self.publisher = Publisher(self.settings, self.pool_id.get)
        self.outbox = Outbox(self.settings, self.database, self.publisher, patience=_PATIENCE)
        self.settler = Settler(self.database, self.outbox.deliver, tick_ms=self.settings.tick_ms)
        self.nudger = Nudger(self, self.outbox)
        self.classes = Classes(self.settings.sensors_enabled)

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
        poke_interval: Span | None = None,
        timeout: Span | None = None,
        execution_timeout: Span | None = None,
        soft_fail: bool = False,
        silent_fail: bool = False,
        never_fail: bool = False,
        exponential_backoff: bool = False,
        max_wait: Span | None = None,
        on_settled: Mapping[str, Any] | None = None,
        on_success: Mapping[str, Any] | None = None,
        on_failure: Mapping[str, Any] | None = None,
        external_id: str | None = None,
        logical_date: datetime | None = None,
        family: str | None = None,
        backend: str | None = None,
        location: str | None = None,
    ) -> Instance:
        """Register one sensor. Spans are seconds, or timedeltas.

        :param sensor: what waits: a class path (``pkg.mod.Class``), a sensor class, an object of one, or a
            ``pathlib.Path``, which is short for a `PathSensor` of it.
        :param poke_context: the arguments of the class, values of JSON; paths, timedeltas and datetimes with a time
            zone are turned into them. With a path or an object: leave it out.
        :param dag_id: with task_id and run_id the key of the waiter: the same key, try and condition registers once; a
            repetition changes neither limits nor callbacks. Without it a fresh key is made.
        :param map_index: of a mapped task (Airflow's), as a part of the key.
        :param try_number: as a part of the key: a higher one cancels the lower ones.
        :param poke_interval: between two pokes; default: the setting of that name.
        :param timeout: after which it fails, once a last poke has found nothing; default: the setting of that name.
        :param execution_timeout: after which it fails likewise, as Airflow's limit of a task does.
        :param soft_fail: end as skipped at the timeout, and where a poke raises `FailSensor` (Airflow's flag).
        :param silent_fail: keep waiting when a poke raises (Airflow's flag).
        :param never_fail: end as skipped when a poke raises; a timeout still fails (Airflow's flag). It excludes
            soft_fail.
        :param exponential_backoff: let the interval grow (Airflow's flag).
        :param max_wait: the longest interval that it may grow to.
        :param on_settled: a Celery signature, or a chain, group or chord, of tasks that
            ``SENSORPOOL_ON_SETTLED_TASKS`` names. It is sent when the wait ends, at least once and with the same task
            ids, with the result as its first argument.
        :param on_success: the same, sent when it landed.
        :param on_failure: the same, sent when it ended otherwise: failed, skipped or cancelled.
        :param external_id: the waiter's id in its own system, of 64 characters at most.
        :param logical_date: the date, with a time zone, that the condition is of, if it is one of a series.
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
            on_success=on_success,
            on_failure=on_failure,
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
        :raises KeyConflict: as `register`, or when a key comes twice. After any error, earlier thousands are kept
            (`SensorpoolError.registered`), and a second registration finds them.
        """
        checked = [self.check(each, place, try_out=try_out) for place, each in enumerate(registrations)]
        return [Instance.of(self, each) for each in self.register_checked(checked)]

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

    def register_checked(self, checked: Sequence[validate.CheckedRegistration]) -> list[Registered]:
        """Register the results of `check`.

        :raises SettingsError: when the workers on our Redis serve another database: no group would ever be poked.
        """
        instances: list[Registered] = []
        for start in range(0, len(checked), register.AT_ONCE):
            try:
                done = register.register(self.settler, checked[start : start + register.AT_ONCE], self.settings)
            except SensorpoolError as error:
                error.registered = instances
                raise
            instances.extend(done.instances)
            if problem := self.nudger.nudge(done.opened, is_late=done.is_late):
                self.settler.cancel({each.id: problem for each in done.instances if each.created})
                raise SettingsError(problem)
        return instances

    def get(self, instance_id: Named) -> Instance:
        """Return an instance as it is now.

        :raises Refused: when the argument is neither an id nor an `Instance`.
        :raises Unknown: when there is no such instance, or another has the id of an `Instance` since a restore.
        :raises Unreachable: when the database does not answer.
        """
        return Instance.of(self, wait.find(self.database, instance_id))

    def result(self, instance: Named) -> Result | None:
        """Return how the wait of an instance ended; None while it waits.

        :param instance: its id, or the instance as `register` returned it.
        :raises Refused: when it is neither.
        :raises Unknown: when it was pruned, or another has its id since a restore.
        :raises Unreachable: when the database does not answer.
        """
        return wait.result(self.database, instance)

    def all_of(
        self,
        instance_ids: Iterable[Named],
        *,
        dag_id: str | None = None,
        task_id: str | None = None,
        run_id: str | None = None,
        on_settled: Mapping[str, Any] | None = None,
        on_success: Mapping[str, Any] | None = None,
        on_failure: Mapping[str, Any] | None = None,
        timeout: Span | None = None,
    ) -> Instance:
        """Wait for many as for one: the instance returned lands when the last of them has landed.

        It fails as soon as one of them ends otherwise. It can be waited for, cancelled and joined itself.

        :param instance_ids: ids, or instances as `register` returned them; 3,000 at most.
        :param dag_id: with task_id and run_id the key, by which it registers once; see `register`.
        :param on_success: see `register`, as for the other callbacks.
        :param timeout: after which it fails; default: ten years, because its members time out by themselves.
        :raises Refused: when there is none, or too many, or an argument is neither an id nor an `Instance`.
        :raises Unknown: when there is no such instance, or another has the id of an `Instance` since a restore.
        """
        key = validate.key_of(dag_id=dag_id, task_id=task_id, run_id=run_id)
        callbacks = {"on_settled": on_settled, "on_success": on_success, "on_failure": on_failure}
        return self._join(ALL_OF, instance_ids, key=key, timeout=timeout, **callbacks)

    def any_of(
        self,
        instance_ids: Iterable[Named],
        *,
        dag_id: str | None = None,
        task_id: str | None = None,
        run_id: str | None = None,
        on_settled: Mapping[str, Any] | None = None,
        on_success: Mapping[str, Any] | None = None,
        on_failure: Mapping[str, Any] | None = None,
        timeout: Span | None = None,
    ) -> Instance:
        """Wait for the first of many: the instance returned lands when one has landed, and its value names which.

        It fails when all have ended otherwise. The others go on to wait. See `all_of`.

        :param instance_ids: ids, or instances as `register` returned them; 3,000 at most.
        :param dag_id: with task_id and run_id the key, by which it registers once; see `register`.
        :param on_success: see `register`, as for the other callbacks. The result's ``xcom_value`` is ``{"id": …}``.
        :param timeout: after which it fails; default: ten years.
        :raises Refused: when there is none, or too many, or an argument is neither an id nor an `Instance`.
        :raises Unknown: when there is no such instance, or another has the id of an `Instance` since a restore.
        """
        key = validate.key_of(dag_id=dag_id, task_id=task_id, run_id=run_id)
        callbacks = {"on_settled": on_settled, "on_success": on_success, "on_failure": on_failure}
        return self._join(ANY_OF, instance_ids, key=key, timeout=timeout, **callbacks)

    def _join(
        self, op_classpath: str, instance_ids: Iterable[Named], *, timeout: Span | None, **options: Any
    ) -> Instance:
        named = wait.named(instance_ids)
        ids = sorted(named)
        if not 0 < len(ids) <= MOST_JOINED:
            raise Refused(f"a join waits for 1 to {MOST_JOINED:,} instances, not {len(ids):,}: of more, join joins")
        wait.states(self.database, ids)
        wait.check_keys(self.database, named)
        joined = Registration(
            sensor=op_classpath,
            poke_context={"instances": ids},
            poke_interval=self.settings.tick,
            timeout=LONGEST_SPAN if timeout is None else timeout,
            **options,
        )
        return self.register_many([joined])[0]

    def wait(self, instance_ids: Named | Iterable[Named], timeout: float | timedelta | None = None) -> dict[int, State]:
        """Wait until all are settled or ``timeout`` seconds have passed; return the state of each by its id.

        :param instance_ids: an id, an instance as `register` returned it, or some of them.
        :raises Refused: when an argument is neither, or the timeout is no number.
        :raises Unknown: when there is no such instance, or another has the id of an `Instance` since a restore.
        :raises Unreachable: when the database does not answer at first, or later for the timeout or five minutes.
        """
        waiting = self.waiting(instance_ids, timeout)
        while (pause := waiting.look()) is not None:
            time.sleep(pause)
        return waiting.states

    def waiting(self, instance_ids: Named | Iterable[Named], timeout: float | timedelta | None) -> Wait:
        """Return a wait that looks when its caller says so: see `wait`."""
        return Wait(self.database, instance_ids, timeout)

    def cancel(self, instance_id: Named, reason: str = "cancelled") -> State:
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
        """Have conditions poked at once, because they may hold now; return how many there are, up to 10,000.

        :param op_classpath: with ``poke_context`` the condition, as it was registered.
        :param prefix: wakes all conditions whose location begins so.
        :param location: wakes all conditions at this location, and those at the folders that it lies in.
        :raises Refused: when not exactly one of these is named; with `sensorpool standalone`.
        :raises Unreachable: when the database or Redis does not answer.
        """
        return self.wake_all([wake_up(op_classpath, poke_context, prefix=prefix, location=location)])

    def wake_all(self, wake_ups: Iterable[WakeUp]) -> int:
        """Have the conditions poked at once that these wake-ups concern: see `wake`."""
        found = conditions_of(self.database, wake_ups)
        return len(found) - self.nudger.poke_soon(found)

    def close(self) -> None:
        """Send the queued messages, within a time limit, and close the connections."""
        self.outbox.close()
        super().close()
