"""Sensors that end their process: at once, later, or by a thread that they leave."""

import ctypes
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

from tests.support.sensors.answering import Lands
from tests.support.sensors.gates import LONG


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


class AbortsLate(Lands):
    """Takes too long, and then ends its process."""

    def poke(self, context: Any) -> Any:
        time.sleep(1.4)
        os.abort()


class EndsWhenTold:
    """Lands, and leaves a thread that ends the process when a file exists."""

    def __init__(self, said: str) -> None:
        self.said = Path(said)

    def poke(self, context: Any) -> Any:
        if not self.said.exists():  # once
            threading.Thread(target=self._end, daemon=True).start()
        return True

    def _end(self) -> None:
        while not self.said.exists():
            time.sleep(0.01)
        os._exit(7)


class TellsOnce(EndsWhenTold):
    """Makes that file in its own first poke, so that the thread ends the process in it."""

    def poke(self, context: Any) -> Any:
        if not self.said.exists():
            time.sleep(0.5)  # by then the other sensor has been poked
            self.said.touch()
            time.sleep(LONG)
        return True


class EndsLater:
    """Does not land, and leaves a thread that ends its process a moment later."""

    ENDINGS: ClassVar[dict[str, str]] = {"segfault": "SIGSEGV", "exit": "exit code 7", "alarm": "SIGALRM"}

    def __init__(self, how: str) -> None:
        self.how = how

    def poke(self, context: Any) -> Any:
        if self.how == "alarm":
            signal.setitimer(signal.ITIMER_REAL, 0.5)
        else:
            end = os._exit if self.how == "exit" else ctypes.string_at
            threading.Timer(0.5, end, [7 if self.how == "exit" else 0]).start()
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
