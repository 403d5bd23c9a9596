"""The watchdog of a worker child: ends the process if one poke holds the interpreter lock, which no thread survives.

`faulthandler` waits on a C thread that needs no interpreter lock. While a job runs the watchdog is petted twice a
second; a child that cannot do even that is frozen whole. It says which poke froze it, exits, and is replaced; its
job's note makes its groups suspects. Only for prefork children: elsewhere it would take the whole service down.
"""

import faulthandler
import time

_PETTED_EVERY = 0.5  # seconds; arming it starts a thread


class Watchdog:
    """Ends this process when `pet` has not been called for ``patience`` seconds."""

    def __init__(self, patience: float, *, enabled: bool) -> None:
        self._patience = patience
        self._enabled = enabled
        self._petted = 0.0

    def pet(self) -> None:
        """Say that we are alive."""
        if self._enabled and (now := time.monotonic()) - self._petted >= _PETTED_EVERY:
            self._petted = now
            # file 2: Celery puts something in place of sys.stderr that has no descriptor
            faulthandler.dump_traceback_later(self._patience, exit=True, file=2)

    def rest(self) -> None:
        """Call it off: the job has ended."""
        if self._enabled:
            self._petted = 0.0
            faulthandler.cancel_dump_traceback_later()
