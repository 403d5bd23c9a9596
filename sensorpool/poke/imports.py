"""The imports of sensor classes, each on a thread of its own: a module that takes long, or hangs, holds up no job."""

import threading
import time

from sensorpool.errors import ClassUnavailable
from sensorpool.poke import fork_guard
from sensorpool.poke.classes import Classes, SensorClass

LIMIT = 60.0  # seconds that groups wait for the import of their class; then they are due again
_PATIENCE = 0.02  # seconds


class Imports:
    """The imports that go on in one process. Safe to share between the threads that run jobs."""

    def __init__(self, classes: Classes) -> None:
        self._classes = classes
        self._going_on: dict[str, _Import] = {}
        self._lock = threading.Lock()

    def since(self, op_classpath: str) -> float:
        """Return since when a class is being imported, by the monotonic clock; now, if it is not."""
        with self._lock:
            task = self._going_on.get(op_classpath)
        return time.monotonic() if task is None else task.began

    def find(self, op_classpath: str) -> "SensorClass | BaseException | None":
        """Return a class, why it is not available, or None while it is being imported."""
        known = self._classes.known(op_classpath)
        if known is not None:
            return known
        if (why := self._classes.refusal(op_classpath)) is not None:
            return ClassUnavailable(why)
        with self._lock:
            task = self._going_on.get(op_classpath)
            if task is None:
                task = _Import(self._classes, op_classpath)
                try:
                    task.start()
                except (RuntimeError, MemoryError):  # no thread can be started: the next call tries again
                    return None
                self._going_on[op_classpath] = task
        task.join(_PATIENCE)
        if task.is_alive():
            return None
        with self._lock:
            self._going_on.pop(op_classpath, None)
        return self._classes.known(op_classpath) or task.error


class _Import(threading.Thread):
    def __init__(self, classes: Classes, op_classpath: str) -> None:
        super().__init__(daemon=True, name=f"import {op_classpath}")
        self.began = time.monotonic()
        self.error: BaseException | None = None
        self._classes = classes
        self._op_classpath = op_classpath

    def run(self) -> None:
        try:
            self._classes.find(self._op_classpath)
        except BaseException as error:  # kept, or the import would be tried again for ever
            # the objects in its frames are destroyed here, not by the job that reads the error
            self.error = error.with_traceback(None)
            error.__context__ = error.__cause__ = None
        fork_guard.end_copy()  # a module may fork while it is imported
