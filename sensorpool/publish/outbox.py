"""The outbox: what was settled is told, at least once, and no settle waits for a broker.

Two queues, a thread each: results to our broker, callbacks to the user's. What a queue cannot take, or a broker does
not, waits in the database: an outbox row a flush, and a row a callback. Rescue sends it; each message waits for itself.
"""

import atexit
import os
import threading
import time
from collections.abc import Sequence
from functools import partial
from weakref import WeakSet

from sensorpool.config.settings import Settings
from sensorpool.errors import Unreachable
from sensorpool.instrumentation import forks
from sensorpool.instrumentation.failpoint import failpoint
from sensorpool.instrumentation.logs import logger
from sensorpool.model.values import Flushed, Settled, ShardRange
from sensorpool.publish.left_behind import LeftBehind
from sensorpool.publish.messages import weigh
from sensorpool.publish.publisher import Publisher
from sensorpool.publish.send_queue import SendQueue, Ticket
from sensorpool.publish.waiting_callbacks import WaitingCallbacks
from sensorpool.store import outbox_rows
from sensorpool.store.database import Database

CLOSING = 5.0  # seconds that a process which ends gives to what it has in hand
_AT_EXIT = 2.0  # the same, of one that was not closed

log = logger(__name__)
_open: "WeakSet[Outbox]" = WeakSet()


class Outbox:
    """Tells what was settled. Safe to share between threads.

    :param patience: seconds that `deliver` and `nudge` wait for a broker that answers at once, so that a process which
        ends now has told it.
    :param in_background: false: all is sent before `deliver` returns, in tests.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        publisher: Publisher,
        *,
        patience: float = 0.0,
        in_background: bool = True,
    ) -> None:
        self._settings = settings
        self._database = database
        self._publisher = publisher
        self._patience = patience
        self._callbacks = WaitingCallbacks(settings, database)
        self._left_behind = LeftBehind(database, publisher)
        self._is_in_background = in_background
        self.begin_anew()
        _open.add(self)
        forks.note(self)

    def begin_anew(self) -> None:
        """Make the queues: those of before a fork, and what is in them, are the parent's."""
        self._pid = os.getpid()
        self._results, self._callback_queue = SendQueue("results"), SendQueue("callbacks")
        self._catching_up = threading.Lock()

    def deliver(self, flushed: Flushed) -> None:
        """Have a flush told; its messages go now, or rescue sends them."""
        if flushed.outbox_id is None:
            return
        publish = partial(self._publish, flushed.settled, flushed.outbox_id)
        if not self._is_in_background:
            self._try(publish)
            return
        self._put(publish, _weight(flushed.settled))
        for each in flushed.settled:
            if each.on_settled is not None:
                self._callback_queue.put(partial(self._callbacks.send, each, 0), weigh(each) + len(each.on_settled))

    def nudge(self, shard_range: ShardRange, *, again: bool = False) -> None:
        """Have a range looked at now. A hint: without it, it waits for its tick.

        :param again: see `Publisher.nudge`.
        """
        if self._is_in_background:
            self._put(partial(self._publisher.nudge, shard_range, again=again), 0)
        else:
            self._publisher.nudge(shard_range, again=again)

    def send_left_behind(self, seconds: float) -> int:
        """Publish what dead processes left, or a broker did not take; return how many outbox rows went.

        A row that is refused is put off, and stops no other.

        :param seconds: after which no further row is begun; one is, at least.
        :raises Unreachable: when the database does not answer.
        """
        return self._left_behind.send(seconds)

    def send_waiting_callbacks(self) -> None:
        """Have the callbacks sent that wait, by their queue: their broker may hang for as long as it likes."""
        if self._is_in_background and self._catching_up.acquire(blocking=False):
            if self._callback_queue.put(self._catch_up) is None:
                self._catching_up.release()
        elif not self._is_in_background:
            while self._callbacks.send_some():
                pass

    @property
    def is_of_this_process(self) -> bool:
        """Whether it was made here: a fork has none of its threads."""
        return self._pid == os.getpid()

    def close(self, patience: float = CLOSING) -> None:
        """Send what is in hand, within ``patience`` seconds; what is left then waits in the database."""
        _open.discard(self)
        until = time.monotonic() + patience
        for queue in (self._results, self._callback_queue):
            queue.stop(patience)
        if self._results.join(until - time.monotonic()):
            self._publisher.close()
        if self._callback_queue.join(until - time.monotonic()):
            self._callbacks.close()

    def _put(self, act: "partial[None]", weight: int) -> None:
        clear = self._results.is_clear
        ticket: Ticket | None = self._results.put(act, weight)
        if ticket is not None and clear and self._patience:  # behind an item that hangs it would wait in vain
            ticket.wait(self._patience)

    def _try(self, act: "partial[None]") -> None:
        try:
            act()
        except Unreachable as error:
            log.warning("results are published later", error=str(error))

    def _publish(self, settled: Sequence[Settled], outbox_id: int) -> None:
        failpoint("publish.before")
        self._publisher.publish(settled)
        failpoint("publish.after")
        self._database.run(outbox_rows.forget, outbox_id)

    def _catch_up(self) -> None:
        """Send some callbacks that wait; then those have their turn that were just settled, and then it goes on."""
        more = False
        try:
            more = self._callbacks.send_some()
        finally:
            if not more or self._callback_queue.put(self._catch_up) is None:
                self._catching_up.release()


def _weight(settled: Sequence[Settled]) -> int:
    """Return the bytes of a flush in memory; a value of many waiters is one object."""
    distinct = {id(each.xcom_value): len(each.xcom_value) for each in settled if each.xcom_value is not None}
    return sum(distinct.values()) + sum([weigh(each, with_value=False) for each in settled])


@atexit.register
def _close_all() -> None:
    """Give what is in hand a moment, in a process that ends without closing its pool."""
    for each in list(_open):
        if each.is_of_this_process:
            each.close(_AT_EXIT)
