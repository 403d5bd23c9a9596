"""The rounds of an event loop that pokes share, and the clock of the pokes: it stands still while others have the loop.

In a round the loop calls what is ready; then it waits for more. In a long round some code holds the loop, and no poke
gets on. Where that code is another's, the limits of the pokes move by the time for which it held the loop.
"""

import asyncio
import math
import selectors
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from sensorpool.poke.sharing import RunningPoke

LONG = 0.05  # seconds: a poke that gets on in each shorter round has turns enough within its limit


class Holder(NamedTuple):
    """Code that was seen to hold an event loop.

    :param handle: the loop's call of it.
    :param since: seconds, by the monotonic clock.
    :param going: the running poke that it belongs to; None: a poke has left it behind.
    :param name: its qualified name.
    """

    handle: asyncio.Handle
    since: float
    going: RunningPoke | None
    name: str


class Rounds(selectors.DefaultSelector):
    """The selector of an event loop, which measures the loop's rounds.

    :param running: the pokes on the loop.
    """

    def __init__(self, running: Mapping[Any, RunningPoke]) -> None:
        super().__init__()
        self.began = math.inf  # the round that goes on, by the monotonic clock; infinite while the loop waits
        self._holders: tuple[float, list[Holder]] = (0.0, [])  # when their round began, and the holders in order
        self._running = running

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait, between two rounds."""
        now = time.monotonic()
        if now - self.began > LONG:
            self._count(self.began, now)
        self.began = math.inf
        events = super().select(timeout)
        self.began = time.monotonic()
        return events

    def lasts(self) -> float:
        """Return for how many seconds the round has gone on. Called from any thread."""
        return max(0.0, time.monotonic() - self.began)

    def holders(self, began: float) -> list[Holder]:
        """Return what was seen to hold the loop in the round that began then. Called from any thread."""
        if self._holders[0] != began:
            self._holders = (began, [])
        return self._holders[1]

    def _count(self, began: float, ended: float) -> None:
        """Move the limits of the pokes by a long round, less the time for which each had the loop itself."""
        held_by: dict[RunningPoke | None, float] = {}
        until = ended
        for holder in reversed(self.holders(began)):
            held_by[holder.going] = held_by.get(holder.going, 0.0) + until - holder.since
            until = holder.since
        left = held_by.get(None, 0.0)
        for going in list(self._running.values()):
            lasted = ended - max(began, going.began)
            going.left += min(left, lasted)
            going.prolong(max(0.0, lasted - (going.stepped or held_by.get(going, 0.0))))
            going.stepped = 0.0
        self._holders = (0.0, [])
