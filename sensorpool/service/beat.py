"""Beat's clock: ticks by the monotonic clock, and none while nobody takes them up.

Celery's own scheduler goes by the wall clock, so one that is set back an hour stops the pool for that hour. And it
sends on while all workers are away, so that they come back to thousands of messages that are of no use. While a broker
takes no messages, it logs a traceback for each of them; here a cause is one line, and the next attempt is for all.
"""

import time
from typing import Any

from celery.beat import ScheduleEntry, Scheduler
from celery.schedules import schedule
from kombu.exceptions import OperationalError

from sensorpool.errors import SensorpoolError
from sensorpool.instrumentation import alive
from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import one_line
from sensorpool.leases.lease import leases_of
from sensorpool.leases.roster import Roster
from sensorpool.publish import wire

UNTAKEN = 3  # ticks that may wait in the queue
_OURS = frozenset({wire.POKE_SHARD, wire.RESCUE})
ASK_EVERY = 10.0  # seconds between two looks whose workers there are
_PAUSES = 0.5, 5.0  # seconds without an attempt after one that failed: the first time, and at most

log = logger(__name__)


class Ticks(Scheduler):
    """Sends what is due. Entries of other kinds than spans of seconds go by the wall clock, as in Celery."""

    _due: dict[str, float]
    _holds_back = False
    _roster: Roster | None = None
    _pool_id: str | None = None
    _asked = -ASK_EVERY
    _quiet_until = 0.0
    _pause = 0.0  # the last one; 0 while the broker takes messages
    _said: frozenset[str] = frozenset()  # causes

    def setup_schedule(self) -> None:
        """Take the schedule up: all of it is due now."""
        super().setup_schedule()
        self._due = {}

    def tick(self, *_: Any, **__: Any) -> float:
        """Send what is due, and return in how many seconds to look again."""
        alive.come_round()
        here = time.monotonic()
        if here < self._quiet_until:
            return min(float(self.max_interval), self._quiet_until - here)
        waits = [float(self.max_interval)]
        ready: list[ScheduleEntry] = []
        for entry in list(self.schedule.values()):
            if type(entry.schedule) is schedule:
                due = self._due.get(entry.name, here)
                if due <= here:
                    ready.append(entry)
                    span = entry.schedule.seconds
                    due = self._due[entry.name] = due + span if due + span > here else here + span
                waits.append(due - here)
            else:
                is_due, wait = entry.is_due()
                if is_due:
                    ready.append(entry)
                waits.append(wait)
        if ready:
            holds_back = self._holds_back_jobs(ready)
            headers = wire.headers(self._whose())
            for place, entry in enumerate(ready):
                alive.come_round()
                entry.options["headers"] = headers
                if not (holds_back and entry.task in _OURS):
                    self.apply_entry(self.reserve(entry), producer=self.producer)
                if here < self._quiet_until:
                    # the broker takes none of the others either: all are due once it may
                    self._due |= {each.name: self._quiet_until for each in ready[place:] if each.name in self._due}
                    waits.append(self._quiet_until - here)
                    break
        return max(0.0, min(waits) - (time.monotonic() - here))

    def apply_entry(self, entry: ScheduleEntry, producer: Any = None) -> None:
        """Send what is due; say why that fails in a line, once."""
        log.debug("sends what is due", entry=entry.name)
        try:
            self.apply_async(entry, producer=producer, advance=False)
        except Exception as error:
            cause = error.__context__ or error  # Celery wraps it
            if isinstance(cause, OperationalError | OSError):
                self._be_quiet(cause)
            else:
                self._say("what is due cannot be sent", cause, entry=entry.name)
        else:
            if self._pause:
                log.info("the broker takes messages again")
                self._pause, self._said = 0.0, frozenset()

    def _be_quiet(self, cause: BaseException) -> None:
        """Send nothing for a moment, for a longer one each time up to a tick."""
        spans = [each.schedule.seconds for each in self.schedule.values() if each.task == wire.POKE_SHARD]
        first, most = _PAUSES
        self._pause = min(max(first, 2 * self._pause), most, *spans)
        self._quiet_until = time.monotonic() + self._pause
        self._say("the broker takes no messages, which is tried again by itself", cause)

    def _say(self, event: str, cause: BaseException, **more: str) -> None:
        said = one_line(cause)
        # the same refusal of another command
        key = f"{event} {more} {said.rpartition(' caused error: ')[2]}"
        if key not in self._said:
            self._said |= {key}
            log.error(event, error=said, **more)

    def close(self) -> None:
        """End."""
        alive.end()
        super().close()

    def _holds_back_jobs(self, ready: list[ScheduleEntry]) -> bool:
        """Whether so many jobs wait in the queue that more would be of no use.

        Rescue is one of them: hours of it would stand before the ticks when the workers are back.
        """
        ticks = [entry for entry in self.schedule.values() if entry.task == wire.POKE_SHARD]
        if not any(entry.task in _OURS for entry in ready):
            return False
        holds_back = self._waiting() > UNTAKEN * len(ticks)
        if holds_back and not self._holds_back:
            log.warning("no worker takes jobs up; no more are sent until one does", queue=self._queue)
        self._holds_back = holds_back
        return holds_back

    def _whose(self) -> str | None:
        """Return the id of the pool that the workers serve, or None while they do not say: beat needs no database."""
        runtime = getattr(self.app, "sensorpool_runtime", None)
        here = time.monotonic()
        if runtime is None or here - self._asked < ASK_EVERY:
            return self._pool_id
        self._asked = here
        try:
            if self._roster is None:
                self._roster = Roster(leases_of(runtime.settings))
            served = {worker.terms.pool_id for worker in self._roster.workers()}
        except SensorpoolError:
            served = set()  # Redis is away: what it said before may be true no more
        self._pool_id = served.pop() if len(served) == 1 else None
        return self._pool_id

    @property
    def _queue(self) -> str:
        """The queue that is filled, whatever an overlay says of Celery's default."""
        runtime = getattr(self.app, "sensorpool_runtime", None)
        return str(self.app.conf.task_default_queue) if runtime is None else wire.queue_of(runtime.settings)

    def _waiting(self) -> int:
        try:
            queue = self.app.amqp.queues[self._queue].bind(self.producer.channel)
            return int(queue.queue_declare().message_count)
        except Exception:  # a broker that is away, or does not say: then sending says what is wrong
            return 0
