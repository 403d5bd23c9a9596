"""Shared calls: one call to a backend answers for many groups whose class pokes one by one.

A shared call answers no for sure, or perhaps. What perhaps holds is poked by its own ``poke`` in the same job, so no
group lands, fails or is skipped by a shared call. Tests hold each shared call that we ship against single pokes.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import one_line
from sensorpool.model.not_landed import Seen, not_landed
from sensorpool.model.states import Outcome
from sensorpool.model.values import DueGroup, Milliseconds
from sensorpool.poke.copies import end_copy
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

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()  # by class
        self._paused: dict[tuple[str, Hashable], float] = {}  # until when groups of one kin are poked one by one
        self._told: dict[str, float] = {}  # until when the log has said that calls of a class fail
        self._lock = threading.Lock()

    def is_on(self, op_classpath: str, kin: Hashable = None) -> bool:
        """Whether a class is asked by shared calls now; with a kin: whether groups of this kin are."""
        if (until := self._paused.get((op_classpath, kin))) is None:
            return True
        if _monotonic() < until:
            return False
        self._paused.pop((op_classpath, kin), None)
        return True

    def count(self, op_classpath: str) -> None:
        """Count a call."""
        with self._lock:
            self.calls[op_classpath] += 1

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
        again: Callable[[Iterable[PokeUnit]], None],
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
        perhaps = [units[place] for place, answer in zip(places, answers, strict=True) if answer is not False] + late
        self._calls.count(self.op_classpath)
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
            # it may be the call alone that is refused: until its pause is over each group is poked by itself
            self._calls.failed(self.op_classpath, self._kin, one_line(error))
            self._no = [*places] if is_away else []
            self._again(late if is_away else self._units)
        return [read.of_exception(groups[place], began, error) for place in self._no]
