"""Sensors for tests of a whole service. They record their pokes in a folder, and play backends that fail or hang."""

import logging
import os
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

from harness.scripted import LONG, ScriptedSensor, record_poke
from sensorpool.model.values import PokeReturnValue


class Backend(ScriptedSensor):
    """Asks a backend that refuses connections while a file ``down`` exists."""

    def poke(self, context: Any) -> Any:
        if os.path.exists(os.path.join(self.folder, "down")):
            raise ConnectionRefusedError(111, "Connection refused")
        return super().poke(context)


class Slow(ScriptedSensor):
    """Takes as many seconds as a file ``slow`` says, while the file exists."""

    def poke(self, context: Any) -> Any:
        said = Path(self.folder, "slow")
        self.seconds = float(said.read_text()) if said.exists() else 0.0
        return super().poke(context)


class Ends(ScriptedSensor):
    """Records when its pokes end, not when they begin."""

    def poke(self, context: Any) -> Any:
        landed = super().poke(context)
        record_poke(self.folder, f"{self.name} ended")
        return landed


class EndsLater(ScriptedSensor):
    """Does not land, and leaves a thread that ends its process."""

    def poke(self, context: Any) -> Any:
        record_poke(self.folder, self.name)
        threading.Timer(0.3, os._exit, [7]).start()
        return False


class _Lazy:
    """A text whose `__str__` never returns."""

    def __init__(self, folder: str, name: str) -> None:
        self._folder, self._name = folder, name

    def __str__(self) -> str:
        record_poke(self._folder, f"{self._name} struck")
        time.sleep(LONG)
        return ""


class LogsLazily(ScriptedSensor):
    """Logs an object whose text never comes."""

    def poke(self, context: Any) -> Any:
        record_poke(self.folder, self.name)
        logging.getLogger("their.hook").warning("no rows yet for %s", _Lazy(self.folder, self.name))
        return False


class HangsAtItsEnd(ScriptedSensor):
    """Lands, and hangs when it is destroyed after that."""

    has_landed = False

    def poke(self, context: Any) -> Any:
        record_poke(self.folder, self.name)
        self.has_landed = True
        return True

    def __del__(self) -> None:
        if not self.has_landed:
            return
        record_poke(self.folder, f"{self.name} struck")
        time.sleep(LONG)


class _Hanging(logging.Handler):
    """A handler that hangs at each line."""

    def __init__(self, folder: str, name: str) -> None:
        super().__init__()
        self._folder, self._name = folder, name

    def emit(self, record: logging.LogRecord) -> None:
        record_poke(self._folder, f"{self._name} struck")
        time.sleep(LONG)


class AddsHandlers(ScriptedSensor):
    """Adds a hanging handler to the root logger and to ours."""

    def poke(self, context: Any) -> Any:
        record_poke(self.folder, self.name)
        for name in ("", "sensorpool"):
            logging.getLogger(name).addHandler(_Hanging(self.folder, self.name))
        logging.getLogger("their.hook").warning("a line of a poke")
        return False


class HoldsTheLog(ScriptedSensor):
    """Holds the lock of all logging, and hangs: even drivers wait for it."""

    def poke(self, context: Any) -> Any:
        record_poke(self.folder, self.name)
        logging.getLogger("their.hook").setLevel(logging.INFO)
        with logging._lock:  # type: ignore[attr-defined]
            record_poke(self.folder, f"{self.name} struck")
            time.sleep(LONG)


class _Stubborn:
    def __bool__(self) -> bool:
        raise ValueError("neither true nor false")


class Says:
    """Returns the value that its context names."""

    answers: ClassVar[dict[str, Any]] = {
        "none": None,
        "zero": 0,
        "empty": "",
        "one": 1,
        "text": "no",
        "list": [False],
        "done": PokeReturnValue(True, {"rows": 3}),
        "not done": PokeReturnValue(False, {"rows": 3}),
        "stubborn": _Stubborn(),
    }

    def __init__(self, say: str) -> None:
        self.say = say

    def poke(self, context: Any) -> Any:
        return self.answers[self.say]
