"""Tracebacks of failing pokes. Errors that were raised from the same lines have one signature."""

import time
import traceback
from collections.abc import Iterator
from itertools import islice
from zlib import crc32

from sensorpool.instrumentation.redaction import LONGEST_TEXT, storable
from sensorpool.model.values import Trace

MOST = 50  # texts that a process makes in a second: each takes 0.2 ms
LONGEST = 8_000  # characters of a text: its end says most
_FRAMES = 30  # the innermost ones
_CAUSES = 10  # exceptions that an error comes from; of more, none is shown


class Traces:
    """The errors of this process's pokes. Threads may share it, and make a few texts more than `MOST`."""

    def __init__(self) -> None:
        self._began, self._made = 0.0, 0  # of the present second

    def of(self, error: BaseException) -> Trace | None:
        """Return the trace of an error, without its text if too many were made; None if it cannot be read."""
        now = time.monotonic()
        if now - self._began >= 1:
            self._began, self._made = now, 0
        self._made += 1
        try:
            return Trace(_signature(error), _text(error) if self._made <= MOST else None)
        except BaseException:  # its attributes or its text raise
            return None


def _signature(error: BaseException) -> str:
    """Return what equal errors have in common: the class, and the lines of code from which it was raised."""
    cls = type(error)
    parts = [cls.__module__, cls.__qualname__]
    frame = error.__traceback__
    for _ in range(10 * _FRAMES):
        if frame is None:
            break
        parts.append(f"{frame.tb_frame.f_code.co_filename}:{frame.tb_lineno}")
        frame = frame.tb_next
    return f"{crc32(chr(10).join(map(str, parts)).encode(errors='replace')):08x}"


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and those that it comes from, as a traceback shows them; a circle has no end."""
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)


def _text(error: BaseException) -> str:
    causes = islice(causes_of(error), _CAUSES + 1)
    is_short = sum(1 for _ in causes) <= _CAUSES
    lines = traceback.format_exception(type(error), error, error.__traceback__, limit=-_FRAMES, chain=is_short)
    text = storable("".join(lines)[-LONGEST_TEXT:])
    return text if len(text) <= LONGEST else f"…{text[1 - LONGEST :]}"
