"""One process's poker: it knows the classes, keeps the sensors, and deals groups out to the lanes."""

import threading
import time
from collections.abc import Sequence

from sensorpool.model import Report
from sensorpool.poke.answer import Answers
from sensorpool.poke.cache import Cache
from sensorpool.poke.classes import Classes, SensorClass, Way
from sensorpool.poke.event_loop import LoopLane
from sensorpool.poke.slots import Slots
from sensorpool.poke.threads import Hands, ThreadLane
from sensorpool.poke.works import IN_A_ROW, MANY, QUICK, SLOW, Many, Means, One, Row, overran
from sensorpool.settings import Settings


class Poker:
    """What lives as long as the process. Safe to share between the threads that run jobs."""

    def __init__(self, settings: Settings) -> None:
        self.classes = Classes(settings.sensors_enabled)
        self.means = Means(self.classes, Answers(settings.infra_failures), {})
        self.cache = Cache(settings.groups_cached, self.means)
        self.concurrency = settings.poke_concurrency
        self.poke_timeout = settings.poke_timeout
        self._lanes: list[ThreadLane] = []  # those with threads that have not come back
        self._hands = Hands()
        self._slots, self._loop_slots = Slots(self.concurrency), Slots(self.concurrency)
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
            loops = self._free_loops.pop() if self._free_loops else LoopLane(self._loop_slots, self.poke_timeout)
        return Poking(self, ThreadLane(self._slots, self.poke_timeout, self._hands), loops)

    def end(self, threads: ThreadLane, loops: LoopLane) -> None:
        """Take back what `begin` lent."""
        with self._lock:
            self._abandoned_loops += loops.abandoned
            loops.abandoned = 0
            self._free_loops.append(loops)
            if threads.abandoned:
                self._lanes.append(threads)

    def importing_since(self, op_classpath: str) -> float:
        """Return since when a class is being imported, by the monotonic clock."""
        with self._lock:
            task = self._importing.get(op_classpath)
        return time.monotonic() if task is None else task.began

    def find(self, op_classpath: str) -> "SensorClass | BaseException | None":
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
        self.began = time.monotonic()
        self.error: BaseException | None = None
        self._classes = classes
        self._op_classpath = op_classpath

    def run(self) -> None:
        try:
            self._classes.find(self._op_classpath)
        except BaseException as error:  # or it would be tried again for ever
            self.error = error


class Poking:
    """The poking of one job: `put` groups, `step` now and then, and take what was reported."""

    def __init__(self, poker: Poker, threads: ThreadLane, loops: LoopLane) -> None:
        self.outstanding: dict[int, One] = {}  # handed over and not reported yet
        self._poker = poker
        self._threads = threads
        self._loops = loops
        self._importing: dict[str, Sequence[One]] = {}  # who waits for a class
        self._failed: list[Report] = []
        self._moved = time.monotonic()  # when something was begun or reported last
        self._waited = 0  # how many waited then

    def put(self, ones: Sequence[One], ids: Sequence[int]) -> None:
        """Deal groups out to the lanes."""
        self.outstanding.update(zip(ids, ones, strict=True))
        paths = [one.op_classpath for one in ones]
        for op_classpath in set(paths):
            same = ones if paths.count(op_classpath) == len(paths) else None
            some = same or [one for one, path in zip(ones, paths, strict=True) if path == op_classpath]
            self._deal(op_classpath, some)

    def wants_more(self, op_classpath: str) -> bool:
        """Whether so few of a class wait to be begun that its slots may soon be without work."""
        waiting = self._threads.queued_of(op_classpath) + self._loops.queued_of(op_classpath)
        return waiting < self._poker.concurrency and op_classpath not in self._importing

    def is_held_up(self, seconds: float) -> bool:
        """Whether nothing could be begun and nothing was reported for so long: slow pokes or imports hold us up."""
        now, waiting = time.monotonic(), self._threads.queued + self._loops.queued
        if waiting != self._waited:
            self._moved, self._waited = now, waiting
        lanes: tuple[ThreadLane | LoopLane, ...] = (self._threads, self._loops)
        return now - self._moved > seconds and all(not lane.takeable and lane.slow(seconds) for lane in lanes)

    @property
    def is_over(self) -> bool:
        """Whether everything was reported, and no poke goes on that somebody must look after."""
        return not self.outstanding and self._threads.idle and self._loops.idle

    def step(self) -> list[Report]:
        """Look after the lanes, and return what was reported since the last step."""
        waiting, self._importing = self._importing, {}
        for op_classpath, ones in waiting.items():
            self._deal(op_classpath, ones)
        self._threads.supervise()
        self._loops.supervise()
        reports, self._failed = self._failed, []
        for some in self._threads.collect():
            reports.extend(some)
        for some in self._loops.collect():
            reports.extend(some)
        if reports:
            self._moved = time.monotonic()
        reported = self.outstanding.pop
        for report in reports:
            reported(report.group.id, None)
        return reports

    def withdraw(self) -> list[int]:
        """Take back what nobody has begun to poke; return the group ids."""
        taken: list[int] = []
        for work in self._threads.withdraw():
            taken.extend(group.id for group in work.groups)
        taken.extend(one.group.id for one in self._loops.withdraw())
        taken.extend(one.group.id for ones in self._importing.values() for one in ones)
        self._importing.clear()
        for group_id in taken:
            self.outstanding.pop(group_id, None)
        return taken

    def end(self) -> None:
        """Give the lanes back."""
        self._poker.end(self._threads, self._loops)

    def _deal(self, op_classpath: str, ones: Sequence[One]) -> None:
        found = self._poker.find(op_classpath)
        limit, means, now = self._poker.poke_timeout, self._poker.means, time.monotonic()
        if found is None and now - self._poker.importing_since(op_classpath) > limit:
            self._failed.extend(overran(one.group, now, limit) for one in ones)
        elif found is None:
            self._importing[op_classpath] = ones
        elif isinstance(found, BaseException):
            self._failed.extend(means.answers.of_exception(one.group, now, found) for one in ones)
        elif found.way is Way.ASYNC:
            self._loops.put(ones)
        elif found.way is Way.MANY:
            self._threads.put(Many(ones[i : i + MANY], means) for i in range(0, len(ones), MANY))
        elif (pace := means.pace.get(op_classpath)) is None or pace > QUICK:
            self._threads.put(ones, slow=pace is not None and pace > SLOW)
        else:
            self._threads.put(Row(ones[i : i + IN_A_ROW], means) for i in range(0, len(ones), IN_A_ROW))
