"""What a poke or a constructor asks for in the pool and does not get: a sensor that catches that is handed back."""

import threading

from sensorpool.airflow.errors import LookupUnavailable, OnlyOnWorker
from sensorpool.airflow.proof.watch import missing_lookups
from sensorpool.airflow.proof.watch.company_hooks import HooksOfSensor
from sensorpool.instrumentation.redaction import one_line

POKE, CONSTRUCTOR = "poke", "constructor"
_NOT_FOUND = "which the pool does not find"


class Denials:
    """The denials of one poke or one construction; a context manager, for the thread that pokes or constructs.

    :param known_missing: digests of the Connections and Variables that the first poke did not find
        (`missing_lookups`); None if there was no first poke.
    :param of_environment: digests of those that it found in the environment of its worker.
    :param hooks: those that the sensor got; None if hooks do not matter.
    :param asker: the part of a sensor that asks, its poke or its constructor; None if it is neither.
    :param team: whose Connections and Variables it asks for; None: it is of no team.
    """

    __slots__ = (
        *("_before", "_known_missing", "_of_environment", "asker", "denied", "hooks", "possibly_missing"),
        *("team", "unavailable"),
    )

    def __init__(
        self,
        known_missing: frozenset[str] | None = None,
        of_environment: frozenset[str] = frozenset(),
        hooks: HooksOfSensor | None = None,
        *,
        asker: str | None = None,
        team: str | None = None,
    ) -> None:
        self._known_missing = known_missing
        self._of_environment = of_environment
        self.hooks = hooks
        self.asker = asker
        self.team = team
        self.denied: list[str] = []  # reasons
        self.possibly_missing: str | None = None  # a lookup that the worker may answer; there was no first poke
        self.unavailable: str | None = None  # the error of a lookup without an answer

    def __enter__(self) -> "Denials":
        self._before = _thread.current
        _thread.current = _all[id(self)] = self
        return self

    def __exit__(self, *_: object) -> None:
        _thread.current = self._before
        del _all[id(self)]

    def note_missing(self, name: str) -> bool:
        """Note that a Connection or Variable is missing; return whether the poke may do without it."""
        if self._known_missing is None:
            self.possibly_missing = name
        return self._known_missing is None or missing_lookups.was_missing(name, self._known_missing)

    def was_in_environment(self, name: str) -> bool:
        """Whether the worker found a Connection or Variable in its environment."""
        return missing_lookups.was_in_environment(name, self._of_environment)


class _Thread(threading.local):
    current: Denials | None = None


_thread = _Thread()
_all: dict[int, Denials] = {}  # of all threads


def deny(why: str, also: list[str] | None = None) -> OnlyOnWorker:
    """Return the exception to raise for a request that only a worker can answer, and note the denial.

    :param why: the reason, for the task's log.
    :param also: a second list that notes the reason, for a poke may ask in a thread of its own.
    """
    for denied in [denials.denied for denials in _current()] if also is None or _thread.current is not None else []:
        denied.append(why)
    if also is not None:
        also.append(why)
    return OnlyOnWorker(why)


def report_missing(name: str, why: str | None = None) -> None:
    """Note that a Connection or Variable is missing in the pool.

    :param why: why the pool cannot tell whether there is one.
    :raises OnlyOnWorker: when the worker may have it.
    """
    if not all(denials.note_missing(name) for denials in _current()):
        raise deny(f"its poke needs the {name}, {_NOT_FOUND}{f': {why}' if why else ''}")


def is_of_missing(why: str) -> bool:
    """Whether a sensor was handed back by `report_missing`."""
    return _NOT_FOUND in why


def keep_to_environment(name: str) -> None:
    """Deny the lookup of a Connection or Variable that the worker found in its environment, and the pool did not.

    :raises OnlyOnWorker: then; what Airflow's database has under the name is another one.
    """
    if any(denials.was_in_environment(name) for denials in _current()):
        raise deny(f"its poke needs the {name}, which its worker has in its environment, and the pool has not")


def report_unavailable(error: Exception) -> BaseException:
    """Note that a lookup got no answer, and return the exception to raise."""
    if not _current():
        return error
    text = one_line(error)
    if _thread.current is not None:
        _thread.current.unavailable = text
    return LookupUnavailable(text)


def team_here() -> str | None:
    """Return the team for which this thread asks; None if for none.

    :raises LookupError: in a thread that a poke has started, while pokes of several teams are under way.
    """
    teams = {denials.team for denials in _current()} or {None}
    if len(teams) > 1:
        raise LookupError("a poke asks in a thread of its own, while pokes of several teams are under way")
    return teams.pop()


def hooks_of_pokes() -> list[HooksOfSensor]:
    """Return the hooks of this thread's poke, or of all pokes, where they matter."""
    return [denials.hooks for denials in _current() if denials.hooks is not None]


def hooks_here() -> list[type]:
    """Return the classes of companies' hooks that this thread's poke, or any poke, got."""
    return [hook for hooks in hooks_of_pokes() for hook in list(hooks.states)]


def is_poke_thread() -> bool:
    """Whether this thread pokes in the pool."""
    return asker_here() == POKE


def asker_here() -> str | None:
    """Return what asks in this thread of the pool, a poke or a constructor; None if neither does."""
    return None if _thread.current is None else _thread.current.asker


def _current() -> list[Denials]:
    """Return the denials of this thread's poke; in a thread that a poke has started, those of all pokes."""
    return list(_all.values()) if _thread.current is None else [_thread.current]
