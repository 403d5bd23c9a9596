"""Beat's clock: ticks by the monotonic clock, and none while nobody takes them up.

Celery's own scheduler goes by the wall clock, so one that is set back an hour stops the pool for that hour. And it
sends on while all workers are away, so that they come back to thousands of messages that are of no use.
"""

import time
from typing import Any

from celery.beat import ScheduleEntry, Scheduler
from celery.schedules import schedule

from sensorpool import wire
from sensorpool.logs import logger

UNTAKEN = 3  # ticks that may wait in the queue

log = logger(__name__)


class Ticks(Scheduler):  # type: ignore[misc]  # celery has no types
    """Sends what is due. Entries of other kinds than spans of seconds go by the wall clock, as in Celery."""

    _due: dict[str, float]
    _holds_back = False

    def setup_schedule(self) -> None:
        """Take the schedule up: all of it is due now."""
        super().setup_schedule()
        self._due = {}

    def tick(self, *_: Any, **__: Any) -> float:
        """Send what is due, and return in how many seconds to look again."""
        here = time.monotonic()
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
            holds_back = self._holds_back_ticks(ready)
            for entry in ready:
                if not (holds_back and entry.task == wire.POKE_SHARD):
                    self.apply_entry(self.reserve(entry), producer=self.producer)
        return max(0.0, min(waits) - (time.monotonic() - here))

    def _holds_back_ticks(self, ready: list[ScheduleEntry]) -> bool:
        """Whether so many jobs wait in the queue that more would be of no use."""
        ticks = [entry for entry in self.schedule.values() if entry.task == wire.POKE_SHARD]
        if not any(entry.task == wire.POKE_SHARD for entry in ready):
            return False
        holds_back = self._waiting() > UNTAKEN * len(ticks)
        if holds_back and not self._holds_back:
            log.warning("no worker takes jobs up; no more are sent until one does", queue=wire.QUEUE)
        self._holds_back = holds_back
        return holds_back

    def _waiting(self) -> int:
        try:
            queue = self.app.amqp.queues[wire.QUEUE].bind(self.producer.channel)
            return int(queue.queue_declare().message_count)
        except Exception:  # a broker that is away, or does not say: then sending says what is wrong
            return 0
