"""The outbox: each result is published at least once, and no settle waits for a broker.

There are two send queues, each with a thread: results go to our broker, callbacks to the user's. A message that a queue
or a broker does not take stays in the database: an outbox row for each flush, and a row for each callback. Rescue sends
these; a row that is refused holds up no other.
"""

import atexit
import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from weakref import WeakSet

from sensorpool.config.settings import Settings
from sensorpool.instrumentation import forks, spans
from sensorpool.instrumentation.failpoint import failpoint
from sensorpool.instrumentation.logs import logger
from sensorpool.model import callback_messages
from sensorpool.model.values import Flushed, Settled, ShardRange
from sensorpool.publish.messages import weigh
from sensorpool.publish.publisher import Publisher
from sensorpool.publish.retrying import UnpublishedResults, WaitingCallbacks
from sensorpool.publish.send_queue import SendQueue
from sensorpool.store import outbox_rows
from sensorpool.store.database import Database

CLOSING = 5.0  # seconds that a closing process gives to its last messages
_AT_EXIT = 2.0  # seconds that a process gives them if it exits without `close`

log = logger(__name__)
_open: "WeakSet[Outbox]" = WeakSet()


class Outbox:
    """Publishes what was settled. Safe to share between threads.

    :param patience: seconds that `deliver` and `nudge` wait for the broker, so that a process that ends directly after
        them has sent its message.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        publisher: Publisher,
        *,
        patience: float = 0.0,
    ) -> None:
        self._settings = settings
        self._database = database
        self._publisher = publisher
        self._patience = patience
        self._callbacks = WaitingCallbacks(settings, database)
        self._unpublished = UnpublishedResults(database, publisher)
        self.begin_anew()
        _open.add(self)
        forks.note(self)

    def begin_anew(self) -> None:
        """Make new queues: after a fork the old queues and their messages belong to the parent process."""
        self._pid = os.getpid()
        self._results, self._callback_queue = SendQueue("results"), SendQueue("callbacks")
        self._catching_up: threading.Event | None = None

    def deliver(self, flushed: Flushed) -> None:
        """Have the results of a flush published: now, or by rescue if the queue does not take them."""
        if flushed.outbox_id is None:
            return
        send = partial(self._publish, flushed.settled, flushed.outbox_id)
        publish = spans.following("publish", send, results=len(flushed.settled))
        self._put(publish, _weight(flushed.settled))
        for each in flushed.settled:
            if each.on_settled is not None and callback_messages.has_some(each.on_settled, each.state):
                self._callback_queue.put(partial(self._callbacks.send, each), weigh(each) + len(each.on_settled))

    def nudge(self, shard_range: ShardRange, *, again: bool = False) -> None:
        """Have a job look at a range now. A hint: if it is lost, the range waits for its tick.

        :param again: see `Publisher.nudge`.
        """
        self._put(partial(self._publisher.nudge, shard_range, again=again), 0)

    def send_left_behind(self, seconds: float) -> int:
        """Publish results that dead processes left, or a broker did not take; return how many outbox rows were sent.

        A row that is refused is put off, and the rest go on.

        :param seconds: after which no further row is begun; at least one row is tried.
        :raises Unreachable: when the database does not answer.
        """
        return self._unpublished.send(seconds)

    def send_waiting_callbacks(self) -> None:
        """Have the callback queue send the waiting callbacks; their broker may hang without harm."""
        if self._catching_up is None or self._catching_up.is_set():  # the queue may have left it
            self._catching_up = self._callback_queue.put(self._catch_up)

    @property
    def is_of_this_process(self) -> bool:
        """Whether the outbox was made in this process: a fork has none of its threads."""
        return self._pid == os.getpid()

    def close(self, patience: float = CLOSING) -> None:
        """Send the queued messages within ``patience`` seconds; the rest wait in the database."""
        _open.discard(self)
        until = time.monotonic() + patience
        for queue in (self._results, self._callback_queue):
            queue.stop(patience)
        if self._results.join(until - time.monotonic()):
            self._publisher.close()
        if self._callback_queue.join(until - time.monotonic()):
            self._callbacks.close()

    def _put(self, act: Callable[[], object], weight: int) -> None:
        clear = self._results.is_clear
        is_over = self._results.put(act, weight)
        if is_over is not None and clear and self._patience:  # behind an item that hangs a wait would be in vain
            is_over.wait(self._patience)

    def _publish(self, settled: Sequence[Settled], outbox_id: int) -> None:
        failpoint("publish.before")
        self._publisher.publish(settled)
        failpoint("publish.after")
        self._database.run(outbox_rows.forget, outbox_id)

    def _catch_up(self) -> None:
        """Send some waiting callbacks, and queue itself again: callbacks of new flushes go in between."""
        if self._callbacks.send_some():
            self._catching_up = self._callback_queue.put(self._catch_up)


def _weight(settled: Sequence[Settled]) -> int:
    """Return the bytes of a flush in memory; a value of several waiters is one object."""
    distinct = {id(each.xcom_value): len(each.xcom_value) for each in settled if each.xcom_value is not None}
    return sum(distinct.values()) + sum([weigh(each, with_value=False) for each in settled])


@atexit.register
def _close_all() -> None:
    """Send the queued messages of a process that exits without closing its pool."""
    for each in list(_open):
        if each.is_of_this_process:
            each.close(_AT_EXIT)
