"""Sensors that do as the tests of the lanes tell them. They are imported by name, also in child processes."""

import asyncio
import ctypes
import os
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from sensorpool.errors import InfraFailure

LONG = 3_600

# In one process, a sensor that waits waits for the gate of its name, and says before that it is there.
gates: defaultdict[str, threading.Event] = defaultdict(threading.Event)
arrived: defaultdict[str, threading.Event] = defaultdict(threading.Event)
departed: defaultdict[str, threading.Event] = defaultdict(threading.Event)


class Gauge:
    """Counts who is inside at once, and the most that ever were."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.inside -= 1


gauges: defaultdict[str, Gauge] = defaultdict(Gauge)


def open_all_gates() -> None:
    """Let everybody go: the last thing that a test does."""
    for gate in list(gates.values()):
        gate.set()


class Lands:
    """Lands."""

    def __init__(self, **_: Any) -> None: ...

    def poke(self, context: Any) -> Any:
        return True


class Raises(Lands):
    """Raises."""

    def poke(self, context: Any) -> Any:
        raise ValueError("as told")


class Hangs(Lands):
    """Hangs in Python, where other threads go on."""

    def poke(self, context: Any) -> Any:
        time.sleep(LONG)


class Freezes(Lands):
    """Holds the interpreter lock: `PyDLL` does not let go of it."""

    def poke(self, context: Any) -> Any:
        ctypes.PyDLL(None).sleep(LONG)


class Exits(Lands):
    """Ends its process."""

    def poke(self, context: Any) -> Any:
        os._exit(3)


class ExitsQuietly(Lands):
    """Ends its process as if all were well."""

    def poke(self, context: Any) -> Any:
        os._exit(0)


class Segfaults(Lands):
    """Reads where nothing is."""

    def poke(self, context: Any) -> Any:
        ctypes.string_at(0)


class ReadsInput(Lands):
    """Starts something that reads its input to the end."""

    def poke(self, context: Any) -> Any:
        return subprocess.run(["cat"], check=True, capture_output=True).stdout == b""


class ForksAndAborts(Lands):
    """Crashes, and leaves a process that has all that it had open."""

    def poke(self, context: Any) -> Any:
        if os.fork() == 0:
            time.sleep(30)
            os._exit(0)
        os.abort()


class AbortsLate(Lands):
    """Takes too long, and then its process with it."""

    def poke(self, context: Any) -> Any:
        time.sleep(1.4)
        os.abort()


class Sleeps(Lands):
    """Lands after a while."""

    def poke(self, context: Any) -> Any:
        time.sleep(0.8)
        return True


class TakesAllMemory(Lands):
    """Takes memory as long as there is some."""

    def poke(self, context: Any) -> Any:
        kept = []
        while True:
            kept.append(bytearray(8 * 2**20))


class HoldsMemory(Lands):
    """Takes nearly all the memory there is, and hangs with it."""

    def poke(self, context: Any) -> Any:
        kept = []
        try:
            while True:
                kept.append(bytearray(8 * 2**20))
        except MemoryError:
            del kept[-2:]
        time.sleep(LONG)


class TakesMemory(Lands):
    """Takes some memory now and then for a second, and lands."""

    def poke(self, context: Any) -> Any:
        ends = time.monotonic() + 1
        while time.monotonic() < ends:
            bytearray(40 * 2**20)
            time.sleep(0.01)
        return True


class Prints(Lands):
    """Prints much, by every way there is, what looks like an answer too."""

    def poke(self, context: Any) -> Any:
        print('{"end": 1, "outcome": "crashed", "reason": null, "xcom_value": null}\n' * 10_000, flush=True)
        os.write(1, b"x" * 1_000_000)
        os.write(2, b"x" * 1_000_000)
        return True


class WaitsToBeKilled:
    """Writes down whose process it is in, and stays there."""

    def __init__(self, pid_file: str) -> None:
        self.pid_file = pid_file

    def poke(self, context: Any) -> Any:
        written = Path(f"{self.pid_file}.part")
        written.write_text(str(os.getpid()))
        written.rename(self.pid_file)
        time.sleep(LONG)


class AsyncLands:
    """Lands, by coroutine."""

    def __init__(self, **_: Any) -> None: ...

    async def poke(self, context: Any) -> Any:
        return True


class AsyncCounts:
    """Lands, and counts its pokes."""

    pokes: ClassVar[list[str]] = []

    def __init__(self, name: str) -> None:
        self.name = name

    async def poke(self, context: Any) -> Any:
        self.pokes.append(self.name)
        return True


class AsyncBlocks:
    """Blocks its event loop until its gate opens."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def poke(self, context: Any) -> Any:
        arrived[self.name].set()
        gates[self.name].wait(LONG)
        return True


class AsyncWaits(AsyncBlocks):
    """Waits for its gate as a coroutine should."""

    async def poke(self, context: Any) -> Any:
        with gauges[self.name]:
            arrived[self.name].set()
            while not gates[self.name].is_set():
                await asyncio.sleep(0.005)
        return True


class AsyncSwallows(AsyncBlocks):
    """Takes no notice of being cancelled."""

    async def poke(self, context: Any) -> Any:
        arrived[self.name].set()
        while not gates[self.name].is_set():
            try:
                await asyncio.sleep(0.005)
            except asyncio.CancelledError:
                continue
        departed[self.name].set()
        return True


class AsyncCancels(AsyncBlocks):
    """Ends as if it had been cancelled, which it was not."""

    async def poke(self, context: Any) -> Any:
        raise asyncio.CancelledError


class AsyncLeavesBlocker(AsyncBlocks):
    """Lands, and leaves something on the loop that blocks it until the gate opens."""

    async def poke(self, context: Any) -> Any:
        asyncio.get_running_loop().call_later(0.05, self._block)
        return True

    def _block(self) -> None:
        arrived[self.name].set()
        gates[self.name].wait(LONG)


class AsyncTimesOut(AsyncBlocks):
    """Has a time limit of its own, and overruns it."""

    async def poke(self, context: Any) -> Any:
        raise TimeoutError("its own")


class Many:
    """Answers many contexts at once, each as its ``say`` tells."""

    calls: ClassVar[list[list[Any]]] = []

    @classmethod
    def poke_many(cls, contexts: Sequence[dict[str, Any]]) -> Any:
        says = [context["say"] for context in contexts]
        cls.calls.append(says)
        if "throw" in says:
            raise ValueError("one of them is bad")
        if "infra" in says:
            raise InfraFailure("nobody is there")
        return [RuntimeError("this one") if say == "error" else say for say in says]


class ManyTooFew(Many):
    """Gives too few answers."""

    @classmethod
    def poke_many(cls, contexts: Sequence[dict[str, Any]]) -> Any:
        return [True] * (len(contexts) - 1)


class ManyNothing(Many):
    """Gives no answers at all."""

    @classmethod
    def poke_many(cls, contexts: Sequence[dict[str, Any]]) -> Any:
        return None
