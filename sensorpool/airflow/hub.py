"""The hub: one for all pool triggers of a triggerer process.

A thread listens to what the pool publishes and a thread asks the database: a message is a hint, so whoever it names is
looked up before a task ends by it. The same look goes over all who wait every `SWEEP_EVERY` seconds, for messages get
lost, and over those who have just come: after a restart of the triggerer their result may be there already.

Thousands of triggers cost one subscription, one query a sweep, and a box each. What is heard reaches a trigger on its
event loop, so that what it logs stands in its own task's log.
"""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, ClassVar

from sensorpool.airflow.api_server import ApiServer
from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.gossip import Gossip
from sensorpool.airflow.pulse import Pulse
from sensorpool.airflow.saw import Saw
from sensorpool.errors import SensorpoolError, Unknown
from sensorpool.flush import call_off
from sensorpool.logs import logger
from sensorpool.pool import Pool
from sensorpool.publish import deliver, listen
from sensorpool.settings import Settings
from sensorpool.states import Ending, State
from sensorpool.store import closing, looking

SWEEP_EVERY = 15.0  # seconds
AT_ONCE = 5_000  # ids in one statement
_PATIENCE = 10.0  # seconds between two attempts at what does not answer

log = logger(__name__)


class Box:
    """Where one trigger hears of its instance."""

    __slots__ = ("_loop", "_queue", "instance_id")

    def __init__(self, instance_id: int) -> None:
        self.instance_id = instance_id
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Saw | str] = asyncio.Queue()

    def put(self, item: Saw | str) -> None:
        """Tell the trigger; from any thread."""
        with suppress(RuntimeError):  # the loop is closed: the triggerer is going
            self._loop.call_soon_threadsafe(self._queue.put_nowait, item)

    async def next_end(self, say: Callable[[str], object]) -> Saw | None:
        """Wait for the next item: the end, or something to say."""
        item = await self._queue.get()
        if isinstance(item, Saw):
            return item
        say(item)
        return None


