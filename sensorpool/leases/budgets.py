"""What is left of the budgets of backends, in Redis, shared by all workers: one script asks one. Disposable."""

import random
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from zlib import crc32

from sensorpool.leases.redis_store import RedisStore
from sensorpool.model.budgets import Budget

_WAITS = "waits:"
_JITTER = (0.6, 1.4)


class BudgetState(NamedTuple):
    """A budget as it is now.

    :param waiting: groups that wait for it.
    :param longest: seconds for which the first of them has waited.
    :param at_once: pokes that go on.
    """

    budget: Budget
    waiting: int
    longest: float
    at_once: int


class BudgetsLeft:
    """What is left of a pool's budgets.

    :param kept: seconds after which pokes count as ended of which a worker does not tell.
    :param tick: seconds; an asker that waits asks again within some.
    :raises Unreachable: by every method, when Redis does not answer.
    """

    def __init__(self, store: RedisStore, *, kept: float = 0.0, tick: float = 0.0) -> None:
        self._store = store
        self._kept = round(kept * 1000)
        self._asks_again = round(3 * tick * 1000) + 5_000

    def take(
        self, budget: Budget, asker: str, pokes: Sequence[str], *, groups: int, waited: float
    ) -> tuple[int, float]:
        """Take pokes out of a budget.

        :param asker: the range whose groups want it.
        :param pokes: names of the wanted pokes; a call for many groups is one poke.
        :param groups: how many groups wait, in all.
        :param waited: seconds for which the first of them has waited.
        :returns: how many of the pokes may begin now, and after how many seconds to ask for the others: at random, so
            that no range always comes before another.
        """
        per_second, at_once = budget.per_second or 0, budget.at_once or 0
        about = [asker, len(pokes), groups, round(waited * 1000), per_second, at_once, self._asks_again, self._kept]
        names = pokes if at_once else ()
        keys = [self._key(budget), self._busy_key(budget)]
        granted, wait = self._store.run("take_budget", keys, [*about, *names])
        return int(granted), int(wait) / 1000 * random.uniform(*_JITTER)

    def give_back(self, ended: Iterable[tuple[Budget, str]]) -> None:
        """Note that pokes have ended, each of a budget that counts those at once."""
        pipeline = self._store.pipeline()
        for budget, poke in ended:
            pipeline.zrem(self._busy_key(budget), poke)
        self._store.call(pipeline.execute)

    def look(self, budgets: Iterable[Budget]) -> list[BudgetState]:
        """Return each budget as it is now."""
        asked, now = list(budgets), self._store.now()
        pipeline = self._store.pipeline()
        for budget in asked:
            pipeline.hgetall(self._key(budget))
            pipeline.zcount(self._busy_key(budget), now, "+inf")
        found = self._store.call(pipeline.execute)
        return [_read(*each, now) for each in zip(asked, found[::2], found[1::2], strict=True)]

    def _key(self, budget: Budget) -> str:
        """Return the key of a budget: a pattern may have letters that confuse who lists keys."""
        return self._store.pool_key(f"budget:{crc32(budget.pattern.encode()):08x}")

    def _busy_key(self, budget: Budget) -> str:
        return f"{self._key(budget)}:busy"


def _read(budget: Budget, fields: dict[str, str], at_once: int, now: int) -> BudgetState:
    waits = [list(map(int, text.split())) for name, text in fields.items() if name.startswith(_WAITS)]
    waits = [each for each in waits if each[0] and each[2] > now]
    longest = max((now - since for _, since, _ in waits), default=0)
    return BudgetState(budget, sum(groups for groups, *_ in waits), max(0, longest) / 1000, at_once)
