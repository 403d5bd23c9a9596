"""Results that dead processes left in the database, or that the broker did not take. They are published again."""

import time
from collections.abc import Iterator

from sensorpool.errors import Unreachable
from sensorpool.instrumentation.logs import logger
from sensorpool.model.values import Milliseconds
from sensorpool.publish.publisher import Publisher
from sensorpool.publish.putting_off import LONGEST_AWAY, STRIKES, in_parts, pause
from sensorpool.store import outbox_rows
from sensorpool.store.database import Database

AGE = 5_000  # milliseconds: a younger outbox row is being sent by the process that wrote it
_NEWEST = 50  # newest outbox rows that are sent first: waiters of old rows have read the database by now
_PAGE = 50  # outbox rows read at once
_INSTANCES = 1_000  # read at once

log = logger(__name__)


class LeftBehind:
    """Publishes outbox rows of other processes."""

    def __init__(self, database: Database, publisher: Publisher) -> None:
        self._database = database
        self._publisher = publisher

    def send(self, seconds: float) -> int:
        """Publish outbox rows; return how many were sent. A row that is refused is put off, and the rest go on.

        :param seconds: after which no further row is begun; at least one row is tried.
        :raises Unreachable: when the database does not answer.
        """
        until, sent, strikes = time.monotonic() + seconds, 0, 0
        for place, row in enumerate(self._rows()):
            if (place and time.monotonic() >= until) or strikes >= STRIKES:
                break
            try:
                self._publish(row)
            except Unreachable as error:
                log.warning("results are published later", error=str(error))
                self._put_off(row, LONGEST_AWAY)
                strikes += 1
            except Exception:
                log.exception("results could not be published", instance_ids=row.instance_ids[:20])
                self._put_off(row, outbox_rows.LONGEST_PAUSE)
                strikes = 0
            else:
                sent, strikes = sent + 1, 0
        return sent

    def _rows(self) -> Iterator[outbox_rows.Unpublished]:
        """Yield outbox rows that may be tried: the newest ones, and then all, the oldest first."""
        now = self._database.read(self._database.now)
        newest = self._database.read(outbox_rows.unpublished, now, AGE, _NEWEST, newest=True)
        yield from newest
        seen, after = {row.id for row in newest}, 0
        while page := self._database.read(outbox_rows.unpublished, now, AGE, _PAGE, after=after):
            yield from (row for row in page if row.id not in seen)
            after = page[-1].id

    def _publish(self, row: outbox_rows.Unpublished) -> None:
        ids = row.instance_ids
        for start in range(0, len(ids), _INSTANCES):
            for some in in_parts(self._database, ids[start : start + _INSTANCES]):
                self._publisher.publish(some)
        self._database.run(outbox_rows.forget, row.id)

    def _put_off(self, row: outbox_rows.Unpublished, longest: Milliseconds) -> None:
        now = self._database.read(self._database.now)
        until = now + pause(row.tries, longest)
        self._database.run(outbox_rows.put_off, row.id, row.tries + 1, until)
