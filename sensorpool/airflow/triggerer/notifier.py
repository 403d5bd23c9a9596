"""The notifier of a triggerer process: it tells all triggers of the pool how their instances end.

One thread listens to the published results, another reads the database. A message is a hint: the instances that it
names are read before a task ends. Messages get lost, so all instances are read every `SWEEP_EVERY` seconds. New ones
are read at once: after a restart of the triggerer they may have ended already.

Thousands of triggers cost one consumer, one query a sweep, and a queue each. A trigger gets its results and lines on
its event loop, so that the lines stand in the log of its own task.
"""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, ClassVar

from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.result import InstanceResult
from sensorpool.airflow.triggerer.api_server import ApiServer
from sensorpool.airflow.triggerer.instance_owner import is_of
from sensorpool.airflow.triggerer.liveness import Liveness
from sensorpool.airflow.triggerer.pace import Pace
from sensorpool.airflow.triggerer.task_log import TaskLog
from sensorpool.airflow.triggerer.task_states import TaskStates
from sensorpool.client.pool import Pool
from sensorpool.config.settings import Settings
from sensorpool.errors import SensorpoolError, Unknown, Unreachable
from sensorpool.instrumentation.background import BackgroundThread
from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import one_line
from sensorpool.model.states import State
from sensorpool.publish import listen
from sensorpool.store import inspecting

SWEEP_EVERY = 15.0  # seconds
AT_ONCE = 5_000  # ids in one statement
_RETRY_AFTER = 10.0  # seconds between two attempts to reach a server

log = logger(__name__)


class Subscription:
    """The queue by which one trigger learns of its instance.

    :param ti_id: the id of the trigger's task instance, which has registered the instance; None if it is not known.
    """

    __slots__ = ("_loop", "_queue", "instance_id", "ti_id")

    def __init__(self, instance_id: int, ti_id: str | None = None) -> None:
        self.instance_id = instance_id
        self.ti_id = ti_id
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[InstanceResult | str] = asyncio.Queue()

    def put(self, item: InstanceResult | str) -> None:
        """Put an item for the trigger; from any thread."""
        with suppress(RuntimeError):  # the loop is closed: the triggerer stops
            self._loop.call_soon_threadsafe(self._queue.put_nowait, item)

    async def next_end(self, say: Callable[[str], object]) -> InstanceResult | None:
        """Wait for the next item; return a result, or log a line and return None."""
        item = await self._queue.get()
        if isinstance(item, InstanceResult):
            return item
        say(item)
        return None


