"""Keeps leases while their holders wait for the database: a heartbeat on a thread of its own, one a process.

While it pokes, a job renews its lease by itself. While it loads or settles, the job cannot, and a statement may take
longer than the lease lives. The next holder would then load as well, for as long, and no job would ever poke.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from sensorpool.instrumentation.background import BackgroundThread
from sensorpool.instrumentation.logs import logger
from sensorpool.leases.lease import Lease

_CLOSING = 2.0  # seconds that the last renewal may take

log = logger(__name__)


class Keeper:
    """Renews leases. Safe to share between threads.

    :param every: seconds between two renewals.
    :param longest: the most seconds for which a lease is kept in one `keeping`.
    """

    def __init__(self, every: float, longest: float) -> None:
        self._every = every
        self._longest = longest
        self._kept: dict[Lease, float] = {}  # each lease with the monotonic time of its `keeping`
        self._lock = threading.Lock()
        self._thread = BackgroundThread("lease keeper", self._keep)

    @contextmanager
    def keeping(self, *leases: Lease) -> Iterator[None]:
        """Keep leases within this context."""
        with self._lock:
            self._kept.update(dict.fromkeys(leases, time.monotonic()))
            self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                for lease in leases:
                    self._kept.pop(lease, None)

    @property
    def is_alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive

    def close(self) -> None:
        """Stop the thread: no lease is kept any more."""
        self._thread.close(_CLOSING)

    def _keep(self) -> None:
        while not self._thread.wait(self._every):
            with self._lock:
                kept = list(self._kept.items())
            for lease, since in kept:
                try:
                    if lease.is_ours() and time.monotonic() - since < self._longest:
                        lease.extend()
                except Exception:  # another lease must not suffer
                    log.exception("a lease was not renewed", shard_range=str(lease.shard_range))
