"""Shared calls: one call to a backend answers for many groups whose class pokes one by one.

A shared call answers no for sure, or perhaps. What perhaps holds is poked by its own ``poke`` in the same job, so no
group lands, fails or is skipped by a shared call. Tests hold each shared call that we ship against single pokes.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import one_line
from sensorpool.model.not_landed import NotLanded, not_landed
from sensorpool.model.states import Outcome
from sensorpool.model.values import DueGroup, Milliseconds, Report
from sensorpool.poke.answer import Answers
from sensorpool.poke.classes import SensorClass, Way
from sensorpool.poke.fork_guard import end_copy
from sensorpool.poke.lane import Undecided, Work, drained
from sensorpool.poke.tools import PokeTools
from sensorpool.poke.unit import PokeUnit

SIZE = 1_000  # groups in one shared call
FEWEST = 2  # groups that are worth one
_PAUSE = 300.0  # seconds for which groups are poked one by one after their shared call has failed
_MOST_PAUSED = 10_000  # kins
_monotonic = time.monotonic

log = logger(__name__)


class Question(NamedTuple):
    """What a group asks.

    :param kin: questions of equal kin go into one call.
    :param asked: what the call is given.
    """

    kin: Hashable
    asked: Any


class SharedCall(Protocol):
    """A way to ask for many contexts of a class at once."""

    def question(self, poke_context: Mapping[str, Any]) -> Question | None:
        """Return the question of a context; None: it is poked by itself."""

    def ask(self, kin: Any, asked: Sequence[Any]) -> Sequence[bool]:
        """Return for each question whether it may hold. False is sure; what is true is poked by itself.

        :raises Exception: when the backend cannot be asked, or the answer is of no use.
        """


class SharedCalls:
    """The shared calls of a process: counted, and paused where one failed. Safe to share between threads."""

    def __init__(self, tools: PokeTools) -> None:
        self._tools = tools
        self._made: deque[str] = deque()  # the class of each call
        self._paused: dict[tuple[str, Hashable], float] = {}  # until when groups of one kin are poked one by one
        self._logged: dict[str, float] = {}  # until when the log has said that calls of a class fail
        self._lock = threading.Lock()

    def is_on(self, op_classpath: str, kin: Hashable = None) -> bool:
        """Whether a class is asked by shared calls now; with a kin: whether groups of this kin are."""
        if (until := self._paused.get((op_classpath, kin))) is None:
            return True
        if _monotonic() < until:
            return False
        self._paused.pop((op_classpath, kin), None)
        return True

    def serve(self, sensor_class: SensorClass) -> bool:
        """Whether groups of a class are asked for by shared calls now; quick pokes cost less than that."""
        path = sensor_class.op_classpath
        return sensor_class.shared is not None and self.is_on(path) and not self._tools.is_quick(path)

    def is_bulk(self, op_classpath: str) -> bool:
        """Whether one call is known to answer many contexts of a class."""
        found = self._tools.classes.known(op_classpath)
        return found is not None and (found.way is Way.MANY or self.serve(found))

    def call_of(self, unit: PokeUnit, now: Milliseconds = 0) -> Hashable:
        """Return what names the call by which a group is asked for together with others; None: it is asked alone.

        :param now: the database's time, for `PokeUnit.may_share`.
        """
        found = self._tools.classes.known(unit.op_classpath)
        if found is None:
            return None
        path = found.op_classpath
        if found.way is Way.MANY:
            return path
        if self.serve(found) and unit.may_share(found, now) and self.is_on(path, unit.question.kin):
            return path, unit.question.kin
        return None

    def count(self, op_classpath: str) -> None:
        """Count a call."""
        self._made.append(op_classpath)

    def taken(self) -> Counter[str]:
        """Return how many calls were made since the last time, by class."""
        return Counter(drained(self._made))

    def pause(self, op_classpath: str, kin: Hashable, why: str) -> None:
        """Have groups of a kin poked one by one for a while: other buckets or tables of their class are asked still.

        :param kin: None: all groups of the class.
        """
        now = _monotonic()
        with self._lock:
            if len(self._paused) >= _MOST_PAUSED:
                self._paused.clear()
            self._paused[op_classpath, kin] = now + _PAUSE
            is_new = now >= self._logged.get(op_classpath, 0.0)
            self._logged[op_classpath] = now + _PAUSE
        if is_new:
            log.warning("one call for many fails; its groups are poked one by one", op_classpath=op_classpath, why=why)


class SharedBatch(Work):
    """Groups that one shared call is asked for.

    :param dealt: when the groups were dealt to this call, by the monotonic clock. Its reports say that they began then:
        a deadline that passes while the call waits for a slot is judged by a later poke.
    """

    __slots__ = ("_answers", "_call", "_calls", "_dealt", "_units")

    def __init__(
        self, units: Sequence[PokeUnit], call: SharedCall, calls: SharedCalls, answers: Answers, dealt: float
    ) -> None:
        self.op_classpath = units[0].op_classpath
        self.began = 0.0
        self._units = units
        self._call = call
        self._calls = calls
        self._answers = answers
        self._dealt = dealt

    @property
    def groups(self) -> list[DueGroup]:
        """The groups."""
        return [unit.group for unit in self._units]

    def poke(self) -> list[Report | NotLanded | Undecided]:
        """Ask for all groups in one call; those that may hold are undecided."""
        units, groups, kin, began = self._units, self.groups, self._units[0].question.kin, _monotonic()
        try:
            answers = list(self._call.ask(kin, [unit.question.asked for unit in units]))
            if len(answers) != len(units):
                raise ValueError(f"{len(answers)} answers to {len(units)} questions")
        except BaseException as error:
            end_copy()
            # it may be the call alone that is refused: until its pause is over each group is poked by itself
            self._calls.pause(self.op_classpath, kin, one_line(error))
            if self._says_away(error):
                return [self._answers.of_exception(group, self._dealt, error) for group in groups]
            return [Undecided(units)]
        end_copy()
        took = _monotonic() - began
        self._calls.count(self.op_classpath)
        no = [group for group, answer in zip(groups, answers, strict=True) if answer is False]
        seen: list[Report | NotLanded | Undecided] = []
        if no:
            seen.append(not_landed(no, [self._dealt] * len(no), took))
        if len(no) < len(units):
            seen.append(Undecided([unit for unit, it in zip(units, answers, strict=True) if it is not False]))
        return seen

    def overran(self, limit: float) -> list[Undecided]:
        """Leave all groups undecided: one call was too long, not each of them."""
        # not of its kin only: a backend that hangs would take a thread for each kin
        self._calls.pause(self.op_classpath, None, f"a call took longer than its limit of {limit:g} s")
        return [Undecided(self._units)]

    def _says_away(self, error: BaseException) -> bool:
        try:
            return self._answers.outcome_of(error) is Outcome.INFRA_FAILURE
        except BaseException:  # its attributes raise
            return False
