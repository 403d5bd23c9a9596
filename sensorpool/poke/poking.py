"""The poking of one job: it deals groups out to the lanes, and collects what their pokes saw."""

import time
from collections.abc import Callable, Hashable, Iterator, Sequence

from sensorpool.errors import ClassUnavailable
from sensorpool.instrumentation.logs import logger
from sensorpool.model.not_landed import NotLanded, Seen
from sensorpool.model.values import Milliseconds, Report
from sensorpool.poke import bulk_call, imports, shared_call
from sensorpool.poke.bulk_call import BulkCall
from sensorpool.poke.classes import SensorClass, Way
from sensorpool.poke.lane import Undecided, Work
from sensorpool.poke.loop_lane import LoopLane
from sensorpool.poke.shared_call import FEWEST, SharedBatch, SharedCalls
from sensorpool.poke.thread_lane import BATCH, QuickBatch, ThreadLane
from sensorpool.poke.tools import PokeTools
from sensorpool.poke.unit import PokeUnit

log = logger(__name__)

_QUICK_SHARE = 4  # of the slots: so few `QuickBatch`es need to wait


class Poking:
    """The poking of one job: `put` groups, call `step` now and then, and take the reports.

    :param give_back: is called with the lanes at the end.
    :param now: returns the database's time of a time by the monotonic clock; None: no deadline is looked at.
    """

    def __init__(
        self,
        tools: PokeTools,
        class_imports: imports.Imports,
        shared_calls: SharedCalls,
        threads: ThreadLane,
        loops: LoopLane,
        give_back: Callable[[ThreadLane, LoopLane], object],
        now: Callable[[float], Milliseconds] | None = None,
    ) -> None:
        self._tools = tools
        self._imports = class_imports
        self._shared_calls = shared_calls
        self._threads = threads
        self._loops = loops
        self._give_back = give_back
        self._now: Callable[[float], Milliseconds] = now or (lambda _: 0)
        self._lanes: tuple[ThreadLane | LoopLane, ...] = (threads, loops)
        self.outstanding: dict[int, PokeUnit] = {}  # handed over and not reported yet
        self._importing: dict[str, Sequence[PokeUnit]] = {}  # groups that wait for the import of their class
        self._failed: list[Report] = []
        self._undecided: list[PokeUnit] = []  # by shared calls: each needs a poke of its own
        self._moved = time.monotonic()  # when groups were last handed over or reported
        self._has_logged = False

    def put(self, units: Sequence[PokeUnit], ids: Sequence[int]) -> None:
        """Deal groups out to the lanes."""
        self.outstanding.update(zip(ids, units, strict=True))
        self._moved = time.monotonic()
        paths = [unit.op_classpath for unit in units]
        if paths and paths.count(paths[0]) == len(paths):  # as a rule
            self._deal(paths[0], units)
            return
        by_class: dict[str, list[PokeUnit]] = {}
        for unit in units:
            by_class.setdefault(unit.op_classpath, []).append(unit)
        for op_classpath, some in by_class.items():
            self._deal(op_classpath, some)

    def wants_more(self, op_classpath: str) -> bool:
        """Whether so few groups of a class wait that its slots may soon be without work."""
        waiting = self._threads.queued_of(op_classpath) + self._loops.queued_of(op_classpath)
        enough = self._threads.concurrency
        if self._tools.is_quick(op_classpath):  # then many wait as one, and each hand-over notes them again
            enough = max(1, enough // _QUICK_SHARE)
        return waiting < enough and op_classpath not in self._importing

    def is_held_up(self, seconds: float) -> bool:
        """Whether nothing was handed over or reported for so many seconds: slow pokes or imports hold the job up."""
        return time.monotonic() - self._moved > seconds

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
        collected: list[Seen | Undecided] = [*self._failed]
        self._failed.clear()
        for lane in self._lanes:
            try:
                lane.supervise()
            except Exception:  # the reports are collected all the same, from both lanes
                if not self._has_logged:
                    self._has_logged = True
                    log.exception("a lane of pokes cannot be looked after")
            for some in lane.collect():
                collected.extend(some)
        if collected:
            self._moved = time.monotonic()
        seen: list[Seen] = []
        reported = self.outstanding.pop
        for each in collected:
            if isinstance(each, Undecided):
                self._undecided += each.units
                continue
            seen.append(each)
            if isinstance(each, NotLanded):
                for group_id in each.ids:
                    reported(group_id, None)
            elif (unit := reported(each.group.id, None)) is not None:
                unit.by_itself = False
        return seen

    def take_undecided(self) -> list[PokeUnit]:
        """Take back the units that a shared call has left undecided: their next poke is their own."""
        undecided, self._undecided = self._undecided, []
        for unit in undecided:
            unit.by_itself = True
        return [unit for unit in undecided if self.outstanding.pop(unit.group.id, None) is not None]

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
        self._give_back(self._threads, self._loops)

    def _deal(self, op_classpath: str, units: Sequence[PokeUnit]) -> None:
        tools, now = self._tools, time.monotonic()
        sensor_class = self._imports.find(op_classpath)
        if sensor_class is None and now - self._imports.since(op_classpath) > imports.LIMIT:
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
            self._threads.put(QuickBatch(some) for some in _in_parts(units, BATCH))
        else:
            self._threads.put(self._in_calls(sensor_class, units) if self._shared_calls.serve(sensor_class) else units)

    def _in_calls(self, sensor_class: SensorClass, units: Sequence[PokeUnit]) -> list[Work]:
        """Return one call for the groups that can share it, and the other groups by themselves."""
        calls, dealt = self._shared_calls, time.monotonic()
        now = self._now(dealt)
        works: list[Work] = []
        alone: list[PokeUnit] = []
        by_kin: dict[Hashable, list[PokeUnit]] = {}
        for unit in units:
            if unit.may_share(sensor_class, now):
                by_kin.setdefault(unit.question.kin, []).append(unit)
            else:
                alone.append(unit)
        for kin, some in by_kin.items():
            if len(some) < FEWEST or not calls.is_on(sensor_class.op_classpath, kin):
                alone += some
                continue
            for part in _in_parts(some, shared_call.SIZE):
                works.append(SharedBatch(part, sensor_class.shared, calls, self._tools.answers, dealt))
        return [*works, *alone]


def _in_parts(units: Sequence[PokeUnit], size: int) -> Iterator[Sequence[PokeUnit]]:
    return (units[start : start + size] for start in range(0, len(units), size))
