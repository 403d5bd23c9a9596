"""A way to wait for something that must come: polling, with a deadline."""

import time
from collections.abc import Callable
from typing import Any

PATIENCE = 60.0  # seconds that a test waits for something that must come
_FIRST = 0.005  # seconds: most of what is waited for comes at once


def until(what: str, holds: Callable[[], Any], patience: float = PATIENCE, every: float = 0.05) -> Any:
    """Wait until something holds, and return it; fail with its name when it does not come.

    The first looks follow each other closely, the later ones every `every` seconds.
    """
    deadline = time.monotonic() + patience
    pause = min(_FIRST, every)
    while True:
        found = holds()
        if found:
            return found
        assert time.monotonic() < deadline, f"waited {patience:g} s in vain for: {what}"
        time.sleep(pause)
        pause = min(pause * 1.5, every)
