"""Sensors that fork, and note each process that returns from their poke."""

import asyncio
import multiprocessing
import os
import subprocess
from pathlib import Path
from typing import Any


class Comes:
    """Notes each process that returns from its poke (`Returns`), or pokes at all."""

    def __init__(self, folder: str, name: str = "poked") -> None:
        self.folder = folder
        self.name = name

    def note(self, name: str) -> None:
        with open(Path(self.folder) / f"{name} {os.getpid()}", "a") as file:
            file.write("x")

    def poke(self, context: Any) -> Any:
        self.note("poked")
        return False


class Returns(Comes):
    """Forks, and returns twice."""

    def poke(self, context: Any) -> Any:
        fork_twice(self)
        return False


class ReturnsByRaising(Comes):
    """Forks, and raises SystemExit in the copy, as a script does at its end."""

    def poke(self, context: Any) -> Any:
        if fork_twice(self) == 0:
            raise SystemExit
        return False


class AsyncComes(Comes):
    """Notes each process that pokes, by coroutine."""

    async def poke(self, context: Any) -> Any:
        self.note("poked")
        return False


class AsyncReturns(Comes):
    """Forks, and goes on waiting in both processes."""

    async def poke(self, context: Any) -> Any:
        fork_twice(self)
        await asyncio.sleep(0.05)
        return False


class AsyncReturnsByRaising(Comes):
    """Forks, and raises SystemExit in the copy, by coroutine."""

    async def poke(self, context: Any) -> Any:
        if fork_twice(self) == 0:
            raise SystemExit
        return False


class AsyncReturnsOnThread(Comes):
    """Forks on a thread of its loop."""

    async def poke(self, context: Any) -> Any:
        await asyncio.to_thread(fork_twice, self)
        return False


def fork_twice(sensor: Comes) -> int:
    """Fork, and return in both processes; the parent notes the id of the child."""
    if copy := os.fork():
        sensor.note(f"forked {copy}")
    return copy


class UsesProcesses(Comes):
    """Works with other processes, in every usual way."""

    def poke(self, context: Any) -> Any:
        process = multiprocessing.get_context("fork").Process(target=self.note, args=("worked",))
        process.start()
        process.join()
        with multiprocessing.get_context("fork").Pool(2) as pool:
            doubled = pool.map(float, [1, 2])
        said = subprocess.run(["echo", "x"], check=True, capture_output=True, preexec_fn=os.getpid).stdout
        return process.exitcode == 0 and doubled == [1.0, 2.0] and said == b"x\n"
