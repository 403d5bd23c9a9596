"""Callbacks that wait in the database, a row each, until their broker takes them."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from sensorpool.config.settings import Settings
from sensorpool.errors import Refused, Unreachable
from sensorpool.instrumentation.logs import logger
from sensorpool.model.values import Milliseconds, Settled
from sensorpool.publish.callbacks import Callbacks, NotAllowed, not_allowed
from sensorpool.publish.putting_off import LONGEST_AWAY, STRIKES, in_parts, pause
from sensorpool.publish.signature import COMPOSED, is_allowed
from sensorpool.store import callback_rows as rows
from sensorpool.store import outbox_rows
from sensorpool.store.database import Database

_AT_ONCE = 100  # callbacks claimed at once
_OTHERS_TURN = 5_000  # milliseconds until a callback is tried again that another worker has to send
_CLAIM = 60_000  # milliseconds for which no other process sends what this one has claimed

log = logger(__name__)


class WaitingCallbacks:
    """Sends callbacks, and deletes their rows."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._tasks = (*settings.on_settled_tasks, settings.on_late_task)
        self._database = database
        self._sender = Callbacks(settings)

    def send(self, settled: Settled, tries: int, *, is_claimed: bool = False) -> bool:
        """Send a callback and delete its row; return whether it was sent. A refused callback is put off.

        :param tries: how often the callback was tried before.
        :param is_claimed: whether no other process tries it meanwhile.
        :raises Unreachable: when its broker, or the database, does not answer.
        """
        return self._try(settled.id, tries, partial(self._sender.send, settled), is_claimed=is_claimed)

    def send_some(self) -> bool:
        """Send callbacks that are due; return whether there may be more.

        :raises Unreachable: when the database does not answer, or a broker does not for several callbacks.
        """
        now = self._database.read(self._database.now)
        # of a chord the tasks in it matter, which its sender looks at
        tasks = [each for each in self._database.read(rows.tasks) if each in COMPOSED or is_allowed(each, self._tasks)]
        self._database.run(rows.note_not_allowed, now, tasks, not_allowed("its task"))
        claimed = self._database.run(rows.claim, now, tasks, now + _CLAIM, _AT_ONCE)
        tries = {each.instance_id: each.tries for each in claimed}
        tried: set[int] = set()
        ends, strikes = time.monotonic() + _CLAIM / 2000, 0
        for row_id, send in self._sendings(claimed):
            if time.monotonic() >= ends:
                return False
            tried.add(row_id)
            try:
                self._try(row_id, tries[row_id], send, is_claimed=True)
                strikes = 0
            except Unreachable:
                strikes += 1
                if strikes >= STRIKES:
                    left = tries.keys() - tried
                    self._database.run(rows.unclaim, left, now)
                    raise
        if deleted := tries.keys() - tried:  # their instances were deleted
            self._database.run(rows.sent, deleted)
        return len(claimed) == _AT_ONCE

    def close(self) -> None:
        """Close the connections."""
        self._sender.close()

    def _sendings(self, claimed: Sequence[rows.WaitingCallback]) -> Iterator[tuple[int, Callable[[], None]]]:
        """Yield the id of each row, and what sends its callback; none for an instance that is gone."""
        for each in claimed:
            if each.argument is not None:
                yield each.instance_id, partial(self._sender.send_late, each.task, each.argument)
        for part in in_parts(self._database, [each.instance_id for each in claimed if each.argument is None]):
            for settled in part:
                yield settled.id, partial(self._sender.send, settled)

    def _try(self, row_id: int, tries: int, send: Callable[[], None], *, is_claimed: bool) -> bool:
        """Send a callback and delete its row; see `send`."""
        try:
            send()
        except NotAllowed as error:
            log.warning("a callback's task is not allowed here", instance_id=row_id, error=str(error))
            if is_claimed:  # a worker whose settings allow the task sends it
                self._leave(row_id, tries, str(error))
            return False
        except Unreachable as error:
            self._put_off(row_id, tries, LONGEST_AWAY, str(error))
            raise
        except Refused as error:
            log.warning("a callback is sent later", instance_id=row_id, error=str(error))
            self._put_off(row_id, tries, outbox_rows.LONGEST_PAUSE, str(error))
            return False
        except ValueError as error:  # the row has no signature any more: it can never be sent
            log.warning("a callback cannot be sent", instance_id=row_id, error=str(error))
        self._database.run(rows.sent, [row_id])
        return True

    def _leave(self, instance_id: int, tries: int, cause: str) -> None:
        """Leave a claimed callback to the other workers, with the cause."""
        now = self._database.read(self._database.now)
        self._database.run(rows.put_off, instance_id, tries, now + _OTHERS_TURN, cause)

    def _put_off(self, instance_id: int, tries: int, longest: Milliseconds, cause: str) -> None:
        now = self._database.read(self._database.now)
        until = now + pause(tries, longest)
        self._database.run(rows.put_off, instance_id, tries + 1, until, cause)
