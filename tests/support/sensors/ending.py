"""Sensors that end their process: at once, later, or by a thread that they leave."""

import ctypes
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from tests.support.sensors.answering import Lands


class Exits(Lands):
    """Ends its process."""

    def poke(self, context: Any) -> Any:
        os._exit(3)


class ExitsQuietly(Lands):
    """Ends its process as if all were well."""

    def poke(self, context: Any) -> Any:
        os._exit(0)


class Segfaults(Lands):
    """Reads memory that does not exist."""

    def poke(self, context: Any) -> Any:
        ctypes.string_at(0)


class ForksAndAborts(Lands):
    """Crashes, and leaves a process that has its open files."""

    def poke(self, context: Any) -> Any:
        if os.fork() == 0:
            time.sleep(30)
            os._exit(0)
        os.abort()


class EndsLater(Lands):
    """Does not land, and leaves a thread that ends its process a moment later."""

    def poke(self, context: Any) -> Any:
        threading.Timer(0.5, os._exit, [7]).start()
        return False


class Signals:
    """Notes its poke, sends a signal to its process or its process group, and finds nothing."""

    def __init__(self, pokes: str, sign: str, group: bool = False) -> None:
        self.pokes, self.sign, self.group = Path(pokes), signal.Signals[sign], group

    def poke(self, context: Any) -> Any:
        with self.pokes.open("a") as file:
            file.write(f"{os.getpid()}\n")
        send = os.killpg if self.group else os.kill
        send(os.getpgrp() if self.group else os.getpid(), self.sign)
        return False
