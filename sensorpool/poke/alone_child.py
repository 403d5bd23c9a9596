"""The child of the lane apart (`apart`): pokes suspects, and says before each poke whose it is.

It speaks JSON lines. In: one line of settings, then one line for each group. Out: ``{"ready": true}``, then
``{"alive": true}`` twice a second, ``{"import": path}`` and ``{"imported": path}`` for each class, ``{"begin": id}``
and ``{"end": id, "outcome", "reason", "xcom_value"}`` for each group. What pokes print goes nowhere.
"""

import ctypes
import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TextIO

from sensorpool.model import DueGroup, Report
from sensorpool.poke import memory
from sensorpool.poke.answer import Answers
from sensorpool.poke.classes import Classes, Way
from sensorpool.poke.event_loop import LoopLane
from sensorpool.poke.slots import Slots
from sensorpool.poke.threads import ThreadLane
from sensorpool.poke.works import Means, One


class _Telling(One):
    """A poke that says when it begins."""

    __slots__ = ("_tell",)

    def __init__(self, group: DueGroup, op_classpath: str, poke_context: str, means: Means, tell: Any) -> None:
        super().__init__(group, op_classpath, poke_context, means)
        self._tell = tell

    def poke(self) -> list[Report]:
        self._tell({"begin": self.group.id})
        return super().poke()

    async def poke_async(self, home: int) -> list[Report]:
        self._tell({"begin": self.group.id})
        return await super().poke_async(home)


def main() -> None:
    """Poke what comes in on standard input until it ends."""
    _die_with_parent()
    # what pokes start inherits 0, 1 and 2: it must neither read what is meant for us, nor speak for us
    commands, out = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w", buffering=1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    settings = json.loads(commands.readline())
    sys.path[:] = settings["sys_path"]
    _poke_all(settings, commands, out)
    os._exit(0)  # threads that hang do not hold it up


def _poke_all(settings: dict[str, Any], commands: TextIO, out: TextIO) -> None:
    lock = threading.Lock()

    def tell(message: dict[str, Any]) -> None:
        with lock:
            out.write(json.dumps(message) + "\n")
            out.flush()

    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(commands, lines), daemon=True).start()
    classes = Classes(settings["sensors_enabled"])
    means = Means(classes, Answers(settings["infra_failures"]), {})
    concurrency, poke_timeout = settings["concurrency"], settings["poke_timeout"]
    threads, loops = ThreadLane(Slots(concurrency), poke_timeout), LoopLane(Slots(concurrency), poke_timeout)
    asynchronous: dict[str, bool] = {}
    missing: set[int] = set()
    # those that hang have stacks, and so have those after them
    memory.limit(settings["poke_memory"], threads=6 * concurrency)
    tell({"ready": True})
    threading.Thread(target=_say_that_it_lives, args=(tell,), daemon=True).start()
    more = True
    while more or missing:
        for line in _drained(lines):
            if line is None:
                more = False
                continue
            group_id, op_classpath, poke_context = json.loads(line)
            missing.add(group_id)
            if op_classpath not in asynchronous:
                asynchronous[op_classpath] = _import(classes, op_classpath, tell)
            group = DueGroup(group_id, 0, 0, 0, 0, 0, 0, 0, None)
            lane = loops if asynchronous[op_classpath] else threads
            lane.put([_Telling(group, op_classpath, poke_context, means, tell)])
        threads.supervise()
        loops.supervise()
        for report in (report for reports in threads.collect() + loops.collect() for report in reports):
            missing.discard(report.group.id)
            ending = {"end": report.group.id, "outcome": report.outcome, "reason": report.reason}
            tell(ending | {"xcom_value": report.xcom_value})
        time.sleep(0.005)


def _say_that_it_lives(tell: Callable[[Any], None]) -> None:
    """A poke that holds the interpreter lock keeps us from it: so one that freezes is told from a long import."""
    while True:
        tell({"alive": True})
        time.sleep(0.5)


def _read(commands: TextIO, lines: "queue.SimpleQueue[str | None]") -> None:
    for line in commands:
        lines.put(line)
    lines.put(None)


def _drained(lines: "queue.SimpleQueue[str | None]") -> Iterator[str | None]:
    with suppress(queue.Empty):
        while True:
            yield lines.get_nowait()


def _import(classes: Classes, op_classpath: str, tell: Callable[[Any], None]) -> bool:
    """Import a class, which may end this process; return whether its pokes are coroutines."""
    tell({"import": op_classpath})
    try:
        with memory.for_an_import():
            return classes.find(op_classpath).way is Way.ASYNC
    except BaseException:
        return False  # its poke will say why
    finally:
        tell({"imported": op_classpath})


def _die_with_parent() -> None:
    """A child that hangs in C does not see its input end: have the kernel end it (Linux)."""
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None, use_errno=True).prctl(set_parent_death_signal, signal.SIGKILL)


if __name__ == "__main__":
    main()
