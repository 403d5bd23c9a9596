"""What is left of the budgets of backends, in Redis, shared by all workers: one script a batch of pokes. Disposable."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from zlib import crc32

from sensorpool.leases.answers import milliseconds
from sensorpool.leases.redis_store import RedisStore
from sensorpool.model.budgets import Budget

_FRESH = 120_000  # milliseconds: an asker that waits asks again sooner
_NUMBERS = re.compile(r"(-?[0-9]{1,15}(?:\.[0-9]{1,6})?) ([0-9]{1,15}(?:\.[0-9]{1,6})?)", re.ASCII)


class Asked(NamedTuple):
    """One question for a budget.

    :param asker: the range whose groups want it.
    :param wanted: pokes; a negative number is taken whatever is left.
    :param done: how many of the pokes that the asker had at once have ended since it asked last.
    :param stretch: the sum of the stretches of the groups poked since then; ``poked``: how many these are.
    :param groups: how many wait; a call for many groups is one poke.
    :param holder: the round of a job that has the pokes at once; empty: the asker.
    """

    budget: Budget
    asker: str
    wanted: int
    done: int = 0
    stretch: float = 0.0
    poked: int = 0
    groups: int = 0
    holder: str = ""


class Granted(NamedTuple):
    """The answer: so many pokes may begin now, and the asker asks for the others after so many seconds."""

    pokes: int
    wait: float


class BudgetState(NamedTuple):
    """A budget as it is now.

    :param waiting: groups that wait for it.
    :param stretch: by how much it stretches the intervals of its groups; 1: not at all.
    :param at_once: pokes that go on.
    """

    budget: Budget
    waiting: int
    stretch: float
    at_once: int


class BudgetsLeft:
    """What is left of a pool's budgets.

    :param kept: seconds after which pokes count as ended of which a worker does not tell.
    :raises Unreachable: by every method, when Redis does not answer.
    """

    def __init__(self, store: RedisStore, *, kept: float) -> None:
        self._store = store
        self._kept = round(kept * 1000)
        self._take = store.script("take_budget")

    def take(self, questions: Sequence[Asked]) -> list[Granted]:
        """Take pokes out of budgets, in one round trip."""
        calls = [
            (
                self._take,
                [self._key(each.budget)],
                [
                    each.asker,
                    each.wanted,
                    each.budget.per_second or 0,
                    each.budget.at_once or 0,
                    each.done,
                    self._kept,
                    f"{each.stretch:.3f}",
                    each.poked,
                    each.groups or abs(each.wanted),
                    each.holder or each.asker,
                ],
            )
            for each in questions
        ]
        return [Granted(int(pokes), int(wait) / 1000) for pokes, wait in self._store.run_each(calls)]

    def look(self, budgets: Iterable[Budget]) -> list[BudgetState]:
        """Return each budget as it is now."""
        asked = list(budgets)
        pipeline = self._store.pipeline()
        for budget in asked:
            pipeline.hgetall(self._key(budget))
        pipeline.time()
        *found, time = self._store.call(pipeline.execute, raise_on_error=False)
        now = milliseconds(time)
        return [_read(budget, fields, now) for budget, fields in zip(asked, found, strict=True)]

    def _key(self, budget: Budget) -> str:
        """Return the key of a budget: a pattern may have letters that confuse who lists keys."""
        return self._store.pool_key(f"budget:{crc32(budget.pattern.encode()):08x}")


def _read(budget: Budget, fields: object, now: int) -> BudgetState:
    """Read the fields of a budget; what is not ours is passed over."""
    waiting, at_once, stretch = 0.0, 0.0, 1.0
    for name, text in fields.items() if isinstance(fields, dict) else ():
        if (numbers := _NUMBERS.fullmatch(str(text))) is None:
            continue
        first, second = float(numbers[1]), float(numbers[2])
        if name.startswith("waits:") and abs(now - second) < _FRESH:
            waiting += first
        elif name.startswith("busy:") and second > now:
            at_once += first
        elif name == "stretch":
            stretch = max(1.0, first)
    return BudgetState(budget, round(waiting), stretch if waiting else 1.0, round(at_once))