class Hub:
    """See the module. Safe to share between threads."""

    _of_processes: ClassVar[dict[int, "Hub"]] = {}
    _making = threading.Lock()
    _failed: ClassVar[tuple[float, Exception | None]] = (0.0, None)

    def __init__(self, pool: Pool, settings: AirflowSettings) -> None:
        self.settings = settings
        self.api_server = ApiServer()
        self._pool = pool
        self._boxes: dict[int, list[Box]] = {}
        self._asked: set[int] = set()  # those that somebody said something of, or who have just come
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._gossip = Gossip(pool, settings.log_every)
        self._pulse = Pulse(pool, settings)
        self._closing = threading.Event()
        self._threads = [
            threading.Thread(target=work, daemon=True, name=f"sensorpool-hub{work.__name__}")
            for work in (self._listen, self._look, self._meet)
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop hearing and looking."""
        self._closing.set()
        self._wake.set()
        for thread in self._threads:
            thread.join(_PATIENCE)

    @classmethod
    def of_this_process(cls) -> "Hub":
        """Return this process's hub.

        :raises SettingsError: when a setting is wrong.
        """
        with cls._making:
            hub = cls._of_processes.get(os.getpid())
            if hub is None:
                failed_at, failure = cls._failed
                if failure is not None and time.monotonic() - failed_at < _PATIENCE / 2:
                    raise failure  # thousands of triggers ask, and looking at the settings takes time
                try:
                    hub = cls._of_processes[os.getpid()] = cls(Pool(Settings.load()), AirflowSettings.load())
                except Exception as error:
                    cls._failed = time.monotonic(), error
                    raise
            return hub

    @classmethod
    async def come_by(cls, say: Callable[[str], object]) -> "Hub":
        """Return this process's hub; while it cannot be had, say why and try again: nothing may fail a task here."""
        while True:
            try:
                hub = cls._of_processes.get(os.getpid())
                # settings may come from a backend that takes its time: not on the loop of all triggers
                return hub if hub is not None else await asyncio.to_thread(cls.of_this_process)
            except Exception as error:
                say(f"sensorpool: the triggerer cannot reach the pool: {' '.join(str(error).split())}")
                await asyncio.sleep(_PATIENCE)

    def join(self, instance_id: int) -> Box:
        """Wait for an instance; call on the event loop."""
        box = Box(instance_id)
        with self._lock:
            self._boxes.setdefault(instance_id, []).append(box)
            self._asked.add(instance_id)
        self._wake.set()
        return box

    def leave(self, box: Box) -> None:
        """Wait no more."""
        with self._lock:
            boxes = self._boxes.get(box.instance_id, [])
            if box in boxes:
                boxes.remove(box)
            if not boxes:
                self._boxes.pop(box.instance_id, None)
                self._asked.discard(box.instance_id)
        self._gossip.forget(box.instance_id)

    def cancel(self, instance_id: int, reason: str) -> None:
        """Cancel an instance. What does not succeed now, rescue does."""
        try:
            self._pool.cancel(instance_id, reason)
        except Unknown:
            pass
        except SensorpoolError as error:
            log.warning("an instance is cancelled later", instance_id=instance_id, error=str(error))

    def _listen(self) -> None:
        while not self._closing.is_set():
            try:
                with listen(self._pool.settings, until=self._closing.is_set) as bodies:
                    for body in bodies:
                        self._hear(body)
            except Exception as error:
                log.warning("no results are heard; the sweep goes on", error=" ".join(str(error).split())[:200])
                self._closing.wait(_PATIENCE)

    def _hear(self, body: dict[str, Any]) -> None:
        named: set[Any] = {one.get("id") for one in body.get("settled", ()) if isinstance(one, dict)}
        with self._lock:
            ours = named & self._boxes.keys()
            self._asked |= ours
        if ours:
            self._wake.set()

    def _look(self) -> None:
        swept = time.monotonic()
        while not self._closing.is_set():
            self._wake.wait(1.0)
            self._wake.clear()
            now = time.monotonic()
            with self._lock:
                asked, self._asked = self._asked, set()
                if now - swept >= SWEEP_EVERY:
                    asked, swept = set(self._boxes), now
            try:
                self._ask(asked)
                if swept == now:
                    self._tell(self._gossip.news())
                    self._hand_back(self._pulse.feel(now, self._boxes.keys()))
            except Exception as error:
                with self._lock:
                    self._asked |= asked & self._boxes.keys()
                log.warning("the hub looks again later", error=" ".join(str(error).split())[:300])
                self._hand_back(self._pulse.feel(now, self._boxes.keys()))
                self._closing.wait(1.0)

    def _meet(self) -> None:
        """Have the API server's first answer."""
        while not self._closing.is_set() and not self.api_server.ask():
            self._closing.wait(SWEEP_EVERY)

    def _ask(self, instance_ids: Iterable[int]) -> None:
        """Ask the database how these are doing."""
        ids, database = sorted(instance_ids), self._pool.database
        for start in range(0, len(ids), AT_ONCE):
            some = ids[start : start + AT_ONCE]
            rows = {row.id: row for row in database.read(lambda c, some=some: looking.waiters(c, some))}  # type: ignore[misc]
            ended = [row.id for row in rows.values() if row.state != State.SENSING]
            if ended:
                for settled in database.read(lambda c, ended=ended: closing.settled(c, ended)):  # type: ignore[misc]
                    self._end(settled.id, Saw.of(settled))
            for instance_id in some:
                if instance_id not in rows:
                    why = f"the pool does not know instance {instance_id} any more"
                    self._end(instance_id, Saw(State.CANCELLED, Ending.HANDED_BACK, why))
            self._tell(self._gossip.met(row for row in rows.values() if row.state == State.SENSING))
            for instance_id in some:
                if instance_id not in self._boxes:  # it left while we asked
                    self._gossip.forget(instance_id)

    def _hand_back(self, instance_ids: list[int]) -> None:
        """Have these run natively: the pool is dead."""
        if not instance_ids:
            return
        why = "the pool is dead: no tick has finished for a while"
        try:
            flushed = call_off(self._pool.database, dict.fromkeys(instance_ids, why), Ending.HANDED_BACK)
            deliver(self._pool.database, self._pool.publisher, flushed)
            self._ask(instance_ids)
        except Exception as error:
            log.warning("tasks go back to workers; their instances are cancelled later", error=str(error)[:200])
            for instance_id in instance_ids:
                self._end(instance_id, Saw(State.CANCELLED, Ending.HANDED_BACK, why))

    def _end(self, instance_id: int, end: Saw) -> None:
        with self._lock:
            boxes = list(self._boxes.get(instance_id, ()))
        for box in boxes:
            box.put(end)

    def _tell(self, news: dict[int, str]) -> None:
        for instance_id, line in news.items():
            with self._lock:
                boxes = list(self._boxes.get(instance_id, ()))
            for box in boxes:
                box.put(line)
