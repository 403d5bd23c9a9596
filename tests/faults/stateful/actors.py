"""Actors: code that runs until a named step, and goes on when it is told to. One runs at a time, so nothing races.

The steps are the project's failpoints, and a few of the simulation's own. An actor that is left alone is frozen; one
that is killed unwinds without another word, as its transaction does when a process dies.
"""

import threading
from collections.abc import Callable
from typing import Any

END = "end"
_LIMIT = 60.0  # seconds; an actor that takes longer waits for something that nobody will do


class Killed(BaseException):
    """Raised where an actor stood when it was killed."""


class Actor:
    """One thread that runs while whoever called `run` waits.

    :param body: what it does; what it returns is kept in ``value``, what it raises in ``error``.
    """

    def __init__(self, body: Callable[[], Any], owner: Any = None) -> None:
        self.owner = owner
        self.at: str | None = None  # where it stands; END: it has ended
        self.value: Any = None
        self.error: BaseException | None = None
        self.killed = False
        self._until = END
        self._body = body
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        """Whether there is nothing left to do."""
        return self.at == END

    def run(self, until: str = END) -> None:
        """Go on until that step, or the end."""
        if self.ended:
            return
        self._until = until
        self._go.release()
        if not self._back.acquire(timeout=_LIMIT):
            raise AssertionError(f"an actor did not come back from {self.at or 'its start'} within {_LIMIT:g} s")

    def kill(self) -> None:
        """End it where it stands."""
        self.killed = True
        self.run()

    def reach(self, step: str) -> None:
        """Stand here, if this is where it was to stop."""
        if self.killed or step != self._until:
            return
        self.at = step
        self._back.release()
        self._go.acquire()
        if self.killed:
            raise Killed

    def _live(self) -> None:
        self._go.acquire()
        _here.actor = self
        try:
            if not self.killed:
                self.value = self._body()
        except Killed:
            pass
        except BaseException as error:  # told to whoever waits
            self.error = error
        self.at = END
        self._back.release()


_here = threading.local()


def current() -> Actor | None:
    """Return the actor that runs this code, if one does."""
    return getattr(_here, "actor", None)
