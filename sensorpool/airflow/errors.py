"""Why a sensor is not pooled, or goes back to its worker."""

import threading

from sensorpool.airflow import missing
from sensorpool.instrumentation.redaction import one_line

POKE, CONSTRUCTOR = "poke", "constructor"


class NotPoolable(Exception):
    """The sensor is not poolable; it runs natively. The message says why.

    :param kind: a word for the counter.
    """

    def __init__(self, why: str, kind: str = "not_poolable") -> None:
        super().__init__(why)
        self.kind = kind


class OnlyOnWorker(BaseException):
    """A poke in the pool asks for what only its task or its worker has; it is handed back.

    Not an Exception: a poke that catches those and makes do without must not catch this.
    """


class Unanswered(BaseException):
    """A poke in the pool looks up what cannot be looked up now: no answer, and none to make do without."""


class Asked:
    """What a poke, or a constructor, asks for and does not get: one that catches everything must not go on without it.

    :param may_miss: what was not there on its worker (`missing`); None, if nobody has looked.
    :param of_environment: what was in the environment of its worker (`missing`).
    :param asker: what asks, of a sensor: its poke or its constructor; None, if that is neither.
    """

    __slots__ = ("_before", "_may_miss", "_of_environment", "asker", "missed", "refused", "unanswered")

    def __init__(
        self,
        may_miss: frozenset[str] | None = None,
        of_environment: frozenset[str] = frozenset(),
        *,
        asker: str | None = None,
    ) -> None:
        self._may_miss = may_miss
        self._of_environment = of_environment
        self.asker = asker
        self.refused: list[str] = []
        self.missed: str | None = None  # what may be missing, for all that is known
        self.unanswered: str | None = None

    def __enter__(self) -> "Asked":
        self._before = _thread.asked
        _thread.asked = _all[id(self)] = self
        return self

    def __exit__(self, *_: object) -> None:
        _thread.asked = self._before
        del _all[id(self)]

    def miss(self, name: str) -> bool:
        """Note that something is not there; return whether it may be missing."""
        if self._may_miss is None:
            self.missed = name
        return self._may_miss is None or missing.was_missing(name, self._may_miss)

    def was_in_environment(self, name: str) -> bool:
        """Whether its worker found something in its environment."""
        return missing.was_in_environment(name, self._of_environment)


class _Thread(threading.local):
    asked: Asked | None = None


_thread = _Thread()
_all: dict[int, Asked] = {}  # those of all threads


def refuse(why: str, also: list[str] | None = None) -> OnlyOnWorker:
    """Return what to raise, and remember it.

    :param also: where to remember it as well, for a poke may ask in a thread of its own.
    """
    for refused in [asked.refused for asked in _askers()] if also is None or _thread.asked is not None else []:
        refused.append(why)
    if also is not None:
        also.append(why)
    return OnlyOnWorker(why)


def miss(name: str, why: str | None = None) -> None:
    """Note that a Connection or Variable is not there: if it may be, the poke is told so.

    :param why: why it cannot be told whether it is there.
    :raises OnlyOnWorker: when its worker may have it.
    """
    if not all(asked.miss(name) for asked in _askers()):
        raise refuse(f"its poke needs the {name}, which the pool does not find{f': {why}' if why else ''}")


def keep_to_environment(name: str) -> None:
    """Make sure that a Connection or Variable is not looked for elsewhere than where its worker found it.

    :raises OnlyOnWorker: when that was in its environment, and here it is not.
    """
    if any(asked.was_in_environment(name) for asked in _askers()):
        raise refuse(f"its poke needs the {name}, which its worker has in its environment, and the pool has not")


def unanswered(error: Exception) -> BaseException:
    """Return what to raise where a look-up got no answer, and remember it."""
    if not _askers():
        return error
    said = one_line(error)
    if _thread.asked is not None:
        _thread.asked.unanswered = said
    return Unanswered(said)


def pokes_here() -> bool:
    """Whether this thread pokes in the pool."""
    return asks_here() == POKE


def asks_here() -> str | None:
    """Return what asks in this thread, of a sensor in the pool: its poke or its constructor."""
    return None if _thread.asked is None else _thread.asked.asker


def _askers() -> list[Asked]:
    """Return who asks: the poke of this thread. A thread of its own may be any poke's, so then it is all of them."""
    return list(_all.values()) if _thread.asked is None else [_thread.asked]
