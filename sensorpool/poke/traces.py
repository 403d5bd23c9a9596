"""Tracebacks of failing pokes. Equal errors have one signature, and the text of each is made once in a while."""

import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from zlib import crc32

from sensorpool.instrumentation.redaction import LONGEST_TEXT, storable
from sensorpool.model.values import Trace

AGAIN = 60.0  # seconds after which the text of an error is made anew
LONGEST = 8_000  # characters of a text: its end says most
_FRAMES = 30  # the innermost ones
_CAUSES = 10  # exceptions that an error comes from; of more, none is shown
_REMEMBERED = 1_000  # signatures


class Traces:
    """The errors of this process's pokes. Safe to share between threads."""

    def __init__(self) -> None:
        self._made: OrderedDict[str, float] = OrderedDict()  # when the text of each signature was made
        self._lock = threading.Lock()

    def of(self, error: BaseException) -> Trace | None:
        """Return the trace of an error, with its text unless that was made lately; None if it cannot be read."""
        try:
            signature = _signature(error)
            return Trace(signature, _text(error) if self._is_due(signature) else None)
        except BaseException:  # its attributes or its text raise
            return None

    def _is_due(self, signature: str) -> bool:
        now = time.monotonic()
        with self._lock:
            made = self._made.get(signature)
            if made is not None and now - made < AGAIN:
                return False
            self._made[signature] = now
            self._made.move_to_end(signature)
            if len(self._made) > _REMEMBERED:
                self._made.popitem(last=False)
        return True


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
