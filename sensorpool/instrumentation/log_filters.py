"""A filter of the log: what pokes log."""

import logging
import threading
import time

ROOT = "sensorpool"
POKES = "poke"  # the names of threads that poke begin with it
MOST_OF_POKES = 200  # lines
SPAN = 10.0  # seconds in which pokes log at most so many lines
_MAIN = threading.main_thread().name
_OF_A_WORKER = frozenset({"celery", "kombu", "amqp", "redis", "py", "multiprocessing"})  # they have threads too
_FORMATTER = logging.Formatter()


class PokeLines(logging.Filter):
    """Lets the lines of pokes through from a level on, within bounds: there are many sensors, written by users.

    A sensor's lines at each poke are meant for the log of its own task. The filter formats a line on the thread of its
    poke, because a handler formats under its lock, and ``__str__`` of an object may never return.
    """

    def __init__(self, level: str, most: int = MOST_OF_POKES, span: float = SPAN) -> None:
        super().__init__()
        self.level = logging.getLevelName(level)
        self._most = most
        self._span = span
        self._lock = threading.Lock()
        self._ends = 0.0
        self._left = 0

    def filter(self, record: logging.LogRecord) -> bool:
        thread, package = record.threadName or "", record.name.partition(".")[0]
        # a library that a poke uses may start threads of its own, and log on them
        is_a_poke_s = thread.startswith(POKES) or (thread != _MAIN and package not in _OF_A_WORKER)
        is_theirs = package != ROOT and is_a_poke_s
        if is_theirs and not (record.levelno >= self.level and self._has_room(record)):
            return False
        _spell_out(record)
        return True

    def _has_room(self, record: logging.LogRecord) -> bool:
        with self._lock:
            now = time.monotonic()
            if now >= self._ends:
                self._ends, self._left = now + self._span, self._most
            self._left -= 1
            left = self._left
        if left == 0:
            _spell_out(record)
            record.msg = f"{record.msg} … (pokes log too much; the rest is dropped)"
        return left >= 0


def _spell_out(record: logging.LogRecord) -> None:
    """Replace a record's message, arguments and traceback by plain text."""
    if record.args or type(record.msg) is not str:
        try:
            record.msg = record.getMessage()
        except Exception as error:
            record.msg = f"(a line of {record.name} cannot be spelt: {type(error).__name__})"
        record.args = None
    if record.exc_info and not record.exc_text:
        try:
            record.exc_text = _FORMATTER.formatException(record.exc_info)
        except Exception as error:
            record.exc_text = f"(its traceback cannot be spelt: {type(error).__name__})"
