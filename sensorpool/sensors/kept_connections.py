"""The connections that an engine keeps: as many as a burst of pokes took, until they have been idle for a while.

SQLAlchemy's pool keeps a fixed number for ever. A low number has each burst connect anew, which costs more than the
pokes; a high one holds connections of the user's server through the hours between two bursts.
"""

import select
import threading
import time
from contextlib import suppress
from typing import Any

from sqlalchemy import Engine, QueuePool, event
from sqlalchemy.exc import InvalidatePoolError
from sqlalchemy.pool import ConnectionPoolEntry

IDLE_KEPT = 30.0  # seconds
TRUSTED = 1.0  # seconds after its last use; a connection that was idle for longer is tried out
KEPT = 4  # connections that are kept however long they are idle


class KeptConnections(QueuePool):
    """A pool that closes connections which have been idle for `IDLE_KEPT`, but for the last `KEPT`."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._timer: threading.Timer | None = None
        self._timer_lock = threading.Lock()

    def _do_return_conn(self, record: ConnectionPoolEntry) -> None:
        record.info["idle_since"] = time.monotonic()
        super()._do_return_conn(record)
        if self.checkedin() > KEPT and self._timer is None:
            self._wait()

    def dispose(self) -> None:
        """Close all idle connections."""
        with self._timer_lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        super().dispose()

    def _wait(self) -> None:
        with self._timer_lock:
            if self._timer is None:
                timer = threading.Timer(IDLE_KEPT, self._look)
                timer.daemon = True
                # no thread can be started: the next connection that is returned tries again
                with suppress(RuntimeError):
                    timer.start()
                    self._timer = timer

    def _look(self) -> None:
        self._timer = None
        self.close_idle()
        if self.checkedin() > KEPT:
            self._wait()

    def close_idle(self) -> int:
        """Close the connections that have been idle for too long; return how many."""
        closed, latest, idle = 0, time.monotonic() - IDLE_KEPT, self._pool
        while True:
            with idle.mutex:  # type: ignore[attr-defined]
                found = idle.queue  # type: ignore[attr-defined]
                # the first has been idle for longest: the last that was returned is taken first
                if len(found) <= KEPT or found[0].info.get("idle_since", 0.0) > latest:
                    return closed
                record = found.popleft()
            self._dec_overflow()
            record.close()
            closed += 1


def try_out_connections(engine: Engine) -> None:
    """Have a kept connection tried out before it is used, for its server may have closed it.

    SQLAlchemy's `pool_pre_ping` asks the server each time; where pokes follow one another, a look at the socket does.
    """
    dialect = engine.dialect

    def try_out(connection: Any, record: ConnectionPoolEntry, _: Any) -> None:
        since = record.info.get("idle_since")
        if since is None or (time.monotonic() - since < TRUSTED and _is_quiet(connection)):
            return  # it is fresh, or has just been used
        try:
            dialect.do_ping(connection)
        except dialect.loaded_dbapi.Error as error:
            if dialect.is_disconnect(error, connection, None):
                raise InvalidatePoolError from error
            raise

    event.listen(engine, "checkout", try_out)


def _is_quiet(connection: Any) -> bool:
    """Whether an idle connection is known to be open: the server has neither closed it nor said a last word."""
    try:
        looking = select.poll()
        looking.register(connection.fileno(), select.POLLIN)
        return not looking.poll(0)
    except Exception:  # the driver does not tell, or has closed it
        return False
