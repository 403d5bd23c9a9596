"""Beat's clock: ticks by the monotonic clock, and no ticks while no worker takes them up.

Celery's own scheduler goes by the wall clock, so a clock that is set back an hour stops the pool for that hour. It also
sends on while all workers are away, so they come back to thousands of useless messages. While a broker takes no
messages, it logs a traceback for each of its own; this scheduler logs one line, and tries again after a pause.
"""

import time
from typing import Any

from celery.beat import ScheduleEntry, Scheduler
from celery.schedules import schedule
from kombu.exceptions import OperationalError

from sensorpool.config.settings import Settings
from sensorpool.errors import SensorpoolError
from sensorpool.instrumentation import alive
from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import one_line
from sensorpool.leases.lease import leases_of
from sensorpool.leases.roster import Roster
from sensorpool.publish import wire

UNTAKEN = 3  # ticks that may wait in the queue
_UNTAKEN = "no worker takes jobs as fast as ticks come; no more are sent until fewer wait"
_OURS = frozenset({wire.POKE_SHARD, wire.RESCUE})
ASK_EVERY = 10.0  # seconds between two reads of the roster
_NOTED = 3  # as many ticks, and reads of the roster, the note of beat's tick is kept
_PATIENCE = 0.5  # seconds that Redis has to answer
_PAUSE = 5.0  # seconds without an attempt after the broker took no message, or a tick if that is shorter

log = logger(__name__)


class Ticks(Scheduler):
    """Sends due entries. An entry whose schedule is no span of seconds goes by the wall clock, as in Celery."""

    _due: dict[str, float]
    _is_holding_back = False
    _roster: Roster | None = None
    _pool_id: str | None = None
    _asked = -ASK_EVERY
    _quiet_until = 0.0
    _said = ""  # the cause that was logged; empty while the broker takes messages

    def setup_schedule(self) -> None:
        """Take up the schedule: all entries are due now."""
        super().setup_schedule()
        self._due = {}

    def tick(self, *_: Any, **__: Any) -> float:
        """Send the due entries; return the seconds until the next look."""
        alive.come_round()
        now = time.monotonic()
        if now < self._quiet_until:
            return min(float(self.max_interval), self._quiet_until - now)
        waits = [float(self.max_interval)]
        ready: list[ScheduleEntry] = []
        for entry in list(self.schedule.values()):
            if type(entry.schedule) is schedule:
                due = self._due.get(entry.name, now)
                if due <= now:
                    ready.append(entry)
                    span = entry.schedule.seconds
                    due = self._due[entry.name] = due + span if due + span > now else now + span
                waits.append(due - now)
            else:
                is_due, wait = entry.is_due()
                if is_due:
                    ready.append(entry)
                waits.append(wait)
        if ready:
            self._ask_roster()
            holds_back = self._holds_back_jobs(ready)
            headers = wire.headers(self._pool_id)
            for place, entry in enumerate(ready):
                alive.come_round()
                if not (holds_back and entry.task in _OURS):
                    entry.options["headers"] = headers
                    self.apply_entry(self.reserve(entry), producer=self.producer)
                if now < self._quiet_until:
                    # the broker takes no entry: this one and the rest are due again after the pause
                    again = [each.name for each in ready[place:]]
                    self._due |= {name: self._quiet_until for name in again if name in self._due}
                    waits.append(self._quiet_until - now)
                    break
        return max(0.0, min(waits) - (time.monotonic() - now))

    def apply_entry(self, entry: ScheduleEntry, producer: Any = None) -> None:
        """Send an entry; where the broker takes no messages, send nothing for a while."""
        log.debug("a due entry is sent", entry=entry.name)
        try:
            self.apply_async(entry, producer=producer, advance=False)
        except Exception as error:
            cause = error.__context__ or error  # Celery wraps the cause
            if not isinstance(cause, OperationalError | OSError):
                log.error("a due entry cannot be sent", entry=entry.name, error=one_line(cause))
                return
            self._quiet_until = time.monotonic() + min(_PAUSE, *(each.schedule.seconds for each in self._ticks()))
            # Redis names the command before " caused error: ": the same refusal of another command is the same cause
            said = one_line(cause).rpartition(" caused error: ")[2]
            if said != self._said:
                self._said = said
                log.error("the broker takes no messages; beat tries again by itself", error=one_line(cause))
        else:
            if self._said:
                log.info("the broker takes messages again")
                self._said = ""

    def close(self) -> None:
        """Remove the sign of life, and end."""
        alive.end()
        super().close()

    def _holds_back_jobs(self, ready: list[ScheduleEntry]) -> bool:
        """Whether so many jobs wait in the queue that more would be useless.

        Rescue's jobs count too: otherwise hours of them would stand before the ticks when the workers are back.
        """
        if not any(entry.task in _OURS for entry in ready):
            return False
        waiting, ticks = self._waiting(), len(self._ticks())
        if waiting <= UNTAKEN * ticks:
            if waiting <= ticks and self._is_holding_back:
                log.info("workers take jobs again", queue=self._queue)
                self._is_holding_back = False  # a pool that is just too slow would be said to be so again and again
            return False
        if not self._is_holding_back:
            self._is_holding_back = True
            log.warning(_UNTAKEN, queue=self._queue)
        return True

    def _ticks(self) -> list[ScheduleEntry]:
        """Return the entries of the ranges."""
        return [entry for entry in self.schedule.values() if entry.task == wire.POKE_SHARD]

    @property
    def _settings(self) -> Settings:
        settings: Settings = self.app.sensorpool_runtime.settings
        return settings

    def _ask_roster(self) -> None:
        """Ask the roster now and then whose pool it is; note beat's tick there.

        Beat needs no database. The pool id is None while it is not known.
        """
        settings, now = self._settings, time.monotonic()
        if now - self._asked < ASK_EVERY:
            return
        self._asked = now
        try:
            if self._roster is None:
                self._roster = Roster(leases_of(settings, patience=_PATIENCE))
            workers = self._roster.workers()
            self._roster.note_beat(settings.tick, kept=_NOTED * (settings.tick + ASK_EVERY))
        except SensorpoolError:
            workers = []  # Redis is away: its last answer may be out of date
        served = {worker.terms.pool_id for worker in workers}
        self._pool_id = served.pop() if len(served) == 1 else None

    @property
    def _queue(self) -> str:
        """The queue of the pool's jobs, whatever default queue an overlay sets."""
        return wire.queue_of(self._settings)

    def _waiting(self) -> int:
        try:
            queue = self.app.amqp.queues[self._queue].bind(self.producer.channel)
            return int(queue.queue_declare().message_count)
        except Exception:  # the broker is away, or does not tell: the send reports it
            return 0
