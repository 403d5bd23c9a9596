"""Bounds for the text that pokes print to the worker's log: a poke that prints without end must not fill the disk."""

import threading
import time
from typing import Any

MOST = 64 * 1024  # characters
SPAN = 10.0  # seconds in which at most MOST characters are printed


class Bounded:
    """Stands in for a stream of text, and drops the text over the bound; every other attribute is the stream's own.

    :param most: characters that are printed in a span.
    :param span: seconds.
    """

    def __init__(self, stream: Any, most: int = MOST, span: float = SPAN) -> None:
        self._stream = stream
        self._most = most
        self._span = span
        self._lock = threading.Lock()
        self._ends = 0.0
        self._left = 0

    def write(self, text: str) -> int:
        """Print the text as far as the bound allows; return its whole length."""
        length = len(text)  # outside of the lock: the text is a poke's object, whose `len` may hang
        with self._lock:
            now = time.monotonic()
            if now >= self._ends:
                self._ends, self._left = now + self._span, self._most
            had = self._left
            self._left = max(0, had - length)
        if had:
            self._stream.write(
                text if length <= had else f"{text[:had]} … (too much is printed; the rest is dropped)\n"
            )
        return length

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
