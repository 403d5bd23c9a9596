"""What waits in the database because its broker did not take it: results and callbacks. They are sent again."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from sensorpool.config.settings import Settings
from sensorpool.errors import Refused, Unreachable
from sensorpool.instrumentation.logs import logger
from sensorpool.model.values import Milliseconds, Settled
from sensorpool.publish.callbacks import Callbacks, NotAllowed, not_allowed
from sensorpool.publish.publisher import Publisher
from sensorpool.publish.signature import COMPOSED, is_allowed
from sensorpool.store import callback_rows as rows
from sensorpool.store import outbox_rows, results
from sensorpool.store.database import Database

AGE = 5_000  # milliseconds: a younger outbox row is being sent by the process that wrote it
_PAGE = 50  # outbox rows read at once
_INSTANCES = 1_000  # read at once
_CALLBACKS = 100  # claimed at once
_CLAIM = 60_000  # milliseconds for which no other process sends a callback that this one has claimed
_OTHERS_TURN = 5_000  # milliseconds until a callback is tried again that another worker has to send
_LONGEST_AWAY = 60_000  # milliseconds: the longest pause while a broker does not answer
_AWAY = 2  # messages in a row without an answer after which a broker counts as away
_FIRST_PAUSE = 15_000  # milliseconds after the first refusal; doubles with each further one

log = logger(__name__)


def backoff(tries: int, longest: Milliseconds) -> Milliseconds:
    """Return how long a message waits after so many earlier tries, at most ``longest``."""
    return int(min(longest, _FIRST_PAUSE * 2 ** min(tries, 20)))


def _in_parts(database: Database, instance_ids: Sequence[int]) -> Iterator[list[Settled]]:
    """Yield settled instances, as many at once as memory has room for.

    :raises Unreachable: when the database does not answer.
    """
    for part in database.read(results.in_readable_parts, instance_ids):
        yield database.read(results.read, part)


class UnpublishedResults:
    """Publishes the results of outbox rows that dead processes left, or the broker did not take."""

    def __init__(self, database: Database, publisher: Publisher) -> None:
        self._database = database
        self._publisher = publisher

    def send(self, seconds: float) -> int:
        """Publish outbox rows; return how many were sent. A row that is refused is put off, and the rest go on.

        :param seconds: after which no further row is begun; at least one row is tried.
        :raises Unreachable: when the database does not answer.
        """
        until, sent, failed = time.monotonic() + seconds, 0, 0
        for place, row in enumerate(self._rows()):
            if (place and time.monotonic() >= until) or failed >= _AWAY:
                break
            try:
                self._publish(row)
            except Unreachable as error:
                log.warning("results are published later", error=str(error))
                self._postpone(row, _LONGEST_AWAY)
                failed += 1
            except Exception:
                log.exception("results could not be published", instance_ids=row.instance_ids[:20])
                self._postpone(row, outbox_rows.LONGEST_PAUSE)
                failed = 0
            else:
                sent, failed = sent + 1, 0
        return sent

    def _rows(self) -> Iterator[outbox_rows.Unpublished]:
        """Yield outbox rows that may be tried, the oldest first."""
        now, after = self._database.read(self._database.now), 0
        while page := self._database.read(outbox_rows.unpublished, now, AGE, _PAGE, after=after):
            yield from page
            after = page[-1].id

    def _publish(self, row: outbox_rows.Unpublished) -> None:
        ids = row.instance_ids
        for start in range(0, len(ids), _INSTANCES):
            for some in _in_parts(self._database, ids[start : start + _INSTANCES]):
                self._publisher.publish(some)
        self._database.run(outbox_rows.forget, row.id)

    def _postpone(self, row: outbox_rows.Unpublished, longest: Milliseconds) -> None:
        now = self._database.read(self._database.now)
        until = now + backoff(row.tries, longest)
        self._database.run(outbox_rows.put_off, row.id, row.tries + 1, until)


class WaitingCallbacks:
    """Sends callbacks, and deletes their rows."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._tasks = (*settings.on_settled_tasks, settings.on_late_task)
        self._database = database
        self._sender = Callbacks(settings)

    def send(self, settled: Settled) -> None:
        """Send a new callback and delete its row. A refused callback is sent later.

        :raises Unreachable: when its broker, or the database, does not answer.
        """
        self._try(settled.id, 0, partial(self._sender.send, settled), is_claimed=False)

    def send_some(self) -> bool:
        """Send callbacks that are due; return whether there may be more.

        :raises Unreachable: when the database does not answer, or a broker does not for several callbacks.
        """
        now = self._database.read(self._database.now)
        # of a chord the tasks in it matter, which its sender looks at
        tasks = [each for each in self._database.read(rows.tasks) if each in COMPOSED or is_allowed(each, self._tasks)]
        self._database.run(rows.note_not_allowed, now, tasks, not_allowed("its task"))
        claimed = self._database.run(rows.claim, now, tasks, now + _CLAIM, _CALLBACKS)
        tries = {each.instance_id: each.tries for each in claimed}
        tried: set[int] = set()
        ends, failed = time.monotonic() + _CLAIM / 2000, 0
        for row_id, send in self._sendings(claimed):
            if time.monotonic() >= ends:
                return False
            tried.add(row_id)
            try:
                self._try(row_id, tries[row_id], send, is_claimed=True)
                failed = 0
            except Unreachable:
                failed += 1
                if failed >= _AWAY:
                    left = tries.keys() - tried
                    self._database.run(rows.unclaim, left, now)
                    raise
        if deleted := tries.keys() - tried:  # their instances were deleted
            self._database.run(rows.sent, deleted)
        return len(claimed) == _CALLBACKS

    def close(self) -> None:
        """Close the connections."""
        self._sender.close()

    def _sendings(self, claimed: Sequence[rows.WaitingCallback]) -> Iterator[tuple[int, Callable[[], None]]]:
        """Yield the id of each row, and what sends its callback; none for an instance that is gone."""
        for each in claimed:
            if each.argument is not None:
                yield each.instance_id, partial(self._sender.send_late, each.task, each.argument)
        for part in _in_parts(self._database, [each.instance_id for each in claimed if each.argument is None]):
            for settled in part:
                yield settled.id, partial(self._sender.send, settled)

    def _try(self, row_id: int, tries: int, send: Callable[[], None], *, is_claimed: bool) -> None:
        """Send a callback and delete its row; see `send`.

        :param tries: how often the callback was tried before.
        :param is_claimed: whether no other process tries it meanwhile.
        """
        try:
            send()
        except NotAllowed as error:
            log.warning("a callback's task is not allowed here", instance_id=row_id, error=str(error))
            if is_claimed:  # a worker whose settings allow the task sends it
                self._database.run(rows.put_off, row_id, tries, self._now() + _OTHERS_TURN, str(error))
            return
        except Unreachable as error:
            self._postpone(row_id, tries, _LONGEST_AWAY, str(error))
            raise
        except Refused as error:
            log.warning("a callback is sent later", instance_id=row_id, error=str(error))
            self._postpone(row_id, tries, outbox_rows.LONGEST_PAUSE, str(error))
            return
        except ValueError as error:  # the row has no signature any more: it can never be sent
            log.warning("a callback cannot be sent", instance_id=row_id, error=str(error))
        self._database.run(rows.sent, [row_id])

    def _postpone(self, instance_id: int, tries: int, longest: Milliseconds, cause: str) -> None:
        self._database.run(rows.put_off, instance_id, tries + 1, self._now() + backoff(tries, longest), cause)

    def _now(self) -> Milliseconds:
        return self._database.read(self._database.now)
