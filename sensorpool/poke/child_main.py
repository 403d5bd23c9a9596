"""The child of the isolated lane (`isolated_lane`): it pokes suspects, and names the group before each poke.

It speaks JSON lines. In: one line of settings, then one line for each group. Out: ``{"ready": true}``, then
``{"import": path}`` and ``{"imported": path}`` for each class, ``{"begin": id}`` and ``{"end": id, "outcome", "reason",
"xcom_value", "trace", "quiet_for", "ran_out"}`` for each group. The output of pokes is discarded. A child for other
classes than those of the allowlist (`serve`) may ask its parent: ``{"question": number, …}`` out, an object in.

If its main thread makes no progress for a poke's time limit, its watchdog ends it, and tells the parent in plain text:
a poke holds the interpreter lock, or a lock that this thread needs.
"""

import ctypes
import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any, TextIO

from sensorpool.instrumentation import logs
from sensorpool.instrumentation.redaction import ask_named
from sensorpool.model.not_landed import each_report
from sensorpool.model.values import DueGroup, Report
from sensorpool.poke import fork_guard, patches, process_bounds, watchdog
from sensorpool.poke.answer import Answers
from sensorpool.poke.child import START_LIMIT
from sensorpool.poke.classes import RETRY_AFTER, Classes, Way
from sensorpool.poke.loop_lane import LoopLane
from sensorpool.poke.reusable_threads import ReusableThreads
from sensorpool.poke.sensor_finalizer import SensorFinalizer
from sensorpool.poke.slots import Slots
from sensorpool.poke.thread_lane import ThreadLane
from sensorpool.poke.tools import PokeTools
from sensorpool.poke.unit import PokeUnit
from sensorpool.sensors.shared import set_time_limit

_STACKS = 96  # threads whose stacks fit into memory besides what pokes take; with more threads, the limit is set anew
_GRACE = 1.5  # seconds that the main thread may stand still beyond a poke's limit


class _Telling(PokeUnit):
    """A unit that tells the parent when its poke begins."""

    __slots__ = ("_tell",)

    def __init__(self, group: DueGroup, op_classpath: str, poke_context: str, tools: PokeTools, tell: Any) -> None:
        super().__init__(group, op_classpath, poke_context, tools)
        self._tell = tell

    def poke(self) -> list[Report]:
        self._tell({"begin": self.group.id})
        return super().poke()

    async def poke_async(self, home: int) -> list[Report]:
        self._tell({"begin": self.group.id})
        return await super().poke_async(home)


Tell = Callable[[Mapping[str, Any]], None]
Messages = Callable[[dict[str, Any]], None]
Prepare = Callable[[dict[str, Any], Tell], tuple[Classes, Messages]]
"""Takes the settings, and a function that tells the parent; returns the classes, and what takes the parent's answers.

Those come on a thread that reads.
"""


def main() -> None:
    """Poke the groups that come in on standard input until it ends."""
    serve(_listed)


def _listed(settings: dict[str, Any], _: Tell) -> tuple[Classes, Messages]:
    return Classes(settings["sensors_enabled"], retry_after=RETRY_AFTER), lambda _: None


def serve(prepare: Prepare) -> None:
    """Poke the groups that come in on standard input until it ends, of the classes that ``prepare`` returns."""
    _die_with_parent()
    # processes that pokes start inherit 0, 1 and 2: they must neither read our input nor write to our output
    commands, out = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w", buffering=1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    settings = json.loads(commands.readline())
    sys.path[:] = settings["sys_path"]
    ask_named(settings["secrets"])
    logs.silence(settings["poke_log_level"])
    _poke_all(settings, commands, out, prepare)
    os._exit(0)  # does not wait for threads that hang


