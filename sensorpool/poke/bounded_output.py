"""What pokes print goes to the worker's log, within bounds: one that prints without end must not fill the disk."""

import threading
import time
from typing import Any

MOST = 64 * 1024  # characters
SPAN = 10.0  # seconds in which no more than that is printed


class Bounded:
    """Stands in for a stream of text, and drops what is too much; everything else is the stream's own."""

    def __init__(self, stream: Any, most: int = MOST, span: float = SPAN) -> None:
        self._stream = stream
        self._most = most
        self._span = span
        self._lock = threading.Lock()
        self._ends = 0.0
        self._left = 0

    def write(self, text: str) -> int:
        """Print, as far as there is room."""
        length = len(text)  # of a poke's object, which may hang
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