class Notifier:
    """The notifier of a triggerer process. Safe to share between threads."""

    _of_processes: ClassVar[dict[int, "Notifier"]] = {}
    _making = threading.Lock()
    _failed: ClassVar[tuple[float, Exception | None]] = (0.0, None)
    _being_made: ClassVar["asyncio.Future[Notifier] | None"] = None

    def __init__(self, pool: Pool, settings: AirflowSettings) -> None:
        self.settings = settings
        self.api_server = ApiServer()
        self.task_states = TaskStates()
        self.pace = Pace(time.monotonic())
        self.pool = pool
        self._subscriptions: dict[int, list[Subscription]] = {}
        self._asked: set[int] = set()  # named by a message, or new
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._task_log = TaskLog(pool, settings.log_every)
        self._liveness = Liveness(pool, settings, self._tell_all)
        self._listening = BackgroundThread("sensorpool-notifier-listen", self._listen)
        self._looking = BackgroundThread("sensorpool-notifier-look", self._look)
        self._meeting = BackgroundThread("sensorpool-notifier-api-server", self._await_api_server)
        self._threads = (self._listening, self._looking, self._meeting)
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop the threads."""
        for thread in self._threads:
            thread.stop()
        self._wake.set()
        for thread in self._threads:
            thread.join(_RETRY_AFTER)

    @classmethod
    def of_this_process(cls) -> "Notifier":
        """Return this process's notifier.

        :raises SettingsError: when a setting is wrong.
        """
        with cls._making:
            notifier = cls._of_processes.get(os.getpid())
            if notifier is None:
                failed_at, failure = cls._failed
                if failure is not None and time.monotonic() - failed_at < _RETRY_AFTER / 2:
                    raise failure  # thousands of triggers ask, and reading the settings takes time
                try:
                    notifier = cls._of_processes[os.getpid()] = cls(Pool(Settings.load()), AirflowSettings.load())
                except Exception as error:
                    cls._failed = time.monotonic(), error
                    raise
            return notifier

    @classmethod
    async def made(cls) -> "Notifier":
        """Return this process's notifier; make it on one thread, however many triggers ask.

        A backend of settings may be slow, and would block the loop of all triggers. One that hangs may not have all
        threads of the loop: the triggers of others need these too.

        :raises SettingsError: when a setting is wrong.
        """
        notifier = cls._of_processes.get(os.getpid())
        if notifier is not None:
            return notifier
        making = cls._being_made
        if making is None or making.done() or making.get_loop() is not asyncio.get_running_loop():
            making = cls._being_made = asyncio.ensure_future(asyncio.to_thread(cls.of_this_process))
        return await asyncio.shield(making)

    @classmethod
    async def ready(cls, say: Callable[[str], object]) -> "Notifier":
        """Return this process's notifier; until it can be made, log why not: no task fails by that."""
        while True:
            try:
                return await cls.made()
            except Exception as error:
                say(f"sensorpool: the triggerer cannot reach the pool: {one_line(error)}")
                await asyncio.sleep(_RETRY_AFTER)

    def subscribe(self, instance_id: int, ti_id: str | None = None) -> Subscription:
        """Return the subscription of a task instance to an instance; call on the event loop."""
        subscription = Subscription(instance_id, ti_id)
        with self._lock:
            self._subscriptions.setdefault(instance_id, []).append(subscription)
            self._asked.add(instance_id)
        self._wake.set()
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription."""
        with self._lock:
            subscriptions = self._subscriptions.get(subscription.instance_id, [])
            if subscription in subscriptions:
                subscriptions.remove(subscription)
            if not subscriptions:
                self._subscriptions.pop(subscription.instance_id, None)
                self._asked.discard(subscription.instance_id)
        self._task_log.forget(subscription.instance_id)

    def cancel(self, instance_id: int, reason: str, ti_id: str | None = None) -> None:
        """Cancel the instance of a task instance. If that fails, rescue cancels it later."""
        try:
            if all(is_of(ti_id, row) for row in self.pool.database.read(inspecting.waiters, [instance_id])):
                self.pool.cancel(instance_id, reason)
        except Unknown:
            pass
        except SensorpoolError as error:
            log.warning("an instance is cancelled later", instance_id=instance_id, error=one_line(error))

    def _listen(self) -> None:
        thread, pool = self._listening, self.pool
        while not thread.is_stopping:
            try:
                with listen(pool.settings, until=lambda: thread.is_stopping, pool_id=pool.pool_id.get) as bodies:
                    for body in bodies:
                        self._hear(body)
            except Exception as error:
                log.warning("no published results arrive; the sweep goes on", error=one_line(error))
                thread.wait(_RETRY_AFTER)

    def _hear(self, body: dict[str, Any]) -> None:
        named: set[Any] = {result.get("id") for result in body.get("settled", ()) if isinstance(result, dict)}
        with self._lock:
            ours = named & self._subscriptions.keys()
            self._asked |= ours
        if ours:
            self._wake.set()

    def _look(self) -> None:
        swept = -SWEEP_EVERY
        while not self._looking.is_stopping:
            self._wake.wait(1.0)
            self._wake.clear()
            now = time.monotonic()
            with self._lock:
                asked, self._asked = self._asked, set()
                if now - swept >= SWEEP_EVERY:
                    asked, swept = set(self._subscriptions), now
            try:
                self._ask(asked)
                if swept == now:
                    with suppress(Unreachable):
                        self.pool.roster.note_triggerer()
                    self._tell(self._task_log.lines())
                    self._hand_back(self._liveness.due_back(now, self._subscriptions.keys()))
            except Exception as error:
                with self._lock:
                    self._asked |= asked & self._subscriptions.keys()
                log.warning("the notifier cannot read results; it tries again", error=one_line(error))
                self._hand_back(self._liveness.due_back(now, self._subscriptions.keys()))
                self._looking.wait(1.0)

    def _await_api_server(self) -> None:
        """Ask the API server until its first answer."""
        while not self._meeting.is_stopping and not self.api_server.ask():
            self._meeting.wait(SWEEP_EVERY)

    def _ask(self, instance_ids: Iterable[int]) -> None:
        """Read the state of instances from the database, and tell their triggers."""
        ids, database = sorted(instance_ids), self.pool.database
        for start in range(0, len(ids), AT_ONCE):
            some = ids[start : start + AT_ONCE]
            rows = {row.id: row for row in database.read(inspecting.waiters, some)}
            self._end_unknown(some, rows)
            for row in rows.values():
                if row.state != State.SENSING:
                    self._end(row.id, InstanceResult.of(row))
            self._tell(self._task_log.first_lines(row for row in rows.values() if row.state == State.SENSING))
            for instance_id in some:
                if instance_id not in self._subscriptions:  # its trigger has left since
                    self._task_log.forget(instance_id)

    def _end_unknown(self, instance_ids: Iterable[int], rows: Mapping[int, Any]) -> None:
        """Hand back the tasks whose instance is gone: a trigger takes the first end that it gets."""
        with self._lock:
            unknown = [
                subscription
                for instance_id in instance_ids
                for subscription in self._subscriptions.get(instance_id, ())
                if instance_id not in rows or not is_of(subscription.ti_id, rows[instance_id])
            ]
        for subscription in unknown:
            why = f"the pool does not know instance {subscription.instance_id} any more"
            subscription.put(InstanceResult.handed_back(why))

    def _hand_back(self, instance_ids: list[int]) -> None:
        """Hand instances back to their workers: the pool is dead."""
        if not instance_ids:
            return
        why = "the pool is dead: no tick has finished for a while"
        try:
            self.pool.settler.hand_back(dict.fromkeys(instance_ids, why))
            self._ask(instance_ids)
        except Exception as error:
            log.warning("tasks go back to workers; their instances are cancelled later", error=one_line(error))
            for instance_id in instance_ids:
                self._end(instance_id, InstanceResult.handed_back(why))

    def _end(self, instance_id: int, end: InstanceResult) -> None:
        with self._lock:
            subscriptions = list(self._subscriptions.get(instance_id, ()))
        for subscription in subscriptions:
            subscription.put(end)

    def _tell_all(self, line: str) -> None:
        with self._lock:
            waiting = list(self._subscriptions)
        self._tell(dict.fromkeys(waiting, line))

    def _tell(self, lines: dict[int, str]) -> None:
        for instance_id, line in lines.items():
            with self._lock:
                subscriptions = list(self._subscriptions.get(instance_id, ()))
            for subscription in subscriptions:
                subscription.put(line)