def _poke_all(settings: dict[str, Any], commands: TextIO, out: TextIO, prepare: Prepare) -> None:
    lock, watched = threading.Lock(), out.fileno()

    def tell(message: Mapping[str, Any]) -> None:
        with lock:
            out.write(json.dumps(message) + "\n")
            out.flush()

    watchdog.arm(START_LIMIT, watched)
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    classes, answered = prepare(settings, tell)
    threading.Thread(target=_read, args=(commands, lines, answered), daemon=True).start()
    tools = PokeTools(classes, Answers(settings["infra_failures"]), {})
    concurrency, poke_timeout, memory = settings["concurrency"], settings["poke_timeout"], settings["poke_memory"]
    set_time_limit(poke_timeout)
    # the parent limits how many pokes of which class go on, so there is always a slot
    threads, loops = ThreadLane(Slots(2 * concurrency), poke_timeout), LoopLane(Slots(2 * concurrency), poke_timeout)
    finalizer = SensorFinalizer(ReusableThreads())
    imported: set[str] = set()
    missing: set[int] = set()
    stacks = _STACKS  # threads that hang keep their stacks, and new threads need more
    process_bounds.limit_memory(memory, _STACKS)
    patches.refuse_patches()
    tell({"ready": True})
    armed_at = 0.0

    def arm() -> None:
        nonlocal armed_at
        armed_at = time.monotonic()
        watchdog.arm(poke_timeout + _GRACE, watched)

    def look_after() -> None:
        if time.monotonic() - armed_at >= watchdog.EVERY:
            arm()
        threads.supervise()
        loops.supervise()
        finalizer.look_after()
        for report in each_report(chain(*threads.collect(), *loops.collect())):
            missing.discard(report.group.id)
            ending = {"end": report.group.id, "outcome": report.outcome, "reason": report.reason}
            ending["ran_out"] = tools.answers.ran_out
            tell(ending | {"xcom_value": report.xcom_value, "trace": report.trace, "quiet_for": report.quiet_for})
        time.sleep(0.005)

    def load(op_classpath: str) -> None:
        """Import a class, which may end this process, and may need much memory."""
        while classes.finds_alone and not (threads.idle and loops.idle):
            look_after()
        look_after()  # the last reports
        watchdog.arm(START_LIMIT, watched)
        tell({"import": op_classpath})
        process_bounds.lift_memory()
        try:
            with suppress(BaseException):  # the class's first poke reports why
                classes.find(op_classpath)
        finally:
            fork_guard.end_copy()
            process_bounds.limit_memory(memory, _STACKS)
            tell({"imported": op_classpath})
            arm()

    more = True
    while more or missing:
        for line in _drained(lines):
            if line is None:
                more = False
                continue
            group_id, op_classpath, poke_context = json.loads(line)
            missing.add(group_id)
            if op_classpath not in imported or classes.is_due(op_classpath):
                imported.add(op_classpath)
                load(op_classpath)
            group = DueGroup(group_id, 0, 0, 0, 0, 0, 0, None)
            sensor_class = classes.known(op_classpath)
            lane = loops if sensor_class is not None and sensor_class.way is Way.ASYNC else threads
            lane.put([_Telling(group, op_classpath, poke_context, tools, tell)])
        if threading.active_count() > stacks - concurrency:  # up to `concurrency` threads may start at once
            process_bounds.limit_memory(memory, _STACKS)
            stacks += _STACKS
        look_after()


def _read(commands: TextIO, lines: "queue.SimpleQueue[str | None]", answered: Messages) -> None:
    for line in commands:
        if line.startswith("{"):
            answered(json.loads(line))
        else:
            lines.put(line)
    lines.put(None)


def _drained(lines: "queue.SimpleQueue[str | None]") -> Iterator[str | None]:
    with suppress(queue.Empty):
        while True:
            yield lines.get_nowait()


def _die_with_parent() -> None:
    """Have the kernel end this process with its parent (Linux): a child that hangs in C does not see its input end."""
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None, use_errno=True).prctl(set_parent_death_signal, signal.SIGKILL)


if __name__ == "__main__":
    main()
