"""One process's poker: it knows the classes, keeps the sensors, and deals groups out to the lanes."""

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence

from sensorpool.model import DueGroup
from sensorpool.poke.answer import Answers, Report
from sensorpool.poke.cache import Cache, Kept
from sensorpool.poke.classes import Classes, SensorClass, Way
from sensorpool.poke.event_loop import LoopLane
from sensorpool.poke.threads import ThreadLane, Work
from sensorpool.poke.works import MANY, Many, One, overran
from sensorpool.settings import Settings

Pair = tuple[DueGroup, Kept]


class Poker:
    """What lives as long as the process. Safe to share between the threads that run jobs."""

    def __init__(self, settings: Settings) -> None:
        self.classes = Classes(settings.sensors_enabled)
        self.answers = Answers(settings.infra_failures)
        self.cache = Cache(settings.groups_cached)
        self.concurrency = settings.poke_concurrency
        self.poke_timeout = settings.poke_timeout
        self._lanes: list[ThreadLane] = []  # those with threads that have not come back
        self._free_loops: list[LoopLane] = []
        self._abandoned_loops = 0
        self._lock = threading.Lock()
        self._importing: dict[str, _Import] = {}

    @property
    def abandoned(self) -> int:
        """How many threads hang in this process."""
        with self._lock:
            self._lanes = [lane for lane in self._lanes if lane.abandoned]
            return sum(lane.abandoned for lane in self._lanes) + self._abandoned_loops

    def begin(self) -> "Poking":
        """Begin to poke for one job."""
        with self._lock:
            loops = self._free_loops.pop() if self._free_loops else LoopLane(self.concurrency, self.poke_timeout)
        return Poking(self, ThreadLane(self.concurrency, self.poke_timeout), loops)

    def end(self, threads: ThreadLane, loops: LoopLane) -> None:
        """Take back what `begin` lent."""
        with self._lock:
            self._abandoned_loops += loops.abandoned
            loops.abandoned = 0
            self._free_loops.append(loops)
            if threads.abandoned:
                self._lanes.append(threads)

    def find(self, op_classpath: str) -> "SensorClass | Exception | None":
        """Return a class, why there is none, or None while it is being imported (on a thread of its own)."""
        known = self.classes.known(op_classpath)
        if known is not None:
            return known
        with self._lock:
            task = self._importing.get(op_classpath)
            if task is None:
                task = self._importing[op_classpath] = _Import(self.classes, op_classpath)
                task.start()
        task.join(0.02)
        if task.is_alive():
            return None
        with self._lock:
            self._importing.pop(op_classpath, None)
        return self.classes.known(op_classpath) or task.error


class _Import(threading.Thread):
    """The import of one class: a module may take its time, or hang, and nobody else shall wait for it."""

    def __init__(self, classes: Classes, op_classpath: str) -> None:
        super().__init__(daemon=True, name=f"import {op_classpath}")
        self.error: Exception | None = None
        self._classes = classes
        self._op_classpath = op_classpath

    def run(self) -> None:
        try:
            self._classes.find(self._op_classpath)
        except Exception as error:
            self.error = error


class Poking:
    """The poking of one job: `put` groups, `step` now and then, and take what was reported."""

    def __init__(self, poker: Poker, threads: ThreadLane, loops: LoopLane) -> None:
        self.outstanding: dict[int, DueGroup] = {}  # handed over and not reported yet
        self._poker = poker
        self._threads = threads
        self._loops = loops
        self._importing: dict[str, tuple[float, list[Pair]]] = {}  # since when, and who waits for it
        self._failed: list[Report] = []

    def put(self, pairs: Iterable[Pair]) -> None:
        """Deal groups out to the lanes."""
        by_class: dict[str, list[Pair]] = defaultdict(list)
        for pair in pairs:
            self.outstanding[pair[0].id] = pair[0]
            by_class[pair[1].op_classpath].append(pair)
        for op_classpath, some in by_class.items():
            self._deal(op_classpath, some, time.monotonic())

    @property
    def queued(self) -> int:
        """How many nobody has begun to poke yet, as far as known."""
        return self._threads.queued + self._loops.queued

    def step(self) -> list[Report]:
        """Look after the lanes, and return what was reported since the last step."""
        waiting, self._importing = self._importing, {}
        for op_classpath, (since, pairs) in waiting.items():
            self._deal(op_classpath, pairs, since)
        self._threads.supervise()
        self._loops.supervise()
        reports, self._failed = self._failed, []
        for some in self._threads.collect():
            reports.extend(some)
        for some in self._loops.collect():
            reports.extend(some)
        for report in reports:
            self.outstanding.pop(report.group.id, None)
        return reports

    def withdraw(self) -> list[int]:
        """Take back what nobody has begun to poke; return the group ids."""
        taken: list[int] = []
        for work in self._threads.withdraw():
            taken.extend(group.id for group in work.groups)
        taken.extend(one.group.id for one in self._loops.withdraw())
        for group_id in taken:
            self.outstanding.pop(group_id, None)
        return taken

    def end(self) -> None:
        """Give the lanes back."""
        self._poker.end(self._threads, self._loops)

    def _deal(self, op_classpath: str, pairs: list[Pair], since: float) -> None:
        found = self._poker.find(op_classpath)
        limit = self._poker.poke_timeout
        if found is None and time.monotonic() - since > limit:
            self._failed.extend(overran(group, since, limit) for group, _ in pairs)
        elif found is None:
            self._importing[op_classpath] = (since, pairs)
        elif isinstance(found, Exception):
            self._failed.extend(self._poker.answers.of_exception(group, since, found) for group, _ in pairs)
        elif found.way is Way.ASYNC:
            self._loops.put(self._ones(pairs))
        elif found.way is Way.MANY:
            self._threads.put(self._batches(pairs))
        else:
            self._threads.put(self._ones(pairs))

    def _ones(self, pairs: Sequence[Pair]) -> list[One]:
        return [One(group, kept, self._poker.classes, self._poker.answers) for group, kept in pairs]

    def _batches(self, pairs: Sequence[Pair]) -> list[Work]:
        return [Many(pairs[i : i + MANY], self._poker.classes, self._poker.answers) for i in range(0, len(pairs), MANY)]
