"""Actors: code that runs until a named step, and goes on when the test says so. Only one runs at a time: no races.

The steps are the project's failpoints, and a few steps of the simulation. An actor that is not run is frozen. An actor
that is killed unwinds at once, as a transaction does when its process dies.
"""

import threading
from collections.abc import Callable
from typing import Any

END = "end"
_LIMIT = 60.0  # seconds; an actor that takes longer is in a deadlock


class Killed(BaseException):
    """Raised at the step at which an actor is killed."""


class Actor:
    """One thread that runs while the caller of `run` waits.

    :param body: its function; the return value is kept in ``value``, an exception in ``error``.
    """

    def __init__(self, body: Callable[[], Any], owner: Any = None) -> None:
        self.owner = owner
        self.at: str | None = None  # the step at which it stands; END: it has ended
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
        """Whether the actor has ended."""
        return self.at == END

    def run(self, until: str = END) -> None:
        """Go on until the step, or the end."""
        if self.ended:
            return
        self._until = until
        self._go.release()
        if not self._back.acquire(timeout=_LIMIT):
            raise AssertionError(f"an actor did not come back from {self.at or 'its start'} within {_LIMIT:g} s")

    def kill(self) -> None:
        """End the actor at its step."""
        self.killed = True
        self.run()

    def reach(self, step: str) -> None:
        """Stop at this step, if the actor is to stop here."""
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
        except BaseException as error:  # handed to the caller of `run`
            self.error = error
        self.at = END
        self._back.release()


_here = threading.local()


def current() -> Actor | None:
    """Return the actor that runs this code, or None."""
    return getattr(_here, "actor", None)
