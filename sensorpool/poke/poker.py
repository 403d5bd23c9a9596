"""One process's poker: it has the classes, keeps the sensors, and deals groups out to the lanes."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from sensorpool.config import allowlist
from sensorpool.config.settings import Settings
from sensorpool.errors import ClassUnavailable
from sensorpool.instrumentation.logs import logger
from sensorpool.model.not_landed import NotLanded, Seen
from sensorpool.model.values import Milliseconds, Report
from sensorpool.poke import bulk_call, copies, imports, patches, quick_batch, shared_call
from sensorpool.poke.answer import Answers
from sensorpool.poke.bulk_call import BulkCall
from sensorpool.poke.cache import Cache
from sensorpool.poke.classes import RETRY_AFTER, Classes, SensorClass, Way
from sensorpool.poke.disposal import Disposal
from sensorpool.poke.imports import Imports
from sensorpool.poke.loop_lane import LoopLane
from sensorpool.poke.queues import drained
from sensorpool.poke.quick_batch import QuickBatch
from sensorpool.poke.reusable_threads import ReusableThreads
from sensorpool.poke.shared_call import FEWEST, SharedBatch, SharedCalls
from sensorpool.poke.slots import Slots
from sensorpool.poke.thread_lane import ThreadLane, Work
from sensorpool.poke.tools import WAITS_FOR_ANSWERS, PokeTools
from sensorpool.poke.unit import PokeUnit
from sensorpool.sensors.time_limit import set_time_limit

log = logger(__name__)

_LONGER = 1.5  # than the latest poke of its class: a poke that hangs
_QUICK_SHARE = 4  # of the slots: so few `QuickBatch`es need to wait


class Poker:
    """The poking that lives as long as the process. Safe to share between the threads that run jobs."""

    def __init__(self, settings: Settings) -> None:
        copies.own_right()
        patches.refuse_patches()
        listed = allowlist.of(settings.sensors_enabled)
        self.classes = Classes(listed.resolved(), retry_after=RETRY_AFTER, why_not=listed.why_not)
        self.imports = Imports(self.classes)
        self.tools = PokeTools(self.classes, Answers(settings.infra_failures), {})
        self.shared_calls = SharedCalls()
        self.cache = Cache(settings.groups_cached, self.tools)
        self.concurrency = settings.poke_concurrency
        self.poke_timeout = settings.poke_timeout
        set_time_limit(settings.poke_timeout)
        self._lanes: list[ThreadLane] = []  # the ended lanes with pokes that have not returned
        self._reusable = ReusableThreads()
        self._disposal = Disposal(self._reusable)
        self._slots, self._loop_slots = Slots(self.concurrency, of_threads=True), Slots(self.concurrency)
        self._loops: list[LoopLane] = []
        self._free_loops: list[LoopLane] = []
        self._lock = threading.Lock()

    @property
    def abandoned(self) -> int:
        """How many threads hang in this process."""
        with self._lock:
            self._lanes = [lane for lane in self._lanes if lane.abandoned]
            left_by_loops = sum(loops.abandoned + loops.hanging for loops in self._loops)
            return sum(lane.abandoned for lane in self._lanes) + left_by_loops + self._disposal.hanging

    def begin(
        self,
        now: Callable[[float], Milliseconds] | None = None,
        has_budget: Callable[[str], bool] | None = None,
    ) -> "Poking":
        """Begin to poke for one job.

        :param now: returns the database's time of a time by the monotonic clock; None: no deadline is looked at.
        :param has_budget: returns whether a backend has a budget; None: none has.
        """
        self._disposal.look_after()
        with self._lock:
            if self._free_loops:
                loops = self._free_loops.pop()
            else:
                loops = LoopLane(self._loop_slots, self.poke_timeout, self._reusable)
                self._loops.append(loops)
        return Poking(self, ThreadLane(self._slots, self.poke_timeout, self._reusable), loops, now, has_budget)

    def end(self, threads: ThreadLane, loops: LoopLane) -> None:
        """Take back what `begin` lent."""
        self._disposal.look_after()
        with self._lock:
            self._free_loops.append(loops)
            if threads.abandoned:
                self._lanes.append(threads)

    def close(self) -> None:
        """End the idle threads. Busy threads run the code of users: they end with their pokes."""
        with self._lock:
            loops = list(self._loops)
        for lane in loops:
            lane.close()
        self._reusable.close()

    def slots_of(self, op_classpath: str) -> Slots:
        """Return the slots that a class shares with other classes."""
        found = self.classes.known(op_classpath)
        return self._loop_slots if found is not None and found.way is Way.ASYNC else self._slots

    def is_bulk(self, op_classpath: str) -> bool:
        """Whether one call is known to answer many contexts of a class."""
        found = self.classes.known(op_classpath)
        return found is not None and (found.way is Way.MANY or self.shares(found))

    def shares(self, sensor_class: SensorClass) -> bool:
        """Whether groups of a class are asked for by shared calls now; quick pokes cost less than that."""
        path = sensor_class.op_classpath
        return sensor_class.shared is not None and self.shared_calls.is_on(path) and not self.tools.is_quick(path)

    def call_of(self, unit: PokeUnit, now: Milliseconds = 0) -> Any:
        """Return what names the call by which a group is asked for together with others; None: it is asked alone.

        :param now: the database's time, for `PokeUnit.may_share`.
        """
        found = self.classes.known(unit.op_classpath)
        if found is None:
            return None
        if found.way is Way.MANY:
            return found.op_classpath
        if self.shares(found) and self.may_share(found, unit, now):
            return (found.op_classpath, unit.question.kin)
        return None

    def may_share(self, sensor_class: SensorClass, unit: PokeUnit, now: Milliseconds) -> bool:
        """Whether a group of a class with shared calls may be asked for by one.

        :param now: the database's time, for `PokeUnit.may_share`.
        """
        if not unit.may_share(sensor_class, now):
            return False
        return self.shared_calls.is_on(sensor_class.op_classpath, unit.question.kin)


class Poking:
    """The poking of one job: `put` groups, call `step` now and then, and take the reports."""

    def __init__(
        self,
        poker: Poker,
        threads: ThreadLane,
        loops: LoopLane,
        now: Callable[[float], Milliseconds] | None = None,
        has_budget: Callable[[str], bool] | None = None,
    ) -> None:
        self._now = now
        self._has_budget = has_budget
        self._returned: deque[PokeUnit] = deque()  # by shared calls, for their own pokes are not in the budget yet
        self.outstanding: dict[int, PokeUnit] = {}  # handed over and not reported yet
        self._poker = poker
        self._threads = threads
        self._loops = loops
        self._lanes: tuple[ThreadLane | LoopLane, ...] = (threads, loops)
        self._importing: dict[str, Sequence[PokeUnit]] = {}  # groups that wait for the import of their class
        self._failed: list[Report] = []
        self._moved = time.monotonic()  # when a poke was last begun or reported
        self._waited = 0  # how many waited at that time
        self._has_said = False

    def put(self, units: Sequence[PokeUnit], ids: Sequence[int]) -> None:
        """Deal groups out to the lanes."""
        self.outstanding.update(zip(ids, units, strict=True))
        paths = [unit.op_classpath for unit in units]
        for op_classpath in set(paths):
            same = units if paths.count(op_classpath) == len(paths) else None
            some = same or [unit for unit, path in zip(units, paths, strict=True) if path == op_classpath]
            self._deal(op_classpath, some)

    def wants_more(self, op_classpath: str) -> bool:
        """Whether so few groups of a class wait that its slots may soon be without work."""
        waiting = self._threads.queued_of(op_classpath) + self._loops.queued_of(op_classpath)
        enough = self._poker.concurrency
        if self._poker.tools.is_quick(op_classpath):  # then many wait as one, and each hand-over notes them again
            enough = max(1, enough // _QUICK_SHARE)
        return waiting < enough and op_classpath not in self._importing

    def is_held_up(self, seconds: float) -> bool:
        """Whether no poke began and none was reported for so many seconds: slow pokes or imports hold the job up."""
        now, waiting = time.monotonic(), self._threads.queued + self._loops.queued
        if waiting != self._waited:
            self._moved, self._waited = now, waiting
        if now - self._moved <= seconds:
            return False
        return all(not lane.takeable and lane.is_held_up(seconds) for lane in self._lanes)

    @property
    def is_idle(self) -> bool:
        """Whether no lane has a poke to look after, and none waits for an import."""
        return self._threads.idle and self._loops.idle and not self._importing

    @property
    def is_over(self) -> bool:
        """Whether every group was reported, and no lane has a poke to look after."""
        return not self.outstanding and self.is_idle

    def forget_lost(self) -> list[int]:
        """Forget the groups that are not reported; return their ids.

        To be called after a step that began when this was idle: no lane has these groups. An error that struck between
        the hand-over and a lane has lost them, such as a want of memory.
        """
        lost = list(self.outstanding)
        self.outstanding.clear()
        return lost

    def step(self) -> list[Seen]:
        """Look after the lanes, and return what pokes saw since the last step."""
        waiting, self._importing = self._importing, {}
        for op_classpath, units in waiting.items():
            self._deal(op_classpath, units)
        seen: list[Seen] = [*self._failed]
        self._failed.clear()
        for lane in self._lanes:
            try:
                lane.supervise()
            except Exception:  # the reports are collected all the same, from both lanes
                if not self._has_said:
                    self._has_said = True
                    log.exception("a lane of pokes cannot be looked after")
            for some in lane.collect():
                seen.extend(some)
        if seen:
            self._moved = time.monotonic()
        reported = self.outstanding.pop
        for each in seen:
            if isinstance(each, NotLanded):
                for group_id in each.ids:
                    reported(group_id, None)
            elif (unit := reported(each.group.id, None)) is not None:
                unit.by_itself = False
        return seen

    def is_stuck(self, op_classpath: str, seconds: float) -> bool:
        """Whether a class has had no free slot for so long: all its slots are with pokes that do not return.

        :param seconds: at least; a class whose pokes take long has no free slot for as long as one of them takes.
        """
        seconds = max(seconds, _LONGER * self._poker.tools.pace.get(op_classpath, 0.0))
        return self._poker.slots_of(op_classpath).is_stuck(op_classpath, seconds)

    def take_returned(self) -> list[PokeUnit]:
        """Take back the units whose shared call has ended, and whose own poke their budget has to allow."""
        if not (returned := drained(self._returned)):
            return []
        self._moved = time.monotonic()
        return [unit for unit in returned if self.outstanding.pop(unit.group.id, None) is not None]

    def withdraw(self) -> list[PokeUnit]:
        """Take back the units whose poke has not begun."""
        taken: list[int] = []
        for work in self._threads.withdraw():
            taken.extend(group.id for group in work.groups)
        taken.extend(unit.group.id for unit in self._loops.withdraw())
        taken.extend(unit.group.id for units in self._importing.values() for unit in units)
        self._importing.clear()
        return [unit for group_id in taken if (unit := self.outstanding.pop(group_id, None)) is not None]

    def end(self) -> None:
        """Give the lanes back."""
        self._poker.end(self._threads, self._loops)

    def _deal(self, op_classpath: str, units: Sequence[PokeUnit]) -> None:
        sensor_class = self._poker.imports.find(op_classpath)
        tools, now = self._poker.tools, time.monotonic()
        if sensor_class is None and now - self._poker.imports.since(op_classpath) > imports.LIMIT:
            # no poke has begun: the groups are left to other processes, and are due here again
            why = ClassUnavailable(f"{op_classpath} is being imported here for longer than {imports.LIMIT:g} s")
            self._failed.extend(tools.answers.of_exception(unit.group, now, why) for unit in units)
        elif sensor_class is None:
            self._importing[op_classpath] = [*self._importing.get(op_classpath, ()), *units]
        elif isinstance(sensor_class, BaseException):
            self._failed.extend(tools.answers.of_exception(unit.group, now, sensor_class) for unit in units)
        elif sensor_class.way is Way.ASYNC:
            self._loops.put(units)
        elif sensor_class.way is Way.MANY:
            self._threads.put(BulkCall(some, tools) for some in _in_parts(units, bulk_call.SIZE))
        elif tools.is_quick(op_classpath):
            self._threads.put(QuickBatch(some, tools) for some in _in_parts(units, quick_batch.SIZE))
        elif self._poker.shares(sensor_class):
            self._deal_shared(sensor_class, units)
        else:
            self._threads.put(units, at_once=tools.pace.get(op_classpath, 0.0) > WAITS_FOR_ANSWERS)

    def _again(self, works: Iterable[Work]) -> None:
        """Have those poked by themselves to which a shared call did not say no. Called from any thread.

        Where their backend has a budget, one is poked in the call's place, so that each call leads to a poke at least.
        """
        at_once, returned = list[Work](), list[PokeUnit]()
        for work in works:
            if self._has_budget is None or not isinstance(work, PokeUnit) or not self._has_budget(work.backend):
                at_once.append(work)
                continue
            work.by_itself = True
            if at_once:
                returned.append(work)
            else:
                at_once.append(work)
        self._returned.extend(returned)
        self._threads.put_back(at_once)

    def _deal_shared(self, sensor_class: SensorClass, units: Sequence[PokeUnit]) -> None:
        """Deal groups out by what they ask: those that can share a call to one call, the others by themselves."""
        by_kin: dict[Any, list[PokeUnit]] = {}
        alone: list[PokeUnit] = []
        now = 0 if self._now is None else self._now(time.monotonic())
        for unit in units:
            if self._poker.may_share(sensor_class, unit, now):
                by_kin.setdefault(unit.question.kin, []).append(unit)
            else:
                alone.append(unit)
        poker, works = self._poker, list[Work]()
        for kin in by_kin.values():
            if len(kin) < FEWEST:
                alone += kin
                continue
            for some in _in_parts(kin, shared_call.SIZE):
                works.append(SharedBatch(some, sensor_class.shared, poker.shared_calls, poker.tools, self._again))
        self._threads.put([*works, *alone])


def _in_parts(units: Sequence[PokeUnit], size: int) -> Iterator[Sequence[PokeUnit]]:
    return (units[start : start + size] for start in range(0, len(units), size))
