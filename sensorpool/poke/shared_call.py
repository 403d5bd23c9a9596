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
from sensorpool.model.values import DueGroup
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
    :param dealt: when the groups were dealt to this call, by the monotonic clock. Its reports say that they began then:
        a deadline that passes while the call waits for a slot is judged by a later poke.
    """

    size = 1  # call, which waits for one answer

    __slots__ = (
        "_again",
        "_call",
        "_calls",
        "_dealt",
        "_given_up",
        "_kin",
        "_lock",
        "_no",
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
        dealt: float,
    ) -> None:
        self.op_classpath = units[0].op_classpath
        self.began = 0.0
        self._units = units
        self._kin: Hashable = units[0].question.kin
        self._call = call
        self._calls = calls
        self._tools = tools
        self._again = again
        self._dealt = dealt
        self._given_up = False
        self._no: Sequence[PokeUnit] = units  # that are not poked by themselves yet
        self._lock = threading.Lock()

    @property
    def groups(self) -> list[DueGroup]:
        """The groups."""
        return [unit.group for unit in self._units]

    def poke(self) -> list[Seen]:
        """Ask for all groups in one call; have those poked by themselves that may hold."""
        units, dealt, groups = self._units, self._dealt, self.groups  # the versions of now
        began = _monotonic()
        try:
            answers = list(self._call.ask(self._kin, [unit.question.asked for unit in units]))
            if len(answers) != len(units):
                raise ValueError(f"{len(answers)} answers to {len(units)} questions")
        except BaseException as error:
            end_copy()
            if not self._failed(error):
                return []
            return [self._tools.answers.of_exception(group, dealt, error) for group in groups]
        end_copy()
        took = _monotonic() - began
        self._calls.count(self.op_classpath)
        no = [group for group, answer in zip(groups, answers, strict=True) if answer is False]
        if not self._end(no=[unit for unit, answer in zip(units, answers, strict=True) if answer is False]) or not no:
            return []
        return [not_landed(no, [dealt] * len(no), took)]

    def overran(self, limit: float) -> list[Seen]:
        """Have all groups poked by themselves: one call was too long, not each of them."""
        # not of its kin only: a backend that hangs would take a thread for each kin
        self._calls.failed(self.op_classpath, None, f"a call took longer than its limit of {limit:g} s")
        with self._lock:
            self._given_up = True
            self._again(self._no)
        return []

    def rest(self) -> tuple[()]:
        """Return nothing: all groups are in the call that goes on."""
        return ()

    def seen(self) -> tuple[()]:
        """Return nothing: what was seen is reported as it ends."""
        return ()

    def _end(self, no: Sequence[PokeUnit]) -> bool:
        """Have the other units poked by themselves; return whether this call counts, and was not given up."""
        with self._lock:
            if not self._given_up:
                self._no, own = no, set(no)
                self._again([unit for unit in self._units if unit not in own])
            return not self._given_up

    def _failed(self, error: BaseException) -> bool:
        """Pause calls of this kin; return whether the error is reported for all groups: their backend is away."""
        try:
            is_away = self._tools.answers.outcome_of(error) is Outcome.INFRA_FAILURE
        except BaseException:  # its attributes raise
            is_away = False
        # it may be the call alone that is refused: until its pause is over each group is poked by itself
        self._calls.failed(self.op_classpath, self._kin, one_line(error))
        return self._end(no=self._units if is_away else ()) and is_away
