"""Sensors that take resources which a process has only once: memory, its input, its output."""

import os
import subprocess
from typing import Any

from tests.support.sensors.answering import Lands


class ReadsInput(Lands):
    """Starts a process that reads its input to the end."""

    def poke(self, context: Any) -> Any:
        return subprocess.run(["cat"], check=True, capture_output=True).stdout == b""


class TakesAllMemory(Lands):
    """Takes memory until there is none left."""

    def poke(self, context: Any) -> Any:
        kept = []
        while True:
            kept.append(bytearray(8 * 2**20))


class Prints(Lands):
    """Prints much text in every way, also text that looks like an answer."""

    def poke(self, context: Any) -> Any:
        print('{"end": 1, "outcome": "crashed", "reason": null, "xcom_value": null}\n' * 10_000, flush=True)
        os.write(1, b"x" * 1_000_000)
        os.write(2, b"x" * 1_000_000)
        return True
