"""Sensors that hang: in Python, in C, when they are destroyed, until they are killed."""

import ctypes
import os
import threading
import time
from pathlib import Path
from typing import Any

from tests.support.sensors.answering import Lands
from tests.support.sensors.gates import LONG


class Hangs(Lands):
    """Hangs in Python, where other threads go on."""

    def poke(self, context: Any) -> Any:
        time.sleep(LONG)


class StopsTheMainThread(Lands):
    """Holds a lock of the interpreter that other threads need, and hangs."""

    def poke(self, context: Any) -> Any:
        with threading._active_limbo_lock:  # type: ignore[attr-defined]
            time.sleep(LONG)


class HangsAtItsEnd(Lands):
    """Lands, and hangs when it is destroyed."""

    def __del__(self) -> None:
        time.sleep(LONG)


class Freezes(Lands):
    """Holds the interpreter lock: `PyDLL` does not release it."""

    def poke(self, context: Any) -> Any:
        ctypes.PyDLL(None).sleep(LONG)


class WaitsToBeKilled:
    """Notes the id of its process, and hangs."""

    def __init__(self, pid_file: str) -> None:
        self.pid_file = pid_file

    def poke(self, context: Any) -> Any:
        written = Path(f"{self.pid_file}.part")
        written.write_text(str(os.getpid()))
        written.rename(self.pid_file)
        time.sleep(LONG)
