"""Objects that begin anew in a child after a fork: their connections, locks and threads belong to the parent.

So a pool that was used before a fork (by a server that loads its application first, or by `multiprocessing`) works in
the children as well. On a shared connection, the processes would read each other's answers.
"""

import os
from typing import Any, Protocol
from weakref import WeakSet


class Forked(Protocol):
    """An object that holds connections, locks or threads."""

    def begin_anew(self) -> None:
        """Drop the parent's connections, locks and threads without closing them: the parent uses them."""


_alive: "WeakSet[Any]" = WeakSet()


def note(holder: Forked) -> None:
    """Have an object begin anew in each child that this process forks, for as long as the object lives."""
    _alive.add(holder)


def _begin_anew() -> None:
    for each in list(_alive):
        each.begin_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
