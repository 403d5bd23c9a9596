"""The child of the lane apart (`apart`): pokes suspects, and says before each poke whose it is.

It speaks JSON lines. In: one line of settings, then one line for each group. Out: ``{"ready": true}``, then
``{"begin": id}`` and ``{"end": id, "outcome", "reason", "xcom_value"}`` for each. What pokes print goes nowhere.
"""

import ctypes
import json
import os
import signal
import sys
import threading
import time
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
    out = os.fdopen(os.dup(1), "w", buffering=1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    settings = json.loads(sys.stdin.readline())
    sys.path[:] = settings["sys_path"]
    _poke_all(settings, out)
    os._exit(0)  # threads that hang do not hold it up


def _poke_all(settings: dict[str, Any], out: TextIO) -> None:
    lock = threading.Lock()

    def tell(message: dict[str, Any]) -> None:
        with lock:
            out.write(json.dumps(message) + "\n")
            out.flush()

    classes = Classes(settings["sensors_enabled"])
    means = Means(classes, Answers(settings["infra_failures"]), {})
    ones: list[_Telling] = []
    for line in sys.stdin:
        group_id, op_classpath, poke_context = json.loads(line)
        group = DueGroup(group_id, 0, 0, 0, 0, 0, 0, 0, None)
        ones.append(_Telling(group, op_classpath, poke_context, means, tell))
    asynchronous = {
        op_classpath for op_classpath in {one.op_classpath for one in ones} if _is_async(classes, op_classpath)
    }
    memory.limit(settings["poke_memory"], threads=4 * settings["concurrency"])
    tell({"ready": True})
    concurrency, poke_timeout = settings["concurrency"], settings["poke_timeout"]
    threads, loops = ThreadLane(Slots(concurrency), poke_timeout), LoopLane(Slots(concurrency), poke_timeout)
    threads.put(one for one in ones if one.op_classpath not in asynchronous)
    if some := [one for one in ones if one.op_classpath in asynchronous]:
        loops.put(some)
    missing = {one.group.id for one in ones}
    while missing:
        threads.supervise()
        loops.supervise()
        for report in (report for reports in threads.collect() + loops.collect() for report in reports):
            missing.discard(report.group.id)
            ending = {"end": report.group.id, "outcome": report.outcome, "reason": report.reason}
            tell(ending | {"xcom_value": report.xcom_value})
        time.sleep(0.005)


def _is_async(classes: Classes, op_classpath: str) -> bool:
    try:
        return classes.find(op_classpath).way is Way.ASYNC
    except Exception:
        return False  # its poke will say why


def _die_with_parent() -> None:
    """A child that hangs in C does not see its input end: have the kernel end it (Linux)."""
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None, use_errno=True).prctl(set_parent_death_signal, signal.SIGKILL)


if __name__ == "__main__":
    main()
