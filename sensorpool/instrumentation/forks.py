"""What a child must make anew after a fork: connections, locks and threads are its parent's.

A pool that was used before a fork (a server that loads its application first, `multiprocessing`) so works in the
children as well: on one connection they would mix up each other's answers.
"""

import os
from typing import Any, Protocol
from weakref import WeakSet


class Forked(Protocol):
    """Something that holds connections, locks or threads."""

    def begin_anew(self) -> None:
        """Forget what is the parent's, and say no goodbye on it: it is in use there."""


_alive: "WeakSet[Any]" = WeakSet()


def note(each: Forked) -> None:
    """Have something begin anew in each child that this process forks, for as long as it lives."""
    _alive.add(each)


def _begin_anew() -> None:
    for each in list(_alive):
        each.begin_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
