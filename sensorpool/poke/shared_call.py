"""Shared calls: one call to a backend answers for many groups whose class pokes one by one.

A shared call answers no for sure, or perhaps. What perhaps holds is poked by its own ``poke`` in the same job, so no
group lands, fails or is skipped by a shared call. One batch in some is compared with single pokes; a class whose shared
call has said no to what its poke finds is poked one by one from then on (`SharedCalls`).
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import one_line
from sensorpool.model.not_landed import Seen, each_report, not_landed
from sensorpool.model.states import Outcome
from sensorpool.model.values import DueGroup, Milliseconds, Report
from sensorpool.poke.copies import end_copy
from sensorpool.poke.tools import PokeTools
from sensorpool.poke.unit import PokeUnit

SIZE = 1_000  # groups in one shared call
FEWEST = 2  # groups that are worth one
COMPARED = 50  # one batch in so many is compared
_SHADOWS = 3  # groups of such a batch that are poked one by one
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
    """The shared calls of a process: counted, compared, and turned off. Safe to share between threads."""

    def __init__(self) -> None:
        self.unequal: dict[str, str] = {}  # classes whose shared call was wrong, each with what it was wrong about
        self.calls: Counter[str] = Counter()  # by class
        self._paused: dict[tuple[str, Hashable], float] = {}  # until when groups of one kin are poked one by one
        self._told: dict[str, float] = {}  # until when the log has said that calls of a class fail
        self._batches: Counter[str] = Counter()
        self._lock = threading.Lock()

    def is_on(self, op_classpath: str, kin: Hashable = None) -> bool:
        """Whether a class is asked by shared calls now; with a kin: whether groups of this kin are."""
        if op_classpath in self.unequal:
            return False
        if not self._paused:
            return True
        if (until := self._paused.get((op_classpath, kin))) is None:
            return True
        if _monotonic() < until:
            return False
        self._paused.pop((op_classpath, kin), None)
        return True

    def count(self, op_classpath: str) -> bool:
        """Count a call; return whether its batch is compared with single pokes: the first one is."""
        with self._lock:
            self.calls[op_classpath] += 1
            self._batches[op_classpath] += 1
            return self._batches[op_classpath] % COMPARED == 1

    def taken(self) -> Counter[str]:
        """Return how many calls were made since the last time, by class."""
        if not self.calls:
            return Counter()
        with self._lock:
            calls, self.calls = self.calls, Counter()
        return calls

    def failed(self, op_classpath: str, kin: Hashable, why: str) -> None:
        """Have groups of a kin poked one by one for a while: other buckets or tables of their class are asked still.

        :param kin: None: all groups of the class.
        """
        now = _monotonic()
        with self._lock:
            if len(self._paused) >= _MOST_PAUSED:
                self._paused.clear()
            self._paused[op_classpath, kin] = now + _PAUSE
            is_new = now >= self._told.get(op_classpath, 0.0)
            self._told[op_classpath] = now + _PAUSE
        if is_new:
            log.warning("one call for many fails; its groups are poked one by one", op_classpath=op_classpath, why=why)

    def turn_off(self, op_classpath: str, why: str) -> None:
        """Have a class poked one by one from now on: its shared call is wrong."""
        with self._lock:
            is_new = op_classpath not in self.unequal
            self.unequal.setdefault(op_classpath, why)
        if is_new:
            log.error("one call for many is wrong; its class is poked one by one", op_classpath=op_classpath, why=why)


class SharedBatch:
    """Groups that one shared call is asked for.

    :param again: has units poked by themselves, in the same job.
    :param now: tells the database's time at a moment of the monotonic clock: the call may wait long for a slot, and
        groups whose deadline has passed meanwhile are not asked for.
    """

    size = 1  # call, which waits for one answer

    __slots__ = (
        "_again",
        "_call",
        "_calls",
        "_given_up",
        "_kin",
        "_lock",
        "_no",
        "_now",
        "_tools",
        "_units",
        "began",
        "op_classpath",
    )

    def __init__(
        self,
        units: Sequence[PokeUnit],
        call: SharedCall,
        calls: SharedCalls,
        tools: PokeTools,
        again: Callable[[Iterable[Any]], None],
        now: Callable[[float], Milliseconds],
    ) -> None:
        self.op_classpath = units[0].op_classpath
        self.began = 0.0
        self._units = units
        self._kin: Hashable = units[0].question.kin
        self._call = call
        self._calls = calls
        self._tools = tools
        self._again = again
        self._now = now
        self._given_up = False
        self._no: list[int] | None = None  # the places of the groups that it reports itself; None: it has not ended
        self._lock = threading.Lock()

    @property
    def groups(self) -> list[DueGroup]:
        """The groups."""
        return [unit.group for unit in self._units]

    def poke(self) -> list[Seen]:
        """Ask for all groups in one call; have those poked by themselves that may hold."""
        units, began = self._units, _monotonic()
        groups = [unit.group for unit in units]  # the versions of now
        now = self._now(began)
        places = [place for place, group in enumerate(groups) if (at := group.next_deadline) is None or now < at]
        late = [units[place] for place in sorted(set(range(len(units))).difference(places))]
        if len(places) < FEWEST:
            with self._lock:
                if not self._given_up:
                    self._no = []
                    self._again(units)
            return []
        questions = [units[place].question for place in places]
        try:
            answers = list(self._call.ask(self._kin, [each.asked for each in questions]))
            if len(answers) != len(places):
                raise ValueError(f"{len(answers)} answers to {len(places)} questions")
        except BaseException as error:
            end_copy()
            return self._failed(groups, places, late, began, error)
        end_copy()
        took = _monotonic() - began
        no = [place for place, answer in zip(places, answers, strict=True) if answer is False]
        perhaps: list[Any] = [
            units[place] for place, answer in zip(places, answers, strict=True) if answer is not False
        ]
        perhaps += late
        if self._calls.count(self.op_classpath) and no:
            shadows = set(random.sample(no, min(_SHADOWS, len(no))))
            no = [place for place in no if place not in shadows]
            perhaps += [_Shadow(units[place], self._call, self._calls) for place in sorted(shadows)]
        with self._lock:
            if self._given_up:
                return []
            self._no = no
            if perhaps:
                self._again(perhaps)
        if not no:
            return []
        return [not_landed([groups[place] for place in no], [began] * len(no), took)]

    def overran(self, limit: float) -> list[Seen]:
        """Have all groups poked by themselves: one call was too long, not each of them."""
        # not of its kin only: a backend that hangs would take a thread for each kin
        self._calls.failed(self.op_classpath, None, f"a call took longer than its limit of {limit:g} s")
        with self._lock:
            self._given_up = True
            self._again(self._units if self._no is None else [self._units[place] for place in self._no])
        return []

    def rest(self) -> tuple[()]:
        """Return nothing: all groups are in the call that goes on."""
        return ()

    def _failed(
        self,
        groups: Sequence[DueGroup],
        places: Sequence[int],
        late: Sequence[PokeUnit],
        began: float,
        error: BaseException,
    ) -> list[Seen]:
        read = self._tools.answers
        try:
            is_away = read.outcome_of(error) is Outcome.INFRA_FAILURE
        except BaseException:  # its attributes raise
            is_away = False
        with self._lock:
            if self._given_up:
                return []
            self._no = [*places[1:]] if is_away else []
            if not is_away:
                self._calls.failed(self.op_classpath, self._kin, one_line(error))
                self._again(self._units)
                return []
            # each of them would find so too, unless it is the call alone that is refused
            self._again([_Scout(self._units[places[0]], self._call, self._calls), *late])
        return [read.of_exception(groups[place], began, error) for place in places[1:]]


class _Shadow:
    """A group to which a shared call said no: its own poke tells whether that is right."""

    size = 1  # pokes

    __slots__ = ("_call", "_calls", "_unit", "began", "op_classpath")

    def __init__(self, unit: PokeUnit, call: SharedCall, calls: SharedCalls) -> None:
        self.op_classpath = unit.op_classpath
        self.began = 0.0
        self._unit = unit
        self._call = call
        self._calls = calls

    @property
    def groups(self) -> list[DueGroup]:
        return self._unit.groups

    def poke(self) -> list[Report]:
        reports = each_report(self._unit.poke())
        if any(report.outcome is Outcome.LANDED for report in reports):
            self._compare()
        return reports

    def overran(self, limit: float) -> list[Report]:
        return self._unit.overran(limit)

    def rest(self) -> tuple[()]:
        return ()

    def _compare(self) -> None:
        """Ask once more: it may have landed since the shared call."""
        question = self._unit.question
        try:
            [answer] = self._call.ask(question.kin, [question.asked])
        except BaseException:
            end_copy()
            return
        if answer is False:
            self._calls.turn_off(self.op_classpath, f"it says no to group {self._unit.group.id}, which its poke finds")


class _Scout(_Shadow):
    """A group of a shared call that could not ask its backend: its own poke tells whether the backend is away."""

    __slots__ = ()

    def poke(self) -> list[Report]:
        reports = each_report(self._unit.poke())
        if not any(report.outcome is Outcome.INFRA_FAILURE for report in reports):
            kin = self._unit.question.kin
            self._calls.failed(self.op_classpath, kin, "it cannot ask its backend, and a poke can")
        return reports
