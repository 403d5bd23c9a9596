"""`until`: wait for an event by polling, with a deadline."""

import time
from collections.abc import Callable
from typing import Any

PATIENCE = 60.0  # seconds that a test waits for an event
_FIRST = 0.005  # seconds until the second look: most events come at once


def until(what: str, holds: Callable[[], Any], patience: float = PATIENCE, every: float = 0.05) -> Any:
    """Wait until ``holds`` returns a true value, and return the value.

    The first looks follow each other closely, the later ones every `every` seconds.

    :param what: the name of the event, for the error.
    :param patience: seconds.
    :raises AssertionError: when the event does not come in time.
    """
    deadline = time.monotonic() + patience
    pause = min(_FIRST, every)
    while True:
        value = holds()
        if value:
            return value
        assert time.monotonic() < deadline, f"waited {patience:g} s in vain for: {what}"
        time.sleep(pause)
        pause = min(pause * 1.5, every)
